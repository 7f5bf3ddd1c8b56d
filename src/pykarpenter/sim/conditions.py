"""Conditions in merge patches: such a patch replaces the whole list, so others' conditions must be carried along."""

from __future__ import annotations

from collections.abc import Iterable

from pykarpenter.api.meta import Condition
from pykarpenter.kube.contract import Json


def with_conditions(present: Iterable[Condition], *changed: Json) -> list[Json]:
    """The list with the changed ones replaced or added; those not changed keep all that is known of them."""
    types = {condition["type"] for condition in changed}
    return [*(_body(condition) for condition in present if condition.type not in types), *changed]


def _body(condition: Condition) -> Json:
    body: Json = {"type": condition.type, "status": condition.status}
    if condition.last_transition_time:
        body["lastTransitionTime"] = condition.last_transition_time
    if condition.reason:
        body["reason"] = condition.reason
    if condition.message:
        body["message"] = condition.message
    if condition.observed_generation is not None:
        body["observedGeneration"] = condition.observed_generation
    return body
