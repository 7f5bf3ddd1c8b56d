"""Large-neighbourhood search over fleets: give up a few machines, place their pods again, keep what pays.

Pods that are displaced already cost nothing to move again, so the count of a plan is its net displacement. Every
state met on the way is offered to a front of (displaced pods, $/h); a policy picks its point there. Effort is
counted in trials and the seed is fixed: equal input gives equal plans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pykarpenter.core.cover.problem import Floats
from pykarpenter.core.fleet.problem import Draft, FleetPlan, FleetProblem, as_plan
from pykarpenter.core.fleet.rebuild import Rebuilder, drop_purchase

# $/h per displaced pod, from reluctant to careless; each is searched from every start.
PRICES = (0.05, 0.02, 0.01, 0.005, 0.002, 0.0)
_GAIN = 1e-7


class Front:
    """The best plans met: none is both dearer and more disturbing than another."""

    def __init__(self) -> None:
        self._points: dict[float, tuple[float, FleetPlan]] = {}
        self._best_at: list[tuple[float, float]] = []

    def offer(self, problem: FleetProblem, draft: Draft) -> None:
        for displaced, cost in self._best_at:
            if displaced <= draft.displaced and cost <= draft.cost + _GAIN:
                return
        self._points[draft.displaced] = (draft.cost, as_plan(problem, draft))
        self._best_at = [(d, c) for d, c in self._best_at if not (draft.displaced <= d and draft.cost <= c)]
        self._best_at.append((draft.displaced, draft.cost))

    def plans(self) -> list[FleetPlan]:
        """From the least disturbing to the cheapest."""
        return [self._points[displaced][1] for displaced, _ in sorted(self._best_at)]

    def best(self, eviction_price: float) -> FleetPlan:
        """The plan with the lowest bill when each displaced pod costs that many $/h."""
        return min(self.plans(), key=lambda p: (p.price_per_hour + eviction_price * p.displaced, p.displaced))


@dataclass(frozen=True, slots=True)
class Trials:
    """How much to try: trials at each eviction price from each start."""

    per_price: int = 400
    largest_ruin: int = 6


def search(
    problem: FleetProblem,
    value: Floats,
    starts: list[Draft],
    trials: Trials,
    should_stop: Callable[[], bool],
    seed: int = 0,
    prices: tuple[float, ...] = PRICES,
) -> Front:
    """The front of plans reachable from the starts; the starts themselves are on offer too."""
    front = Front()
    rebuilder = Rebuilder(problem, value)
    for start in starts:
        front.offer(problem, start)
    draw = np.random.default_rng(seed)
    for price in prices:
        for start in starts:
            current = start.copy()
            for number in range(trials.per_price):
                if should_stop():
                    return front
                size = 1 + int(draw.integers(0, trials.largest_ruin)) if number % 3 else 1
                current = _try(problem, rebuilder, value, current, price, size, draw, front)
    return front


def _try(
    problem: FleetProblem,
    rebuilder: Rebuilder,
    value: Floats,
    current: Draft,
    price: float,
    size: int,
    draw: np.random.Generator,
    front: Front,
) -> Draft:
    rows = _victims(problem, value, current, price, size, draw)
    if not len(rows):
        return current
    draft = current.copy()
    lifted = np.zeros(problem.kinds.classes, np.int64)
    for row in rows:
        lifted += draft.taken_in[row]
        if row < problem.nodes:
            lifted += problem.node_pods[row]
            draft.displaced += float(problem.node_pods[row] @ problem.weight)
            draft.alive[row] = False
            draft.taken_in[row] = 0
            draft.cost -= float(draft.price[row])
        else:
            drop_purchase(draft, int(row))
    if not rebuilder.place(draft, lifted):
        return current
    before = current.cost + price * current.displaced
    after = draft.cost + price * draft.displaced
    if after < before - _GAIN:
        front.offer(problem, draft)
        return draft
    return current


def _victims(
    problem: FleetProblem, value: Floats, draft: Draft, price: float, size: int, draw: np.random.Generator
) -> list[int]:
    """Machines to give up, likelier the more they waste for each pod that would have to move."""
    rows = np.flatnonzero(draft.alive)
    nodes = problem.nodes
    existing = rows < nodes
    rows = rows[~existing | problem.node_removable[np.minimum(rows, nodes - 1)]]
    if not len(rows):
        return []
    existing = rows < nodes
    pods = draft.taken_in[rows].astype(np.float64)
    own = np.zeros(len(rows))
    pods[existing] += problem.node_pods[rows[existing]]
    own[existing] = problem.node_pods[rows[existing]] @ problem.weight
    waste = np.maximum(draft.price[rows] - pods @ value, 0.0)
    appeal = (waste + 0.02 * draft.price[rows]) / (1.0 + own * max(price, 0.002) * 20)
    total = appeal.sum()
    if total <= 0:
        return []
    number = min(size, len(rows))
    chosen = draw.choice(len(rows), size=number, replace=False, p=appeal / total)
    return [int(rows[i]) for i in np.sort(chosen)]
