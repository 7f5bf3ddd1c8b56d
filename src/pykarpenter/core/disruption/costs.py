"""What a machine costs and what moving its pods costs: prices in $/hour, disturbance in Karpenter's units.

An unknown price is None and never zero, so that nothing is called cheaper than a machine of unknown price.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from pykarpenter.api import labels
from pykarpenter.api.duration import InvalidDuration, parse_nillable_duration
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.core.instance_types import InstanceType

_INT32 = re.compile(r"[+-]?[0-9]+")
_COST_SCALE = 2.0**27
_PRIORITY_SCALE = 2.0**25


def disruption_cost(pod: Pod, managed_deletion_cost: bool) -> int:
    """The user's own weight of the pod; a bad value counts nothing and does not fall through to the other key."""
    annotations = pod.metadata.annotations
    if labels.DISRUPTION_COST in annotations:
        return parse_int32(annotations[labels.DISRUPTION_COST]) or 0
    if managed_deletion_cost:
        return 0
    return parse_int32(annotations.get(labels.POD_DELETION_COST, "0")) or 0


def unreadable_cost(pod: Pod, managed_deletion_cost: bool) -> tuple[str, str] | None:
    """The annotation that counts for the pod's cost and its value, when that is no 32-bit number."""
    annotations = pod.metadata.annotations
    for key in (labels.DISRUPTION_COST, *(() if managed_deletion_cost else (labels.POD_DELETION_COST,))):
        if key in annotations:
            return None if parse_int32(annotations[key]) is not None else (key, annotations[key])
    return None


def parse_int32(text: str) -> int | None:
    if not _INT32.fullmatch(text) or len(text) > 64:
        return None
    value = int(text)
    return value if -(2**31) <= value < 2**31 else None


def eviction_cost(pod: Pod, managed_deletion_cost: bool = False) -> float:
    cost = 1.0 + disruption_cost(pod, managed_deletion_cost) / _COST_SCALE
    cost += (pod.spec.priority or 0) / _PRIORITY_SCALE
    return max(-10.0, min(10.0, cost))


def reschedule_cost(pods: Iterable[Pod], managed_deletion_cost: bool = False) -> float:
    """Over reschedulable pods; 1 or less means that the machine counts as empty."""
    return 1.0 + math.fsum(max(0.0, eviction_cost(pod, managed_deletion_cost)) for pod in pods)


def lifetime_remaining(claim: NodeClaim | None, now: float) -> float:
    """The share of `expireAfter` that is left; 1 for a machine that does not expire."""
    created = parse_optional_timestamp(claim.metadata.creation_timestamp) if claim is not None else None
    if claim is None or created is None:
        return 1.0
    try:
        total = parse_nillable_duration(claim.spec.expire_after)
    except InvalidDuration:
        return 1.0
    if total is None:
        return 1.0
    if total <= 0:
        return 0.0
    return max(0.0, min(1.0, 1.0 - (now - created) / total))


def node_price(instance_type: InstanceType | None, node_labels: Mapping[str, str]) -> float | None:
    """The price of the first offering with the node's zone and capacity type, available or not; None if unknown."""
    if instance_type is None:
        return None
    zone, capacity_type = node_labels.get(labels.ZONE), node_labels.get(labels.CAPACITY_TYPE)
    for offering in instance_type.offerings:
        if offering.capacity_type == capacity_type and offering.zone == zone:
            price = offering.price
            return price if price is not None and math.isfinite(price) and price >= 0 else None
    return None
