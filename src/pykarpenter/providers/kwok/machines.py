"""What a simulated machine looks like: its Node's name, labels, taints and resources, and the way back to a claim.

Pure: a NodeClaim and a chosen offering give the Node's body; a Node gives the claim-shaped view the core reads. The
Node is the instance, so everything that must survive a crash is written on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pykarpenter.api import labels
from pykarpenter.api.meta import ObjectMeta
from pykarpenter.api.nodepool import NodeClaim, NodeClaimStatus
from pykarpenter.api.nodes import Node
from pykarpenter.api.quantity import format_quantities, requested
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.requirements import Requirements, from_expressions, from_labels
from pykarpenter.core.resources import Resources, fits

PREFIX = "kwok://"
PARTITION_LABEL = "kwok-partition"
PARTITION = "a"
FAKE_NODE = "kwok.x-k8s.io/node"
PRICE_LABEL = "eks-node-viewer/instance-price"
# Ours: whose machine this is. A view without them belongs to nobody we know, and is never deleted in a claim's name.
CLAIM_NAME = f"{labels.OWN_GROUP}/nodeclaim"
CLAIM_UID = f"{labels.OWN_GROUP}/nodeclaim-uid"

# Set on a Node by the core, not by the machine: no part of what a launch resolved.
_CORE_LABELS = frozenset({labels.REGISTERED, labels.INITIALIZED, labels.EXCLUDE_FROM_LOAD_BALANCERS})

_RESOLVED = frozenset({labels.INSTANCE_TYPE, labels.ZONE, labels.CAPACITY_TYPE})


@dataclass(frozen=True, slots=True)
class Choice:
    """The machine a claim gets."""

    instance_type: InstanceType
    offering: Offering


def node_name(claim: NodeClaim) -> str:
    """`kwok-<claim>-<hash of the UID>`: a repeated launch of the same claim meets the Node it made before."""
    return f"kwok-{claim.name}-{hashlib.sha256(claim.uid.encode()).hexdigest()[:10]}"


def provider_id(claim: NodeClaim) -> str:
    return PREFIX + node_name(claim)


def name_of(machine_id: str) -> str:
    """The Node's name of a provider ID; empty for an ID that is not ours."""
    return machine_id[len(PREFIX) :] if machine_id.startswith(PREFIX) else ""


def choose(
    claim: NodeClaim, types: Iterable[InstanceType], rules: labels.LabelRules = labels.DEFAULT_RULES
) -> Choice | None:
    """The cheapest available offering that the claim allows and fits into; ties by type, zone and capacity type.

    An offering without a usable price comes last. Deterministic, so that a launch repeated after a crash resolves
    to the same machine.
    """
    # A claim that was launched before carries what it got as labels.
    resolved = {key: value for key, value in claim.metadata.labels.items() if key in _RESOLVED}
    wanted = from_expressions(claim.spec.requirements, rules).merged(from_labels(resolved).values())
    named = wanted.get_or_exists(labels.INSTANCE_TYPE)
    requests = requested(claim.spec.resources.requests)
    found = [
        Choice(item, offering)
        for item in types
        if named.allows(item.name) and wanted.compatible(item.requirements, rules.well_known)
        for offering in item.offerings
        if _is_usable(wanted, requests, item, offering, rules)
    ]
    ranks = _overlaid_ranks(claim)
    return min(found, key=lambda choice: (ranks.get(choice.instance_type.name, 0), *_order(choice)), default=None)


def _overlaid_ranks(claim: NodeClaim) -> dict[str, int]:
    """Where overlays changed prices the claim lists its types by those prices, which only the planner knows."""
    if claim.metadata.annotations.get(labels.PRICE_OVERLAY_APPLIED) != "true":
        return {}
    listed = [e.values for e in claim.spec.requirements if e.key == labels.INSTANCE_TYPE and e.operator == "In"]
    return {name: rank for values in listed for rank, name in enumerate(values)}


