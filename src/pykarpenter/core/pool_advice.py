"""What a NodePool says that can hardly be meant: for `pykarpenter validate`, before anything runs.

Everything here is legal. Errors cannot be intended; warnings describe pools that were switched off on purpose, or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pykarpenter.api.cron import Schedule, parse_schedule
from pykarpenter.api.duration import NEVER, InvalidDuration, parse_duration
from pykarpenter.api.labels import LabelRules
from pykarpenter.api.nodepool import Budget, NodePool
from pykarpenter.api.quantity import available
from pykarpenter.api.validation import WARNING, Problem
from pykarpenter.core.budgets import REASONS, budgets_of, is_active, nodes_allowed, unreadable_budgets
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.pool_supply import find_lack_of_headroom, find_shortage

_DAY_S = 86400.0
# A search that takes longer than this gives the pool the benefit of the doubt.
_MAX_STEPS = 5000
# How far back to look for the latest begin of a window, finest first.
_LOOK_BACK_S = (60.0, 3600.0, _DAY_S)


def budget_advice(pool: NodePool, now: float) -> Iterator[Problem]:
    """Budgets that cannot be read, that never apply, and reasons that no moment ever allows."""
    unreadable = unreadable_budgets(pool, now)
    yield from (Problem(found.path, found.value, found.problem) for found in unreadable)
    if unreadable:
        return
    budgets = budgets_of(pool)
    for index, budget in enumerate(budgets):
        schedule = _schedule(budget)
        if schedule is not None and schedule.next_after(now) is None:
            path = f"spec.disruption.budgets[{index}].schedule"
            yield Problem(path, budget.schedule, "names a day that never comes, so the budget never applies")
    closed: dict[str, list[int]] = {}
    for reason in REASONS:
        indexes = [
            index
            for index, budget in enumerate(budgets)
            if nodes_allowed(budget, 100) == 0 and (not budget.reasons or reason in budget.reasons)
        ]
        if indexes and not _ever_open([budgets[index] for index in indexes], now):
            closed[reason] = indexes
    if closed:
        yield _closed_problem(closed, budgets)


def _closed_problem(closed: dict[str, list[int]], budgets: Sequence[Budget]) -> Problem:
    used = sorted({index for indexes in closed.values() for index in indexes})
    forever = [index for index in used if budgets[index].schedule is None]
    path = f"spec.disruption.budgets[{(forever or used)[0]}]"
    reasons = "any reason" if len(closed) == len(REASONS) else ", ".join(sorted(closed))
    if forever:
        message = f"allows no disruption for {reasons} at any time, drift included; raise nodes or add a schedule"
        return Problem(f"{path}.nodes", budgets[forever[0]].nodes, message, WARNING)
    budget = budgets[used[0]]
    message = (
        f"the windows in which no node may be disrupted for {reasons} follow each other without a gap; "
        "shorten duration or write nodes without a schedule"
    )
    return Problem(f"{path}.duration", budget.duration, message)


def _schedule(budget: Budget) -> Schedule | None:
    return parse_schedule(budget.schedule) if budget.schedule is not None else None


def _ever_open(budgets: Sequence[Budget], now: float) -> bool:
    """Whether some moment lies in no window of the budgets: jumps from the end of one window to the next."""
    moment, horizon = now, now + max((_period_s(budget) for budget in budgets), default=0.0)
    for _ in range(_MAX_STEPS):
        if moment > horizon:
            return False
        active = [budget for budget in budgets if is_active(budget, moment)]
        if not active:
            return True
        if any(budget.schedule is None for budget in active):
            return False
        moment = max(_window_end(budget, moment) for budget in active)
    return True


def _period_s(budget: Budget) -> float:
    """After how long a schedule has shown every gap it has: days, weeks or more than a year."""
    schedule = _schedule(budget)
    if schedule is None:
        return 0.0
    if len(schedule.months) < 12 or len(schedule.days) < 31:
        return 400 * _DAY_S
    return (15 if len(schedule.weekdays) < 7 else 2) * _DAY_S + parse_duration(budget.duration or "0s")


def _window_end(budget: Budget, moment: float) -> float:
    """When a window that is open now ends, counted from its latest begin."""
    schedule, length = parse_schedule(budget.schedule or ""), parse_duration(budget.duration or "")
    for back in (*(back for back in _LOOK_BACK_S if back < length), length):
        begin = schedule.next_after(moment - back)
        if begin is not None and begin <= moment:
            return begin + length
    return moment + length


def lifetime_advice(pool: NodePool) -> Iterator[Problem]:
    """A node that may be drained for longer than it lives."""
    spec = pool.spec.template.spec
    if spec.expire_after in (None, NEVER) or spec.termination_grace_period is None:
        return
    try:
        expiry, grace = parse_duration(spec.expire_after or ""), parse_duration(spec.termination_grace_period)
    except InvalidDuration:
        return
    if expiry < grace:
        yield Problem(
            "spec.template.spec.expireAfter",
            spec.expire_after,
            f"is shorter than terminationGracePeriod {spec.termination_grace_period}, so a node may drain for longer "
            "than it lives; swap or correct the two",
        )


def limit_advice(pool: NodePool) -> Iterator[Problem]:
    """Limits that close the pool, or that its replicas cannot keep."""
    try:
        limits = available(pool.spec.limits)
    except ValueError:
        return
    for name in sorted(limits):
        if limits[name] == 0:
            message = "lets the pool launch nothing; remove the limit or the pool if that is not meant"
            yield Problem(f"spec.limits.{name}", pool.spec.limits[name], message, WARNING)
    nodes, replicas = limits.get("nodes"), pool.spec.replicas
    if nodes is not None and replicas is not None and 0 < nodes < replicas:
        yield Problem("spec.replicas", replicas, f"is more than limits.nodes {nodes} allows; raise the limit")


def supply_advice(pool: NodePool, types: Sequence[InstanceType], rules: LabelRules) -> Iterator[Problem]:
    """Requirements that no type of the catalogue meets, and limits under which none fits."""
    shortage = find_shortage(pool, types, rules)
    if shortage is None and all(amount > 0 for amount in available(pool.spec.limits).values()):
        shortage = find_lack_of_headroom(pool, types, rules)
    if shortage is not None:
        yield Problem(shortage.path, shortage.value, shortage.message)
