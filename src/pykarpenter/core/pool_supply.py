"""Which instance types can serve a NodePool at all, and what leaves none: for conditions and for `validate`.

Shortages of the moment do not count: an offering that is unavailable for now is still an offering.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pykarpenter.api.labels import LabelRules
from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.quantity import available, format_units
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.requirements import Requirement, Requirements, from_expressions, from_labels

# Lists in messages end here; a condition is no report.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a pool has no type, or not enough: the field, its value, and what would have been there."""

    reason: str
    path: str
    value: object
    message: str

    def text(self) -> str:
        said = f"{self.value} " if isinstance(self.value, str) else ""
        return f"{self.path}: {said}{self.message}"


@dataclass(frozen=True, slots=True)
class _Step:
    """One requirement of the template, where it stands and what it says."""

    path: str
    text: str
    requirement: Requirement


def find_shortage(pool: NodePool, types: Sequence[InstanceType], rules: LabelRules) -> Shortage | None:
    """What keeps the pool from launching anything, whatever the pods; None when it can launch."""
    if not types:
        path = "spec.template.spec.nodeClassRef"
        return Shortage("NoInstanceTypes", path, None, "the provider offers no instance types for this class")
    left = list(types)
    combined = Requirements()
    for step in _steps(pool, rules):
        combined = combined.merged([step.requirement])
        kept = [item for item in left if _serves(item, combined, rules)]
        if not kept:
            return Shortage("NoCompatibleInstanceTypes", step.path, step.text, _emptied(step, left))
        left = kept
    return _min_values(pool, combined, left)


def find_lack_of_headroom(pool: NodePool, types: Sequence[InstanceType], rules: LabelRules) -> Shortage | None:
    """The limit under which not even the smallest type fits; None when one does, or none would fit anyway."""
    limits = {name: amount for name, amount in available(pool.spec.limits).items() if name != "nodes"}
    combined = Requirements(step.requirement for step in _steps(pool, rules))
    usable = [item for item in types if _serves(item, combined, rules)]
    if not usable or not limits:
        return None
    if any(all(item.capacity.get(name, 0) <= limit for name, limit in limits.items()) for item in usable):
        return None
    for name in sorted(limits):
        smallest = min(usable, key=lambda item: (item.capacity.get(name, 0), item.name))
        amount = smallest.capacity.get(name, 0)
        if amount > limits[name]:
            message = (
                f"leaves no room for one node: the smallest type, {smallest.name}, has {format_units(name, amount)}"
            )
            return Shortage("NoHeadroom", f"spec.limits.{name}", pool.spec.limits[name], f"{message}; raise the limit")
    names = ", ".join(sorted(limits))
    value = dict(sorted(pool.spec.limits.items()))
    return Shortage(
        "NoHeadroom", "spec.limits", value, f"no single type fits within all of {names}; raise one of the limits"
    )


def _steps(pool: NodePool, rules: LabelRules) -> list[_Step]:
    template = pool.spec.template
    steps = []
    for key, value in sorted(template.metadata.labels.items()):
        (requirement,) = from_labels({key: value}, rules).values()
        steps.append(_Step(f"spec.template.metadata.labels.{key}", f"{key}={value}", requirement))
    for index, item in enumerate(template.spec.requirements):
        values = f" [{', '.join(item.values)}]" if item.values else ""
        (requirement,) = from_expressions([item], rules).values()
        text = f"{item.key} {item.operator}{values}"
        steps.append(_Step(f"spec.template.spec.requirements[{index}]", text, requirement))
    return steps


def _serves(item: InstanceType, wanted: Requirements, rules: LabelRules) -> bool:
    if not item.requirements.intersects(wanted):
        return False
    return any(wanted.compatible(offering.requirements, rules.well_known) for offering in item.offerings)


def _emptied(step: _Step, left: Sequence[InstanceType]) -> str:
    key = step.requirement.key
    values = {
        value
        for item in left
        for found in (item.requirements, *(offering.requirements for offering in item.offerings))
        if key in found
        for value in found[key].values
    }
    known = f"; they have {listed(sorted(values))}" if values else f"; none of them has the label {key}"
    return f"leaves none of the {len(left)} instance types that the requirements before it allow{known}"


def _min_values(pool: NodePool, wanted: Requirements, types: Sequence[InstanceType]) -> Shortage | None:
    for item in wanted.items_sorted():
        if item.min_values is None:
            continue
        values = {
            value
            for found in types
            if item.key in found.requirements
            for value in found.requirements[item.key].values
            if item.allows(value)
        }
        if len(values) < item.min_values:
            return Shortage(
                "MinValuesNotMet",
                _path_of_min_values(pool, item),
                item.min_values,
                f"minValues asks for {item.min_values} values of {item.key}, the instance types offer "
                f"{len(values)}: {listed(sorted(values))}; lower minValues or allow more",
            )
    return None


def _path_of_min_values(pool: NodePool, wanted: Requirement) -> str:
    for index, item in enumerate(pool.spec.template.spec.requirements):
        if item.min_values == wanted.min_values and item.key == wanted.key:
            return f"spec.template.spec.requirements[{index}].minValues"
    return "spec.template.spec.requirements"


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more."""
    shown = ", ".join(names[:_SHOWN]) or "none"
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