def _is_usable(
    wanted: Requirements, requests: Resources, item: InstanceType, offering: Offering, rules: labels.LabelRules
) -> bool:
    if not offering.launchable or not wanted.compatible(offering.requirements, rules.well_known):
        return False
    return fits(requests, item.allocatable(offering))


def _order(choice: Choice) -> tuple[float, str, str, str]:
    price = choice.offering.price
    return (
        float("inf") if price is None else price,
        choice.instance_type.name,
        choice.offering.zone,
        choice.offering.capacity_type,
    )


def node_body(claim: NodeClaim, choice: Choice, rules: labels.LabelRules = labels.DEFAULT_RULES) -> dict[str, Any]:
    """The Node as it registers: tainted unregistered, phase Pending, not Ready yet."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node_name(claim),
            "labels": machine_labels(claim, choice, rules),
            "annotations": {
                **claim.metadata.annotations,
                FAKE_NODE: "fake",
                CLAIM_NAME: claim.name,
                CLAIM_UID: claim.uid,
            },
        },
        "spec": {
            "providerID": provider_id(claim),
            "taints": [{"key": labels.UNREGISTERED_TAINT, "effect": "NoExecute"}],
        },
        "status": node_status(claim, choice),
    }


def node_status(claim: NodeClaim, choice: Choice) -> dict[str, Any]:
    """Capacity and allocatable of the chosen type over what the claim asked for, such as extended resources."""
    asked = requested(claim.spec.resources.requests)
    item, offering = choice.instance_type, choice.offering
    capacity = {**asked, **item.capacity, **offering.capacity_override}
    allocatable = {**asked, **item.allocatable(offering)}
    return {
        "phase": "Pending",
        "capacity": format_quantities(capacity),
        "allocatable": format_quantities(allocatable),
    }


def machine_labels(claim: NodeClaim, choice: Choice, rules: labels.LabelRules = labels.DEFAULT_RULES) -> dict[str, str]:
    result = dict(claim.metadata.labels)
    for requirements in (
        from_expressions(claim.spec.requirements, rules),
        choice.instance_type.requirements,
        choice.offering.requirements,
    ):
        result.update(_single_values(requirements))
    price = choice.offering.price
    result.update(
        {
            PRICE_LABEL: f"{price or 0.0:.6f}",
            PARTITION_LABEL: PARTITION,
            labels.HOSTNAME: claim.name[:63],
            FAKE_NODE: "fake",
        }
    )
    return result


def _single_values(requirements: Requirements) -> Mapping[str, str]:
    return {
        item.key: next(iter(item.values))
        for item in requirements.items_sorted()
        if item.operator == "In" and len(item.values) == 1
    }


def launched_view(claim: NodeClaim, choice: Choice, rules: labels.LabelRules = labels.DEFAULT_RULES) -> NodeClaim:
    """What a launch answers before the Node exists."""
    status = node_status(claim, choice)
    return NodeClaim(
        metadata=ObjectMeta(name=claim.name, uid=claim.uid, labels=machine_labels(claim, choice, rules)),
        status=NodeClaimStatus(
            provider_id=provider_id(claim), capacity=status["capacity"], allocatable=status["allocatable"]
        ),
    )


def node_view(node: Node) -> NodeClaim:
    """A Node as a claim-shaped view; name and UID are those of the claim it was launched for."""
    meta = node.metadata
    return NodeClaim(
        metadata=ObjectMeta(
            name=meta.annotations.get(CLAIM_NAME, ""),
            uid=meta.annotations.get(CLAIM_UID, ""),
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=meta.deletion_timestamp,
            labels={key: value for key, value in meta.labels.items() if key not in _CORE_LABELS},
        ),
        status=NodeClaimStatus(
            node_name=node.name,
            provider_id=node.spec.provider_id,
            capacity=node.status.capacity,
            allocatable=node.status.allocatable,
        ),
    )
