"""Whether a machine is still what its NodePool asks for.

Compares a claim with its pool and the types the pool can have; the first difference names the reason. What is not
known (a missing hash, an empty catalogue) is no difference.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykarpenter.api import labels
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.core.instance_types import InstanceType, by_name
from pykarpenter.core.requirements import Requirements, from_expressions, from_labels, requirement

NODE_POOL_DRIFTED = "NodePoolDrifted"
REQUIREMENTS_DRIFTED = "RequirementsDrifted"
INSTANCE_TYPE_NOT_FOUND = "InstanceTypeNotFound"

# A provider's catalogue settles after a launch; younger claims are not measured against it.
INSTANCE_TYPE_CHECK_AGE_S = 3600.0
_HASH_KEYS = (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION)


def template_drift(claim: NodeClaim, pool: NodePool) -> str:
    """`NodePoolDrifted` when both sides know hashes of the same version and they differ."""
    ours, theirs = claim.metadata.annotations, pool.metadata.annotations
    if any(key not in side for side in (ours, theirs) for key in _HASH_KEYS):
        return ""
    if ours[labels.NODEPOOL_HASH_VERSION] != theirs[labels.NODEPOOL_HASH_VERSION]:
        return ""
    return "" if ours[labels.NODEPOOL_HASH] == theirs[labels.NODEPOOL_HASH] else NODE_POOL_DRIFTED


def requirements_drift(claim: NodeClaim, pool: NodePool, rules: labels.LabelRules = labels.DEFAULT_RULES) -> str:
    """`RequirementsDrifted` when the claim's labels no longer meet the pool's requirements."""
    wanted = from_expressions(pool.spec.template.spec.requirements, rules)
    has = from_labels(claim.metadata.labels, rules)
    return "" if has.compatible(wanted) else REQUIREMENTS_DRIFTED


def is_old_enough_for_type_check(claim: NodeClaim, now: float) -> bool:
    created = parse_optional_timestamp(claim.metadata.creation_timestamp)
    return created is not None and now - created >= INSTANCE_TYPE_CHECK_AGE_S


def instance_type_drift(
    claim: NodeClaim,
    types: Sequence[InstanceType],
    rules: labels.LabelRules = labels.DEFAULT_RULES,
    reservation_id_label: str = "",
) -> str:
    """`InstanceTypeNotFound` when the pool cannot have this type, or this offering of it, any more.

    An empty list of types is a catalogue that could not be read, not a pool without machines (F45).
    """
    if not types:
        return ""
    found = by_name(types).get(claim.metadata.labels.get(labels.INSTANCE_TYPE, ""))
    if found is None:
        return INSTANCE_TYPE_NOT_FOUND
    wanted = _offering_labels(claim, rules, reservation_id_label)
    if any(wanted.compatible(offering.requirements, rules.well_known) for offering in found.offerings):
        return ""
    return INSTANCE_TYPE_NOT_FOUND


def _offering_labels(claim: NodeClaim, rules: labels.LabelRules, reservation_id_label: str) -> Requirements:
    """The claim's labels as an offering must meet them; a reservation that ended falls back to on-demand."""
    has = from_labels(claim.metadata.labels, rules)
    if claim.metadata.labels.get(labels.CAPACITY_TYPE) != labels.RESERVED:
        return has
    either = requirement(labels.CAPACITY_TYPE, "In", [labels.RESERVED, labels.ON_DEMAND], rules=rules)
    return has.without(labels.CAPACITY_TYPE, reservation_id_label).merged([either])
