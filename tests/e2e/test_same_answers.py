"""The embedded API server refuses and accepts what the real one does, with the same field paths and words."""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .answers.cases import CUSTOM, DEFINITIONS, METADATA, PLACEMENT, WORKLOADS, Case
from .cluster import ApiError, Cluster, Rest, wait_until
from .test_served_kubectl import Served

# The real cluster's controllers write to these at once, or finish their deletion a moment later.
_TIMING = ("Node", "CustomResourceDefinition", "Status")


@pytest.fixture
def embedded(binaries: Any, tmp_path: Path) -> Iterator[Rest]:
    served = Served(binaries.kubectl, tmp_path)
    served.start()
    config = json.loads((tmp_path / "kubeconfig").read_text())
    address = config["clusters"][0]["cluster"]
    authority = base64.b64decode(address["certificate-authority-data"]).decode()
    tls = ssl.create_default_context(cadata=authority)
    port = int(address["server"].rpartition(":")[2])
    yield Rest("127.0.0.1", port, token=config["users"][0]["user"]["token"], tls=tls)
    served.stop()


def _plain(text: str) -> str:
    """A message without what differs from run to run."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "<uid>", text)
    return re.sub(r"in record \(\d+\)", "in record (<version>)", text)


def _refusal(body: dict[str, Any], words: bool) -> Any:
    causes = (body.get("details") or {}).get("causes") or []
    fields = sorted({(cause.get("field", ""), cause.get("reason", "")) for cause in causes})
    return [body.get("reason"), fields, _plain(body.get("message", "")) if words else ""]


def answer(rest: Rest, case: Case, namespace: str) -> Any:
    """What matters of an answer: the code, and the refusal or the spec that was stored."""
    path = case.path.replace("{ns}", namespace)
    code, text = rest.request(case.method, path, case.body, content_type=case.content_type)
    try:
        body = json.loads(text)
    except ValueError:
        body = {}
    if code >= 400:
        return [code, *_refusal(body, case.words)]
    if body.get("kind") in _TIMING:
        return [code]
    return [code, body.get("kind"), body.get("spec"), body.get("metadata", {}).get("generation")]


def _served(rest: Rest, namespace: str) -> bool:
    return rest.find(f"/apis/example.com/v1/namespaces/{namespace}/widgets") is not None


@pytest.mark.parametrize(
    "cases", [METADATA, PLACEMENT, WORKLOADS, CUSTOM], ids=["metadata", "placement", "workloads", "custom"]
)
def test_the_embedded_server_answers_as_the_real_one(
    cluster: Cluster, namespace: str, embedded: Rest, cases: list[Case]
) -> None:
    """Every request in order to both; not one answer differs."""
    real = cluster.admin
    embedded.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    differences = []
    for case in cases:
        theirs, ours = answer(real, case, namespace), answer(embedded, case, namespace)
        if theirs != ours:
            differences.append(
                f"{case.method} {case.path} {json.dumps(case.body)}\n  real     {theirs}\n  embedded {ours}"
            )
        if case.path == DEFINITIONS and theirs[0] == 201:
            wait_until(lambda: _served(real, namespace), what="widgets are served", retry_on=(ApiError,))
    assert not differences, "\n".join(differences)
