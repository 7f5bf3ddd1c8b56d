"""What a NodePool's conditions should say: from the pool, its class, its claims and the provider's instance types.

`ValidationSucceeded` and `NodeClassReady` decide whether the pool may launch. `BudgetsParsed` and `InstanceTypesFound`
are our own, appear only while something is wrong, and never stop a launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pykarpenter.api import labels, patterns
from pykarpenter.api.labels import LabelRules
from pykarpenter.api.meta import find_condition
from pykarpenter.api.nodepool import NodeClaim, NodeClass, NodePool
from pykarpenter.api.validation import Problem, errors, validate_node_pool
from pykarpenter.core.budgets import unreadable_budgets
from pykarpenter.core.conditions import FALSE, TRUE, Finding, false, true
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.pool_supply import find_shortage, listed

VALIDATION_SUCCEEDED = "ValidationSucceeded"
NODE_CLASS_READY = "NodeClassReady"
BUDGETS_PARSED = "BudgetsParsed"
INSTANCE_TYPES_FOUND = "InstanceTypesFound"


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


def unknown_class_kind(pool: NodePool, known: Sequence[str]) -> Finding:
    """The pool's class is of the provider's group, but of a kind that it does not have: most likely a typing error."""
    ref = pool.spec.template.spec.node_class_ref
    text = f'{ref.group} has no kind "{ref.kind}"; make another NodePool whose nodeClassRef is a {", ".join(known)}'
    return false(NODE_CLASS_READY, "NodeClassNotFound", text)


def class_readiness(pool: NodePool, node_class: NodeClass | None, claims: Iterable[NodeClaim]) -> Finding:
    """Whether the pool's class can launch; `claims` are those that use the class."""
    ref = pool.spec.template.spec.node_class_ref
    named = f'{ref.kind} "{ref.name}"'
    if node_class is None:
        return false(NODE_CLASS_READY, "NodeClassNotFound", f"{named} does not exist; create it or change nodeClassRef")
    if node_class.is_deleting:
        waiting = listed(sorted(claim.name for claim in claims))
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


def instance_types(pool: NodePool, types: Sequence[InstanceType], rules: LabelRules) -> Finding | None:
    """A finding while no instance type can serve the pool, or too few for minValues; None when enough can."""
    found = find_shortage(pool, types, rules)
    return None if found is None else false(INSTANCE_TYPES_FOUND, found.reason, found.text())


def zero_usage() -> dict[str, int]:
    """What a pool without nodes uses, so that every column of its status has a number."""
    return dict.fromkeys((*labels.WELL_KNOWN_RESOURCES, "nodes"), 0)
