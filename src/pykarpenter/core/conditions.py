"""How status conditions change: pure functions from the conditions an object has to the ones it should have.

The result is a whole list, meant for a merge patch, which replaces the list; the caller adds the resourceVersion
that the old list was read at. `Ready` is never set by hand: it follows from the conditions it depends on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pykarpenter.api.meta import Condition, ObjectMeta, find_condition
from pykarpenter.api.timestamps import format_timestamp, parse_timestamp

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
READY = "Ready"

_MESSAGE_MAX = 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition as a controller sees it now; times and generations are filled in when it is applied."""

    type: str
    status: str
    reason: str
    message: str = ""


def true(condition_type: str, reason: str = "", message: str = "") -> Finding:
    """A plain True says nothing more than its type."""
    return Finding(condition_type, TRUE, reason or condition_type, shorten(message))


def false(condition_type: str, reason: str, message: str) -> Finding:
    return Finding(condition_type, FALSE, reason, shorten(message))


def unknown(condition_type: str, reason: str, message: str) -> Finding:
    return Finding(condition_type, UNKNOWN, reason, shorten(message))


def shorten(text: str) -> str:
    """Texts of conditions and events end after 1024 characters."""
    return text if len(text) <= _MESSAGE_MAX else text[: _MESSAGE_MAX - 3] + "..."


@dataclass(frozen=True, slots=True)
class ConditionSet:
    """The conditions that `Ready` depends on for one kind; every other condition stands alone."""

    dependents: tuple[str, ...]

    def apply(
        self,
        conditions: Sequence[Condition],
        meta: ObjectMeta,
        now: float,
        *findings: Finding,
        clear: Iterable[str] = (),
    ) -> list[Condition]:
        """The conditions after the findings took effect and the `clear`ed ones are gone.

        Equal to the given list when nothing changed, so that the caller can leave the write out.
        """
        before = list(conditions)
        current = {condition.type: condition for condition in before}
        gone = [name for name in clear if name in current]
        for name in gone:
            del current[name]
        self._materialise(current, meta)
        for finding in findings:
            current[finding.type] = _updated(current.get(finding.type), finding, meta, now)
        root = self._root(current, meta)
        current[READY] = _updated(current[READY], root, meta, now)
        if meta.deletion_timestamp is not None:
            for name, condition in current.items():
                current[name] = msgspec.structs.replace(condition, observed_generation=meta.generation)
        if current == {condition.type: condition for condition in before}:
            return before
        return _ordered(current.values(), alphabetical=bool(gone))

    def _materialise(self, current: dict[str, Condition], meta: ObjectMeta) -> None:
        """Conditions that must exist start as Unknown since the object's creation."""
        for name in (READY, *self.dependents):
            if name not in current:
                current[name] = Condition(
                    type=name,
                    status=UNKNOWN,
                    reason="AwaitingReconciliation",
                    message="object is awaiting reconciliation",
                    last_transition_time=meta.creation_timestamp,
                    observed_generation=meta.generation,
                )

    def _root(self, current: dict[str, Condition], meta: ObjectMeta) -> Finding:
        unhealthy = [
            condition
            for condition in (current[name] for name in self.dependents)
            if condition.status != TRUE or condition.observed_generation != meta.generation
        ]
        if not unhealthy:
            return true(READY)
        # Newest transition first; equal times keep the declared order.
        unhealthy.sort(key=_transition_time, reverse=True)
        message = ", ".join(f"{condition.type}={condition.status}" for condition in unhealthy)
        if any(item.status == FALSE and item.observed_generation == meta.generation for item in unhealthy):
            return false(READY, "UnhealthyDependents", message)
        return unknown(READY, "ReconcilingDependents", message)


NODE_POOL = ConditionSet(("ValidationSucceeded", "NodeClassReady"))
NODE_CLAIM = ConditionSet(("Launched", "Registered", "Initialized"))
NODE_OVERLAY = ConditionSet(("ValidationSucceeded",))


@dataclass(frozen=True, slots=True)
class Transition:
    """A condition whose status is new; `previous` is None at its first appearance, which is worth no event."""

    condition: Condition
    previous: Condition | None


def transitions(before: Sequence[Condition], after: Sequence[Condition]) -> list[Transition]:
    """Status changes and first appearances; a new reason or message alone is neither."""
    found = [Transition(condition, find_condition(list(before), condition.type)) for condition in after]
    return [item for item in found if item.previous is None or item.previous.status != item.condition.status]


def to_wire(conditions: Iterable[Condition]) -> list[dict[str, Any]]:
    """All required fields written out: an omitted empty message would be refused."""
    return [
        {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": condition.last_transition_time,
            **({} if condition.observed_generation is None else {"observedGeneration": condition.observed_generation}),
        }
        for condition in conditions
    ]


def _updated(present: Condition | None, finding: Finding, meta: ObjectMeta, now: float) -> Condition:
    unchanged = present is not None and present.status == finding.status
    since = present.last_transition_time if present is not None and unchanged else format_timestamp(now)
    return Condition(
        type=finding.type,
        status=finding.status,
        reason=finding.reason,
        message=finding.message,
        last_transition_time=since,
        observed_generation=meta.generation,
    )


def _transition_time(condition: Condition) -> float:
    return parse_timestamp(condition.last_transition_time) if condition.last_transition_time else 0.0


def _ordered(conditions: Iterable[Condition], alphabetical: bool) -> list[Condition]:
    if alphabetical:
        return sorted(conditions, key=lambda condition: condition.type)
    return sorted(conditions, key=lambda item: (item.type == READY, _transition_time(item), item.type))
