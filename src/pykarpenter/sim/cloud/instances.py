"""One machine of the simulated cloud, and how it looks to the core and to Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pykarpenter.api import labels
from pykarpenter.api.meta import ObjectMeta
from pykarpenter.api.nodepool import NodeClaim, NodeClaimStatus
from pykarpenter.api.quantity import format_quantities
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.requirements import Requirements

PREFIX = "sim:///"
NODE_LABEL = f"{labels.OWN_GROUP}/simulated"

# Ownership: an instance is ours only when all of these are.
TAG_CLUSTER = f"{labels.OWN_GROUP}/cluster"
TAG_CLAIM = f"{labels.OWN_GROUP}/nodeclaim"
TAG_CLAIM_UID = f"{labels.OWN_GROUP}/nodeclaim-uid"
TAG_POOL = labels.NODEPOOL

PENDING = "pending"
RUNNING = "running"
SHUTTING_DOWN = "shutting-down"
TERMINATED = "terminated"


@dataclass(slots=True, eq=False)
class Instance:
    """A machine; `token` made its launch repeatable."""

    id: str
    token: str
    tags: dict[str, str]
    item: InstanceType
    offering: Offering
    image: str
    node_name: str
    launched_at: float
    labels: Mapping[str, str] = field(default_factory=dict)
    state: str = PENDING
    terminated_at: float | None = None
    boot: int = 1

    @property
    def provider_id(self) -> str:
        return f"{PREFIX}{self.offering.zone}/{self.id}"

    @property
    def is_live(self) -> bool:
        return self.state in (PENDING, RUNNING)

    @property
    def price(self) -> float:
        """$/h, fixed at launch; 0 when the catalogue had none."""
        return self.offering.price or 0.0


def instance_id(provider_id: str) -> str:
    """The instance's ID of a provider ID; empty for one of another cloud."""
    return provider_id.rpartition("/")[2] if provider_id.startswith(PREFIX) else ""


def single_values(*sources: Requirements) -> dict[str, str]:
    """The labels that requirements fix to one value."""
    result: dict[str, str] = {}
    for requirements in sources:
        for item in requirements.items_sorted():
            if item.operator == "In" and len(item.values) == 1:
                result[item.key] = next(iter(item.values))
    return result


def claim_view(instance: Instance) -> NodeClaim:
    """The instance as the core reads it."""
    return NodeClaim(
        metadata=ObjectMeta(
            name=instance.tags.get(TAG_CLAIM, ""),
            uid=instance.tags.get(TAG_CLAIM_UID, ""),
            creation_timestamp=format_timestamp(instance.launched_at),
            deletion_timestamp=None if instance.is_live else format_timestamp(instance.terminated_at or 0.0),
            labels={TAG_POOL: instance.tags.get(TAG_POOL, ""), **instance.labels},
        ),
        status=NodeClaimStatus(
            provider_id=instance.provider_id,
            image_id=instance.image,
            capacity=dict(format_quantities({**instance.item.capacity, **instance.offering.capacity_override})),
            allocatable=dict(format_quantities(instance.item.allocatable(instance.offering))),
        ),
    )


def node_body(instance: Instance) -> dict[str, Any]:
    """The Node as the machine registers it: tainted unregistered, devices included."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": instance.node_name,
            "labels": {**instance.labels, labels.HOSTNAME: instance.node_name, NODE_LABEL: "true"},
        },
        "spec": {
            "providerID": instance.provider_id,
            "taints": [{"key": labels.UNREGISTERED_TAINT, "effect": "NoExecute"}],
        },
    }


def node_resources(instance: Instance, *, with_devices: bool) -> dict[str, Any]:
    """Capacity and allocatable; extended resources are left out until their device plugin is up."""
    capacity = {**instance.item.capacity, **instance.offering.capacity_override}
    allocatable = instance.item.allocatable(instance.offering)
    if not with_devices:
        capacity = {name: amount for name, amount in capacity.items() if "/" not in name}
        allocatable = {name: amount for name, amount in allocatable.items() if "/" not in name}
    return {"capacity": format_quantities(capacity), "allocatable": format_quantities(allocatable)}
