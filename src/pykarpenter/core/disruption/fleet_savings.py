"""The savings of a whole fleet: what to give up for what, how many pods move for it, and how far the optimum is.

Karpenter's search answers first, then the fleet planner proposes sets of machines. Nothing is shown that the full
simulation did not accept, alone and together with everything accepted before it; prices are those of the simulated
claims, never the planner's own. Decides only; acting is for others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pykarpenter.core.cover.problem import Ints
from pykarpenter.core.disruption import multi_node, single_node
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.calm import HORIZON_S
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.disruption.commands import Command, DisruptionClass, Method
from pykarpenter.core.disruption.consolidation import price_of, propose, without_same_type
from pykarpenter.core.disruption.selection import consolidation_blocker, emptiness_blocker
from pykarpenter.core.disruption.simulation import Simulation, simulate
from pykarpenter.core.fleet.problem import FleetPlan, FleetProblem
from pykarpenter.core.fleet.search import Front, Trials
from pykarpenter.core.packing.fleet_view import FleetView, Movable, fleet_view
from pykarpenter.core.packing.lower_bound import HAS_SOLVER
from pykarpenter.core.packing.what_if import WhatIfBase
from pykarpenter.core.plans import PlannedClaim

TRIALS = Trials(per_price=60, rounds=2)
# Machines looked at one by one beside the planner's sets, and points of the front whose sets are tried.
_MOST_SINGLES = 500
_POINTS = 4


@dataclass(frozen=True, slots=True)
class Saving:
    """One command: these machines go, those come; what it saves beside the commands before it."""

    removed: tuple[str, ...]
    replacements: tuple[PlannedClaim, ...]
    displaced: int
    saving: float

    def pay_back_hours(self, eviction_price: float) -> float:
        """Hours until the saving has covered the evictions, each worth its price over the horizon."""
        return self.displaced * eviction_price * (HORIZON_S / 3600) / self.saving if self.saving > 0 else math.inf


@dataclass(frozen=True, slots=True)
class FleetSavings:
    """The answer: commands in their order, the bill before and after, the bound, and the trade as a curve."""

    commands: tuple[Saving, ...]
    price_now: float
    lower_bound: float
    # What Karpenter's search would do next, for comparison.
    compatible: Command | None
    # (displaced pods, $/h) that the planner believes reachable; only the commands are verified.
    curve: tuple[tuple[float, float], ...]
    machines: int
    movable: int

    @property
    def price_after(self) -> float:
        return self.price_now - math.fsum(command.saving for command in self.commands)

    @property
    def displaced(self) -> int:
        return sum(command.displaced for command in self.commands)

    @property
    def gap(self) -> float:
        """How far today's bill is above the bound, as a share of it."""
        return self.price_now / self.lower_bound - 1 if self.lower_bound > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a user wants of the savings: what a displaced pod weighs in $/h, and how many replacements are fine."""

    eviction_price: float
    many_replacements: bool = False
    trials: Trials = TRIALS


def fleet_savings(
    world: World, simulation: Simulation, base: WhatIfBase, wishes: Wishes, should_stop: Callable[[], bool]
) -> FleetSavings:
    """Find and verify; with a stop the best so far is the answer."""
    candidates = removable(world)
    prices = [world.price(view) for view in world.nodes if view.managed]
    price_now = math.fsum(price for price in prices if price is not None)
    compatible = _compatible(world, simulation, should_stop)
    by_name = {candidate.name: candidate for candidate in candidates}
    sets: list[tuple[str, ...]] = []
    if compatible is not None:
        sets.append(compatible.nodes)
    bound = 0.0
    curve: tuple[tuple[float, float], ...] = ((0.0, price_now),)
    fixed = price_now - math.fsum(c.price or 0.0 for c in candidates)
    planned = _planned(world, base, candidates, wishes, should_stop) if HAS_SOLVER and candidates else None
    if planned is not None:
        view, front, bound = planned
        curve = tuple((plan.displaced, fixed + plan.price_per_hour) for plan in front.plans())
        sets.extend(_sets_of(view, front, wishes))
    sets.extend((candidate.name,) for candidate in candidates[:_MOST_SINGLES])
    picked = _Verified(world, simulation, by_name, wishes)
    commands = picked.choose(list(dict.fromkeys(sets)), should_stop)
    return FleetSavings(commands, price_now, fixed + bound, compatible, curve, len(prices), len(candidates))


def removable(world: World) -> list[Candidate]:
    """Machines that consolidation or emptiness may take, with a known price, in the order of savings."""
    found: list[Candidate] = []
    for _, judged in world.candidates(DisruptionClass.GRACEFUL):
        if isinstance(judged, Blocker) or judged.price is None:
            continue
        blocker = emptiness_blocker if judged.is_empty else consolidation_blocker
        if blocker(world, judged) is None:
            found.append(judged)
    return sorted(found, key=lambda c: (-c.savings_ratio, c.name))


def _compatible(world: World, simulation: Simulation, should_stop: Callable[[], bool]) -> Command | None:
    several = multi_node.run(world, simulation, should_stop)
    found = several.commands or single_node.run(world, simulation, should_stop).commands
    return found[0] if found else None


def fleet_bound(world: World, base: WhatIfBase) -> tuple[float, float] | None:
    """What the managed fleet costs and a quick lower bound for the same pods, in $/h; None when it cannot be said."""
    candidates = removable(world)
    prices = [world.price(view) for view in world.nodes if view.managed]
    if not HAS_SOLVER or not candidates or None in prices:
        return None
    from pykarpenter.core.cover.bound import resource_bound

    view = fleet_view(base, [Movable(c.name, c.price or 0.0, c.pods) for c in candidates], world.settling)
    if view is None:
        return None
    price_now = math.fsum(price for price in prices if price is not None)
    fixed = price_now - math.fsum(candidate.price or 0.0 for candidate in candidates)
    spare = view.problem.node_free[~view.problem.node_removable].sum(axis=0)
    return price_now, fixed + resource_bound(view.problem.kinds, spare)[0]


def _planned(
    world: World, base: WhatIfBase, candidates: Sequence[Candidate], wishes: Wishes, should_stop: Callable[[], bool]
) -> tuple[FleetView, Front, float] | None:
    from pykarpenter.core.cover.bound import resource_bound
    from pykarpenter.core.fleet.planner import plan_fleet

    movable = [Movable(c.name, c.price or 0.0, c.pods) for c in candidates]
    view = fleet_view(base, movable, world.settling)
    if view is None:
        return None
    problem = view.problem
    answer = plan_fleet(problem, [], wishes.trials, should_stop)
    bound = answer.lower_bound
    spare = problem.node_free[~problem.node_removable]
    if spare.any():
        # Machines that stay may take pods for nothing, which only a bound over totals accounts for.
        bound = resource_bound(problem.kinds, spare.sum(axis=0))[0]
    return view, answer.front, bound


def _sets_of(view: FleetView, front: Front, wishes: Wishes) -> list[tuple[str, ...]]:
    """Sets of machines to try: components of the best plans, split by machine to buy where only one may come."""
    price = wishes.eviction_price
    plans = sorted(front.plans(), key=lambda p: (p.price_per_hour + price * p.displaced, p.displaced))[:_POINTS]
    found: list[tuple[str, ...]] = []
    for plan in plans:
        flows = _flows(view.problem, plan)
        for component in _components(plan, flows):
            found.append(tuple(view.nodes[row] for row in component))
        for sink in range(len(plan.bought)):
            rows = sorted(row for row in plan.removed if _main_sink(flows, row) == sink)
            if rows:
                found.append(tuple(view.nodes[row] for row in rows))
    return found


def _flows(problem: FleetProblem, plan: FleetPlan) -> dict[tuple[int, int], int]:
    """Pods from each machine that goes to each place: bought machines first, then machines that stay."""
    places: list[Ints] = [purchase.counts.copy() for purchase in plan.bought]
    places += [counts.copy() for _, counts in plan.moved_in]
    flows: dict[tuple[int, int], int] = {}
    for row in plan.removed:
        left = problem.node_pods[row].copy()
        for sink, room in enumerate(places):
            moved = np.minimum(left, room)
            if moved.any():
                left -= moved
                room -= moved
                flows[row, sink] = int(moved.sum())
    return flows


def _main_sink(flows: dict[tuple[int, int], int], row: int) -> int:
    mine = [(-pods, sink) for (source, sink), pods in flows.items() if source == row]
    return min(mine)[1] if mine else -1


def _components(plan: FleetPlan, flows: dict[tuple[int, int], int]) -> list[list[int]]:
    """Machines that share a destination go together; others are commands of their own."""
    leader = {row: row for row in plan.removed}

    def find(row: int) -> int:
        while leader[row] != row:
            row = leader[row]
        return row

    first: dict[int, int] = {}
    for row, sink in sorted(flows):
        leader[find(row)] = find(first.setdefault(sink, row))
    groups: dict[int, list[int]] = {}
    for row in plan.removed:
        groups.setdefault(find(row), []).append(row)
    return [sorted(rows) for _, rows in sorted(groups.items())]


@dataclass(frozen=True, slots=True)
class _Priced:
    """What the simulation says of a set of machines: what it saves, at best and at worst, and what it needs."""

    saving: float
    claims: tuple[PlannedClaim, ...]
    displaced: int


class _Verified:
    """Commands that the full simulation accepted, each on top of those before it."""

    def __init__(self, world: World, simulation: Simulation, by_name: dict[str, Candidate], wishes: Wishes) -> None:
        self._world = world
        self._simulation = simulation
        self._by_name = by_name
        self._wishes = wishes

    def choose(self, sets: Sequence[tuple[str, ...]], should_stop: Callable[[], bool]) -> tuple[Saving, ...]:
        ranked: list[tuple[float, tuple[str, ...], _Priced]] = []
        for names in sets:
            if should_stop():
                break
            alone = self._alone(names)
            if alone is not None and self._net(alone) > 0:
                ranked.append((-self._net(alone), names, alone))
        ranked.sort(key=lambda entry: entry[:2])
        chosen: list[Saving] = []
        taken: tuple[str, ...] = ()
        total = _Priced(0.0, (), 0)
        for _, names, alone in ranked:
            if should_stop() or not set(names).isdisjoint(taken):
                continue
            together = self._price((*taken, *names)) if taken else alone
            if together is None or self._net(together) - self._net(total) <= 1e-9:
                continue
            saving = together.saving - total.saving
            chosen.append(Saving(names, alone.claims, alone.displaced, saving))
            taken, total = (*taken, *names), together
        return tuple(chosen)

    def _net(self, priced: _Priced) -> float:
        return priced.saving - self._wishes.eviction_price * priced.displaced

    def _alone(self, names: tuple[str, ...]) -> _Priced | None:
        if self._wishes.many_replacements:
            return self._price(names)
        candidates = [self._by_name[name] for name in names]
        method = Method.MULTI_NODE if len(names) > 1 else Method.SINGLE_NODE
        proposal = propose(self._world, self._simulation, candidates, method)
        if not isinstance(proposal, Blocker) and len(names) > 1:
            proposal = without_same_type(self._world, candidates, proposal)
        if isinstance(proposal, Blocker):
            return None
        command = proposal.command
        return _Priced(command.saving or 0.0, command.replacements, command.pod_count)

    def _price(self, names: tuple[str, ...]) -> _Priced | None:
        """The machines together; None unless every pod has a place and the bill falls even at the worst launch."""
        candidates = [self._by_name[name] for name in names]
        paid = price_of(candidates)
        outcome = simulate(self._world, self._simulation, candidates, consolidation=True)
        if paid is None or not outcome.ok:
            return None
        best, worst = 0.0, 0.0
        for claim in outcome.claims:
            options = self._world.prices.options(claim, self._world.types(claim.node_pool))
            if not options:
                return None
            best += options[0].best
            worst += options[0].worst
        if not worst < paid:
            return None
        return _Priced(paid - best, outcome.claims, sum(len(candidate.pods) for candidate in candidates))
