"""Large-neighbourhood search over fleets: give up a few machines, place their pods again, keep what pays.

Pods that are displaced already cost nothing to move again, so the count of a plan is its net displacement. Every
state met on the way is offered to a front of (displaced pods, $/h); a policy picks its point there. Effort is
counted in trials and the seed is fixed: equal input gives equal plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pykarpenter.core.cover.problem import Floats
from pykarpenter.core.fleet.problem import Draft, FleetPlan, FleetProblem, as_plan
from pykarpenter.core.fleet.rebuild import Rebuilder

# $/h per displaced pod, from reluctant to careless; each is searched from every start.
PRICES = (0.05, 0.02, 0.01, 0.005, 0.002, 0.0)
_GAIN = 1e-7
_FORGIVEN = 0.1


class Front:
    """The best plans met: none is both dearer and more disturbing than another."""

    def __init__(self, problem: FleetProblem) -> None:
        self._problem = problem
        # By displaced pods; a draft on offer is never changed afterwards.
        self._drafts: dict[float, Draft] = {}

    def offer(self, draft: Draft) -> None:
        for other in self._drafts.values():
            if other.displaced <= draft.displaced and other.cost <= draft.cost + _GAIN:
                return
        self._drafts = {
            displaced: other
            for displaced, other in self._drafts.items()
            if not (draft.displaced <= displaced and draft.cost <= other.cost)
        }
        self._drafts[draft.displaced] = draft

    def plans(self) -> list[FleetPlan]:
        """From the least disturbing to the cheapest."""
        return [as_plan(self._problem, self._drafts[displaced]) for displaced in sorted(self._drafts)]

    def best_draft(self, eviction_price: float) -> Draft:
        return min(self._drafts.values(), key=lambda d: (d.cost + eviction_price * d.displaced, d.displaced))

    def best(self, eviction_price: float) -> FleetPlan:
        """The plan with the lowest bill when each displaced pod costs that many $/h."""
        return as_plan(self._problem, self.best_draft(eviction_price))


@dataclass(frozen=True, slots=True)
class Trials:
    """How much to try: trials at each eviction price, from every start and then from the best found in each round."""

    per_price: int = 400
    largest_ruin: int = 6
    rounds: int = 2


def search(
    problem: FleetProblem,
    value: Floats,
    starts: list[Draft],
    trials: Trials,
    should_stop: Callable[[], bool],
    seed: int = 0,
    prices: tuple[float, ...] = PRICES,
    guesses: Sequence[Draft] = (),
) -> Front:
    """The front of plans reachable from the starts; starts and guesses themselves are on offer too."""
    front = Front(problem)
    for start in (*starts, *guesses):
        front.offer(start)
    descent = _Descent(problem, value, front, np.random.default_rng(seed), trials, should_stop)
    for price in prices:
        for start in starts:
            descent.run(start, price)
    for number in range(trials.rounds):
        for price in prices if number % 2 else prices[::-1]:
            descent.run(front.best_draft(price), price)
    return front


class _Descent:
    """Ruin and rebuild at one eviction price; slightly worse fleets are accepted at first, so that traps are left."""

    def __init__(
        self,
        problem: FleetProblem,
        value: Floats,
        front: Front,
        draw: np.random.Generator,
        trials: Trials,
        should_stop: Callable[[], bool],
    ) -> None:
        self._problem = problem
        self._value = value
        self._front = front
        self._draw = draw
        self._trials = trials
        self._should_stop = should_stop
        self._rebuilder = Rebuilder(problem, value)
        # What is forgiven at first: a part of the price of a middling machine.
        self._forgiven = _FORGIVEN * float(np.median(problem.kinds.price)) if problem.kinds.machines else 0.0

    def run(self, start: Draft, price: float) -> None:
        current = start
        before = current.cost + price * current.displaced
        number = self._trials.per_price
        for step in range(number):
            if self._should_stop():
                return
            size = 1 + int(self._draw.integers(0, self._trials.largest_ruin)) if step % 3 else 1
            draft = self._neighbour(current, price, size)
            if draft is None:
                continue
            after = draft.cost + price * draft.displaced
            if after < before + self._forgiven * (1.0 - 1.25 * step / number):
                current, before = draft, after
                self._front.offer(draft)

    def _neighbour(self, current: Draft, price: float, size: int) -> Draft | None:
        """The fleet with a few machines given up and their pods placed again; None when they have no place."""
        problem = self._problem
        rows = _victims(problem, self._value, current, price, size, self._draw)
        if not rows:
            return None
        draft = current.copy()
        lifted = np.zeros(problem.kinds.classes, np.int64)
        for row in rows:
            lifted += draft.taken_in[row]
            if row < problem.nodes:
                lifted += problem.node_pods[row]
                draft.give_up(problem, row)
            else:
                draft.drop_purchase(row)
        return draft if self._rebuilder.place(draft, lifted) else None


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
