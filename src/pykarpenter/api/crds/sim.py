"""What the provider `sim`, the embedded cluster's own cloud, adds: its class."""

from __future__ import annotations

from typing import Any

from pykarpenter.api import kinds, patterns
from pykarpenter.api.crds import parts
from pykarpenter.api.crds.kwok import READY_CONDITION
from pykarpenter.api.crds.manifest import definition
from pykarpenter.api.crds.schema import struct, text


def node_class() -> dict[str, Any]:
    conditions = parts.conditions() | {"default": [READY_CONDITION]}
    return definition(
        kinds.SIM_NODE_CLASS,
        description="The class of machines of the embedded cluster's cloud.",
        spec=struct(
            "What machines are made from and how quickly they come.",
            {
                "image": text("The image machines boot; machines with another image have drifted."),
                "bootDelay": text("How long a machine takes from launch to its Node.", pattern=patterns.DURATION),
            },
        ),
        status=struct(
            "What has been observed about the class.",
            {"conditions": conditions},
            default={"conditions": [READY_CONDITION]},
        ),
        spec_required=False,
        short_names=["simnc", "simncs"],
    )
