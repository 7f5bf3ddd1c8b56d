"""Whether a machine has been quiet for long enough to be consolidated."""

from __future__ import annotations

from dataclasses import dataclass

from pykarpenter.api.duration import parse_nillable_duration
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.core.lifecycle import CONSOLIDATABLE, INITIALIZED, condition_since


@dataclass(frozen=True, slots=True)
class Quiet:
    """Whether the claim may be consolidated, and after how many seconds that changes by itself."""

    consolidatable: bool
    check_after_s: float | None = None


def quiet(claim: NodeClaim, pool: NodePool, now: float) -> Quiet:
    """Quiet since its last pod event, or since it was initialized, for the pool's `consolidateAfter`.

    Raises InvalidDuration for a `consolidateAfter` that is none.
    """
    after = parse_nillable_duration(pool.spec.disruption.consolidate_after)
    if after is None or condition_status(claim.status.conditions, INITIALIZED) != "True":
        return Quiet(False)
    since = parse_optional_timestamp(claim.status.last_pod_event_time) or condition_since(claim, INITIALIZED)
    if since is None:
        return Quiet(False)
    left = since + after - now
    return Quiet(True) if left <= 0 else Quiet(False, left)


def is_consolidatable(claim: NodeClaim) -> bool:
    return condition_status(claim.status.conditions, CONSOLIDATABLE) == "True"
