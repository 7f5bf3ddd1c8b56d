"""What the provider `kwok` adds: its class, and the label domain it keeps for itself."""

from __future__ import annotations

from typing import Any

from pykarpenter.api import kinds, patterns
from pykarpenter.api.crds import parts
from pykarpenter.api.crds.manifest import definition
from pykarpenter.api.crds.schema import Schema, struct, text

DOMAIN = "karpenter.kwok.sh"
ALLOWED_KEYS = tuple(
    f"{DOMAIN}/{name}"
    for name in ("kwoknodeclass", "instance-cpu", "instance-memory", "instance-family", "instance-size")
)

# Nothing prepares a KWOK class, so it is born ready.
READY_CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Ready",
    "message": "",
    "lastTransitionTime": "2024-01-01T01:01:01Z",
}


def key_rules() -> list[Schema]:
    return [parts.domain_rule(DOMAIN, ALLOWED_KEYS)]


def node_class() -> dict[str, Any]:
    conditions = parts.conditions() | {"default": [READY_CONDITION]}
    return definition(
        kinds.KWOK_NODE_CLASS,
        description="The class of simulated nodes.",
        spec=struct(
            "How simulated nodes behave.",
            {
                "nodeRegistrationDelay": text(
                    "How long a launched node takes to appear in the cluster.", pattern=patterns.DURATION
                )
            },
        ),
        status=struct(
            "What has been observed about the class.",
            {"conditions": conditions},
            default={"conditions": [READY_CONDITION]},
        ),
        spec_required=False,
        short_names=["kwoknc", "kwokncs"],
    )
