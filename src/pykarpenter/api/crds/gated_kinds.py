"""The CRDs of NodeOverlay and CapacityBuffer, whose controllers wait behind feature gates."""

from __future__ import annotations

from typing import Any

from pykarpenter.api import kinds, labels, patterns
from pykarpenter.api.crds import parts
from pykarpenter.api.crds.manifest import AGE, READY, Column, definition
from pykarpenter.api.crds.schema import Schema, integer, quantities, rule, struct, text

ACTIVE_CAPACITY = "buffer.x-k8s.io/active-capacity"


def node_overlay() -> dict[str, Any]:
    fixed = " || ".join(f"'{name}' in self" for name in labels.WELL_KNOWN_RESOURCES)
    spec = struct(
        "Which instance types are seen differently, and how.",
        {
            "requirements": parts.requirements(
                parts.key_rules(pool_label=True), min_values=False, not_in_needs_values=True
            ),
            "price": text("The price to assume instead of the provider's, per hour.", pattern=patterns.PRICE),
            "priceAdjustment": text(
                "A change of the provider's price: an amount such as +0.05 or a percentage such as -10%.",
                pattern=patterns.PRICE_ADJUSTMENT,
            ),
            "capacity": quantities(
                "Extra resources that the matching instance types offer.",
                rules=[
                    rule(
                        f"!({fixed})",
                        f"{', '.join(labels.WELL_KNOWN_RESOURCES)} come from the provider and cannot be overlaid",
                    )
                ],
            ),
            "weight": integer("Overlays with a higher weight win.", fmt="int32", minimum=1, maximum=10000),
        },
        required=("requirements",),
        rules=[
            rule(
                "!(has(self.price) && has(self.priceAdjustment))",
                "price and priceAdjustment exclude each other; remove one",
            )
        ],
    )
    return definition(
        kinds.NODE_OVERLAY,
        description="Changes how instance types look to the planner: their price or additional resources.",
        spec=spec,
        status=struct("What has been observed about the overlay.", {"conditions": parts.conditions()}),
        short_names=["overlays"],
        columns=[READY, AGE, Column("Weight", ".spec.weight", "integer", 1)],
    )


def _pod_template_ref() -> Schema:
    return struct(
        "A PodTemplate of the same namespace.",
        {"name": text("Name of the PodTemplate.", min_length=1)},
        required=("name",),
    )


def capacity_buffer() -> dict[str, Any]:
    spec = struct(
        "How much spare capacity is kept, and in which shape.",
        {
            "provisioningStrategy": text("How the capacity is kept ready.", default=ACTIVE_CAPACITY),
            "podTemplateRef": _pod_template_ref(),
            "scalableRef": struct(
                "A workload of the same namespace whose pods and size the buffer follows.",
                {
                    "apiGroup": text("API group of the workload."),
                    "kind": text("Kind of the workload.", min_length=1),
                    "name": text("Name of the workload.", min_length=1),
                },
                required=("kind", "name"),
            ),
            "replicas": integer("How many pods to keep room for.", fmt="int32", minimum=0),
            "percentage": integer(
                "How many pods to keep room for, in percent of the workload's.", fmt="int32", minimum=0
            ),
            "limits": quantities("The most the buffer may reserve in total, per resource."),
        },
        rules=[
            rule(
                "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
                "podTemplateRef needs replicas or limits to give the buffer a size",
            ),
            rule(
                "!(has(self.podTemplateRef) && has(self.scalableRef))",
                "podTemplateRef and scalableRef exclude each other; remove one",
            ),
        ],
    )
    status = struct(
        "What the buffer was resolved to.",
        {
            "podTemplateRef": _pod_template_ref(),
            "replicas": integer("How many pods room is kept for.", fmt="int32"),
            "podTemplateGeneration": integer("The generation of the PodTemplate that was read."),
            "provisioningStrategy": text("The strategy in use."),
            "conditions": parts.conditions(),
        },
    )
    return definition(
        kinds.CAPACITY_BUFFER,
        description="Room for pods that do not exist yet.",
        spec=spec,
        status=status,
        categories=("autoscaling",),
        short_names=["cb"],
        columns=[
            Column("Strategy", ".status.provisioningStrategy"),
            Column("PodTemplate", ".status.podTemplateRef.name"),
            Column("Replicas", ".status.replicas", "integer"),
            Column("ConditionsType", ".status.conditions[*].type"),
            Column("ConditionsStatus", ".status.conditions[*].status"),
            Column("ConditionsReason", ".status.conditions[*].reason"),
            AGE,
        ],
    )
