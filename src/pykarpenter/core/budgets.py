"""How many nodes of a pool may be disrupted now, for each reason, from the pool's budgets and its nodes.

Fails closed: one budget that cannot be read allows nothing, for any reason. Budgets bound how many nodes are out at
the same time, not how many in an hour.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pykarpenter.api import patterns
from pykarpenter.api.cron import InvalidSchedule, parse_schedule
from pykarpenter.api.duration import InvalidDuration, parse_duration
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import Budget, NodePool
from pykarpenter.core.snapshot import NodeView

# What "no limit" is written as, in metrics too.
UNLIMITED = 2147483647

UNDERUTILIZED, EMPTY, DRIFTED, UNHEALTHY = "Underutilized", "Empty", "Drifted", "Unhealthy"
REASONS = (UNDERUTILIZED, EMPTY, DRIFTED, UNHEALTHY)

_DEFAULT = (Budget(nodes="10%"),)


class InvalidBudget(ValueError):
    """A budget that cannot be read: the field, its value and what is wrong."""

    def __init__(self, path: str, value: object, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.value = value
        self.problem = problem


def budgets_of(pool: NodePool) -> tuple[Budget, ...]:
    """The pool's budgets: 10% when none are given; an explicit empty list sets no limit."""
    given = pool.spec.disruption.budgets
    return _DEFAULT if given is None else tuple(given)


def is_active(budget: Budget, now: float, path: str = "budget") -> bool:
    """Whether the budget applies at a time: a begin lies within the last `duration`. Raises InvalidBudget."""
    if budget.schedule is None and budget.duration is None:
        return True
    if budget.schedule is None or budget.duration is None:
        present = "schedule" if budget.schedule is not None else "duration"
        raise InvalidBudget(path, present, "schedule and duration go together; set both or neither")
    try:
        duration_s = parse_duration(budget.duration)
    except InvalidDuration as error:
        raise InvalidBudget(f"{path}.duration", budget.duration, str(error)) from None
    try:
        begin = parse_schedule(budget.schedule).next_after(now - duration_s)
    except InvalidSchedule as error:
        raise InvalidBudget(f"{path}.schedule", budget.schedule, str(error)) from None
    return begin is not None and begin <= now


def nodes_allowed(budget: Budget, total: int, path: str = "budget") -> int:
    """The budget's number, or its percentage of `total` rounded up. Raises InvalidBudget."""
    if not patterns.matches(patterns.BUDGET_NODES, budget.nodes):
        raise InvalidBudget(
            f"{path}.nodes", budget.nodes, f"{budget.nodes!r} is neither a number of nodes nor 0% to 100%"
        )
    if budget.nodes.endswith("%"):
        return -(-int(budget.nodes[:-1]) * total // 100)
    return min(int(budget.nodes), UNLIMITED)


def unreadable_budgets(pool: NodePool, now: float = 0.0) -> list[InvalidBudget]:
    """Every budget that cannot be read, for the condition BudgetsParsed."""
    found: list[InvalidBudget] = []
    for index, budget in enumerate(budgets_of(pool)):
        path = f"spec.disruption.budgets[{index}]"
        try:
            nodes_allowed(budget, 0, path)
        except InvalidBudget as error:
            found.append(error)
        try:
            is_active(budget, now, path)
        except InvalidBudget as error:
            found.append(error)
    return found


def allowed_disruptions(pool: NodePool, total: int, now: float) -> dict[str, int]:
    """For each reason, how many of the pool's `total` nodes may be out at once; all zero if a budget is unreadable."""
    allowed = dict.fromkeys(REASONS, UNLIMITED)
    try:
        for budget in budgets_of(pool):
            active, count = is_active(budget, now), nodes_allowed(budget, total)
            for reason in budget.reasons or REASONS:
                if active and reason in allowed:
                    allowed[reason] = min(allowed[reason], count)
    except InvalidBudget:
        return dict.fromkeys(REASONS, 0)
    return allowed


@dataclass(frozen=True, slots=True)
class PoolNodes:
    """A pool's nodes as budgets count them."""

    total: int = 0
    # Marked for deletion or rebooting.
    leaving: int = 0
    # Not Ready, and not counted as leaving.
    not_ready: int = 0

    def consumed(self, reason: str) -> int:
        """Unhealthy nodes do not use up the budget that would repair them."""
        return self.leaving if reason == UNHEALTHY else self.leaving + self.not_ready


def count_nodes(nodes: Iterable[NodeView]) -> dict[str, PoolNodes]:
    """The counted nodes of each pool: managed, initialized or rebooting, and not terminating at the provider."""
    tallies: dict[str, list[int]] = {}
    for node in nodes:
        if not _counts(node):
            continue
        tally = tallies.setdefault(node.pool_name, [0, 0, 0])
        tally[0] += 1
        if node.marked_for_deletion or node.rebooting:
            tally[1] += 1
        elif not _is_ready(node):
            tally[2] += 1
    return {pool: PoolNodes(*tally) for pool, tally in tallies.items()}


def _counts(node: NodeView) -> bool:
    if not (node.managed and node.pool_name and (node.initialized or node.rebooting)):
        return False
    return node.claim is None or condition_status(node.claim.status.conditions, "InstanceTerminating") != "True"


def _is_ready(node: NodeView) -> bool:
    return node.node is not None and condition_status(node.node.status.conditions, "Ready") == "True"
