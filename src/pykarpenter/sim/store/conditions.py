"""Reading and setting conditions on raw objects."""

from __future__ import annotations

from pykarpenter.sim.store.entries import Json


def find_condition(obj: Json, condition_type: str) -> Json | None:
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == condition_type:
            return condition  # type: ignore[no-any-return]
    return None


def with_condition(obj: Json, condition: Json, timestamp: str) -> Json:
    """The object with a condition set; the transition time moves only when the status does."""
    status = obj.get("status") or {}
    before = find_condition(obj, condition["type"])
    same = before is not None and before.get("status") == condition["status"]
    since = before.get("lastTransitionTime", timestamp) if before is not None and same else timestamp
    condition = {**condition, "lastTransitionTime": since}
    found = list(status.get("conditions") or ())
    if before is None:
        found.append(condition)
    else:
        found[found.index(before)] = condition
    return {**obj, "status": {**status, "conditions": found}}
