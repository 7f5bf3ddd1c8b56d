"""One pass of disruption: the methods in their order, stopping at the first with something to do.

A method that fails is reported and passed over; it never keeps the others from running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pykarpenter.core.disruption import best_sets, drift, emptiness, multi_node, repairs, single_node, static_pools
from pykarpenter.core.disruption.allowance import pool_allowance, pool_nodes
from pykarpenter.core.disruption.blockers import Notice
from pykarpenter.core.disruption.candidates import World
from pykarpenter.core.disruption.commands import DisruptionPlan, Method, MethodRun, Reason
from pykarpenter.core.disruption.settings import (
    MULTI_NODE_LIMIT_S,
    SETS_LIMIT_S,
    SINGLE_NODE_LIMIT_S,
    StopFactory,
    no_deadline,
)
from pykarpenter.core.disruption.simulation import Simulation, SimulationError

METHOD_REASONS: Mapping[Method, Reason] = {
    Method.REPAIR: Reason.UNHEALTHY,
    Method.EMPTINESS: Reason.EMPTY,
    Method.STATIC_DRIFT: Reason.DRIFTED,
    Method.DRIFT: Reason.DRIFTED,
    Method.MULTI_NODE: Reason.UNDERUTILIZED,
    Method.SINGLE_NODE: Reason.UNDERUTILIZED,
}
# Methods that do nothing while the cluster has not changed since they last found nothing.
_MEMOISED = (Method.MULTI_NODE, Method.SINGLE_NODE)


def decide(
    world: World,
    simulation: Simulation,
    stamp: float = 0.0,
    methods: Sequence[Method] = tuple(Method),
    deadlines: StopFactory = no_deadline,
    timer: Callable[[], float] = lambda: 0.0,
) -> DisruptionPlan:
    """What to do now; `stamp` is the change stamp of the state the snapshot was made of, `timer` is for `seconds`."""
    runs: list[MethodRun] = []
    seen: set[Notice] = set()
    for method in methods:
        if method is Method.REPAIR and not world.settings.node_repair:
            continue
        if method in _MEMOISED and world.memory.nothing_at.get(method) == stamp:
            continue
        began = timer()
        run = run_method(world, simulation, method, deadlines)
        run = replace(run, seconds=timer() - began)
        runs.append(_without_repeats(run, seen))
        if run.commands:
            break
    plan = DisruptionPlan(tuple(runs), allowances(world))
    if not world.settings.best_sets or any(method not in methods for method in _MEMOISED):
        return plan
    return _with_best_set(world, simulation, plan, stamp, seen, deadlines, timer)


def _with_best_set(
    world: World,
    simulation: Simulation,
    plan: DisruptionPlan,
    stamp: float,
    seen: set[Notice],
    deadlines: StopFactory,
    timer: Callable[[], float],
) -> DisruptionPlan:
    """The plan with a better consolidation than Karpenter's search found, unless something else comes first."""
    last = plan.runs[-1] if plan.runs else None
    first = last.commands[0] if last is not None and last.commands else None
    asked = (stamp, best_sets.budgets(world))
    if (first is not None and first.method not in _MEMOISED) or world.memory.nothing_better_at == asked:
        return plan
    began = timer()
    try:
        found = best_sets.search(world, simulation, first, deadlines(SETS_LIMIT_S))
    except SimulationError:
        return plan
    runs = list(plan.runs)
    if found.command is None and found.first_would_stray and last is not None:
        runs[-1] = replace(last, commands=(), settled=True)
        return replace(plan, runs=tuple(runs))
    if found.command is None:
        return replace(plan, nothing_better_at=asked)
    if first is not None and last is not None:
        runs[-1] = replace(last, commands=())
    runs.append(_without_repeats(replace(found.as_run(), seconds=timer() - began), seen))
    return replace(plan, runs=tuple(runs))


def _without_repeats(run: MethodRun, seen: set[Notice]) -> MethodRun:
    """A machine that every method refuses for the same reason is told so once in a pass."""
    fresh = [notice for notice in dict.fromkeys(run.notices) if notice not in seen]
    seen.update(fresh)
    return replace(run, notices=tuple(fresh))


def run_method(world: World, simulation: Simulation, method: Method, deadlines: StopFactory = no_deadline) -> MethodRun:
    steps: dict[Method, Callable[[], MethodRun]] = {
        Method.REPAIR: lambda: repairs.run(world, simulation),
        Method.EMPTINESS: lambda: emptiness.run(world),
        Method.STATIC_DRIFT: lambda: static_pools.run(world),
        Method.DRIFT: lambda: drift.run(world, simulation),
        Method.MULTI_NODE: lambda: multi_node.run(world, simulation, deadlines(MULTI_NODE_LIMIT_S)),
        Method.SINGLE_NODE: lambda: single_node.run(world, simulation, deadlines(SINGLE_NODE_LIMIT_S)),
    }
    try:
        return steps[method]()
    except SimulationError as error:
        return MethodRun(method, METHOD_REASONS[method], error=str(error))


def allowances(world: World) -> dict[tuple[str, Reason], tuple[int, int]]:
    """Allowed (before subtracting) and consuming machines of every pool and reason, for the gauges."""
    found: dict[tuple[str, Reason], tuple[int, int]] = {}
    counted = pool_nodes(world)
    for name, pool in sorted(world.pools.items()):
        for reason in Reason:
            numbers = pool_allowance(world, pool, reason, counted)
            found[name, reason] = (numbers.allowed, numbers.consumed)
    return found
