"""What a CapacityBuffer's conditions say: whether its pods are known, and whether room for them stands ready."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pykarpenter.api.meta import Condition, ObjectMeta, find_condition
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.core.conditions import Finding

READY_FOR_PROVISIONING = "ReadyForProvisioning"
PROVISIONING = "Provisioning"


def provisioning_finding(ready: bool, keys: Sequence[str], placed: Iterable[str]) -> Finding:
    """Whether the buffer's capacity stands ready on machines that exist."""
    if not ready:
        return Finding(PROVISIONING, "False", "NotReadyForProvisioning", "the buffer's pods cannot be resolved")
    if not keys:
        return Finding(PROVISIONING, "False", "BufferEmpty", "the buffer asks for no pods")
    there = set(placed)
    missing = [key for key in keys if key not in there]
    if missing:
        text = f"{len(missing)} of {len(keys)} pod(s) need capacity that is not there yet"
        return Finding(PROVISIONING, "False", "RequiresNewCapacity", text)
    return Finding(PROVISIONING, "True", "FitsExistingCapacity", f"all {len(keys)} pod(s) fit on existing nodes")


def with_findings(
    present: Sequence[Condition], meta: ObjectMeta, now: float, findings: Iterable[Finding]
) -> list[Condition]:
    """The conditions after the findings; a buffer has no Ready that follows from others."""
    result = {condition.type: condition for condition in present}
    for finding in findings:
        before = find_condition(list(present), finding.type)
        kept = before is not None and before.status == finding.status
        result[finding.type] = Condition(
            type=finding.type,
            status=finding.status,
            reason=finding.reason,
            message=finding.message,
            last_transition_time=before.last_transition_time if kept and before else format_timestamp(now),
            observed_generation=meta.generation,
        )
    return list(result.values())
