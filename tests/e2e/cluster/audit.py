"""The API server's audit log: which requests were made, by whom, with what answer.

The policy leaves out the control plane's own users, so the log holds what tests and the program under
test did. An event is written before its answer goes out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {
            "level": "None",
            "users": ["system:apiserver", "system:kube-scheduler", "system:kube-controller-manager"],
        },
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]},
        {"level": "Metadata"},
    ],
}


@dataclass(frozen=True)
class Request:
    """One answered request. `resource` is the plural, with its subresource (`pods/eviction`)."""

    user: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    code: int
    user_agent: str
    uri: str


def read_requests(path: Path) -> list[Request]:
    """All requests so far, in the order they were answered."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")
    # What follows the last newline is an event still being written.
    return [_request(json.loads(line)) for line in lines[:-1] if line]


def _request(event: dict[str, Any]) -> Request:
    target = event.get("objectRef", {})
    resource = target.get("resource", "")
    if target.get("subresource"):
        resource += f"/{target['subresource']}"
    return Request(
        user=event.get("user", {}).get("username", ""),
        verb=event.get("verb", ""),
        group=target.get("apiGroup", ""),
        resource=resource,
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        user_agent=event.get("userAgent", ""),
        uri=event.get("requestURI", ""),
    )
