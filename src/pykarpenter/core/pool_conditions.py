"""What a NodePool's conditions should say: from the pool, its class, its claims and the provider's instance types.

`ValidationSucceeded` and `NodeClassReady` decide whether the pool may launch. `BudgetsParsed` and `InstanceTypesFound`
are our own, appear only while something is wrong, and never stop a launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pykarpenter.api import labels, patterns
from pykarpenter.api.labels import LabelRules
from pykarpenter.api.meta import find_condition
from pykarpenter.api.nodepool import NodeClaim, NodeClass, NodePool
from pykarpenter.api.validation import Problem, errors, validate_node_pool
from pykarpenter.core.budgets import unreadable_budgets
from pykarpenter.core.conditions import FALSE, TRUE, Finding, false, true
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.requirements import Requirement, Requirements, from_expressions, from_labels

VALIDATION_SUCCEEDED = "ValidationSucceeded"
NODE_CLASS_READY = "NodeClassReady"
REGISTRATION_HEALTHY = "NodeRegistrationHealthy"
BUDGETS_PARSED = "BudgetsParsed"
INSTANCE_TYPES_FOUND = "InstanceTypesFound"

# Lists in messages end here; a condition is no report.
_SHOWN = 5


def validation(pool: NodePool, rules: LabelRules) -> tuple[Finding, list[Problem]]:
    """Whether the pool's template can be used, and everything that was found, warnings included."""
    problems = validate_node_pool(pool, rules)
    wrong = errors(problems)
    if wrong:
        text = "; ".join(problem.text() for problem in wrong)
        return false(VALIDATION_SUCCEEDED, "NodePoolValidationFailed", text), problems
    return true(VALIDATION_SUCCEEDED), problems


def budgets(pool: NodePool) -> Finding | None:
    """A finding while a budget cannot be read, which stops voluntary disruption of the pool; None when all can."""
    wrong = unreadable_budgets(pool)
    if not wrong:
        return None
    text = "; ".join(str(problem) for problem in wrong)
    return false(BUDGETS_PARSED, "InvalidBudgets", f"no node is disrupted voluntarily until this is corrected: {text}")


def class_readiness(pool: NodePool, node_class: NodeClass | None, claims: Iterable[NodeClaim]) -> Finding:
    """Whether the pool's class can launch; `claims` are those that use the class."""
    ref = pool.spec.template.spec.node_class_ref
    named = f'{ref.kind} "{ref.name}"'
    if node_class is None:
        return false(NODE_CLASS_READY, "NodeClassNotFound", f"{named} does not exist; create it or change nodeClassRef")
    if node_class.is_deleting:
        waiting = _listed(sorted(claim.name for claim in claims))
        return false(
            NODE_CLASS_READY, "NodeClassTerminating", f"{named} is being deleted and waits for NodeClaims: {waiting}"
        )
    ready = find_condition(node_class.status.conditions, "Ready")
    if ready is not None and ready.status == TRUE:
        return true(NODE_CLASS_READY)
    if ready is not None and ready.status == FALSE:
        reason = ready.reason if patterns.matches(patterns.CONDITION_REASON, ready.reason) else "NodeClassNotReady"
        return false(NODE_CLASS_READY, reason, ready.message)
    return false(NODE_CLASS_READY, "NodeClassReadinessUnknown", f"{named} does not say yet whether it is ready")


@dataclass(frozen=True, slots=True)
class _Step:
    """One requirement of the template, where it stands and what it says."""

    path: str
    text: str
    requirement: Requirement


def instance_types(pool: NodePool, types: Sequence[InstanceType], rules: LabelRules) -> Finding | None:
    """A finding while no instance type can serve the pool, or too few for minValues; None when enough can.

    Shortages do not count: an offering that is unavailable for now is still an offering.
    """
    if not types:
        return false(INSTANCE_TYPES_FOUND, "NoInstanceTypes", "the provider offers no instance types for this pool")
    left = list(types)
    combined = Requirements()
    for step in _steps(pool, rules):
        combined = combined.merged([step.requirement])
        kept = [item for item in left if _serves(item, combined, rules)]
        if not kept:
            return false(INSTANCE_TYPES_FOUND, "NoCompatibleInstanceTypes", _emptied(step, left))
        left = kept
    return _min_values(combined, left)


def _steps(pool: NodePool, rules: LabelRules) -> list[_Step]:
    template = pool.spec.template
    steps = [
        _Step(f"spec.template.metadata.labels.{key}", f"{key}={value}", from_labels({key: value}, rules)[key])
        for key, value in sorted(template.metadata.labels.items())
        if rules.normalise(key) == key
    ]
    for index, item in enumerate(template.spec.requirements):
        values = f" [{', '.join(item.values)}]" if item.values else ""
        (requirement,) = from_expressions([item], rules).values()
        steps.append(
            _Step(f"spec.template.spec.requirements[{index}]", f"{item.key} {item.operator}{values}", requirement)
        )
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
    known = f"; they have {_listed(sorted(values))}" if values else f"; none of them has the label {key}"
    return (
        f"{step.path}: {step.text} leaves none of the {len(left)} instance types that the requirements before it "
        f"allow{known}"
    )


def _min_values(wanted: Requirements, types: Sequence[InstanceType]) -> Finding | None:
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
            return false(
                INSTANCE_TYPES_FOUND,
                "MinValuesNotMet",
                f"minValues asks for {item.min_values} values of {item.key}, the instance types offer "
                f"{len(values)}: {_listed(sorted(values))}; lower minValues or allow more",
            )
    return None


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN]) or "none"
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def zero_usage() -> dict[str, int]:
    """What a pool without nodes uses, so that every column of its status has a number."""
    return dict.fromkeys((*labels.WELL_KNOWN_RESOURCES, "nodes"), 0)
