"""How long a machine is left to settle after a pod event: its pool's consolidateAfter, for victims and destinations."""

from __future__ import annotations

from pykarpenter.api.duration import InvalidDuration, parse_nillable_duration
from pykarpenter.api.meta import find_condition
from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.core.snapshot import NodeView


def window_end(view: NodeView, pool: NodePool | None) -> float:
    """When the machine's consolidateAfter window ends, epoch seconds; 0 when it has none."""
    if pool is None or view.claim is None:
        return 0.0
    try:
        window = parse_nillable_duration(pool.spec.disruption.consolidate_after)
    except InvalidDuration:
        return 0.0
    if not window:
        return 0.0
    initialized = find_condition(view.claim.status.conditions, "Initialized")
    if initialized is None or initialized.status != "True":
        return 0.0
    reference = parse_optional_timestamp(view.claim.status.last_pod_event_time)
    if reference is None:
        reference = parse_optional_timestamp(initialized.last_transition_time)
    return 0.0 if reference is None else reference + window
