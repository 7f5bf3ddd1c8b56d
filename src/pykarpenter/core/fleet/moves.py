"""Sets of machines that might go for nothing or for a few new machines: a quick look at many, so few are simulated.

Machines are ranked by what they waste for each pod that would move: their price less the fair price of their pods.
Single machines and pairs are tried first, then the best sets grow while that pays. Placement is first fit in the order
of rows, as the simulation does it, on resources alone; whoever uses a set asks the full simulation before acting.
Deterministic: nothing is drawn, effort is counted in trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pykarpenter.core.cover.problem import Floats, Ints
from pykarpenter.core.fleet.landing import MOST_PODS, strays
from pykarpenter.core.fleet.problem import FleetProblem


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to try: machines looked at alone, machines paired with each other, sets that grow, and how large."""

    singles: int = 400
    width: int = 24
    growing: int = 4
    largest: int = 12


@dataclass(frozen=True, slots=True)
class Move:
    """Rows that go together: what it would save in $/h, and what is left of that when each moved pod has its price."""

    rows: tuple[int, ...]
    saving: float
    net: float


class MoveSearch:
    """`value[C]` is the fair hourly price of a pod of a class, `moving[N]` what moving a machine's pods costs in $/h.

    `quota[N]` names each machine's pool and `usable` how many machines of a pool may go at a time; a set may be
    replaced by `most_bought` machines.
    """

    def __init__(
        self,
        problem: FleetProblem,
        value: Floats,
        moving: Floats,
        quota: Sequence[str],
        usable: Mapping[str, int],
        most_bought: int = 1,
    ) -> None:
        self._problem = problem
        self._value = value
        self._moving = moving
        self._most_bought = most_bought
        self._quota = quota
        self._usable = usable
        self._free = [tuple(row) for row in problem.node_free.tolist()]
        self._requests = [tuple(row) for row in problem.kinds.requests.tolist()]
        self._price = problem.node_price.tolist()
        self._holds = [
            [(int(c), int(problem.node_pods[row, c])) for c in np.flatnonzero(problem.node_pods[row])]
            for row in range(problem.nodes)
        ]
        waste = problem.node_price - problem.node_pods @ value - moving
        self._waste = waste / (1.0 + problem.node_pods.sum(axis=1))
        self._by_price = np.lexsort((np.arange(problem.kinds.machines), problem.kinds.price))
        self._capacity = problem.kinds.capacity[self._by_price]
        self._allowed = problem.kinds.allowed[:, self._by_price]
        self._takers: dict[int, list[int]] = {}
        self._tried: dict[tuple[int, ...], Move | None] = {}

    @property
    def trials(self) -> int:
        return len(self._tried)

    def run(self, effort: Effort, should_stop: Callable[[], bool]) -> list[Move]:
        """The moves that would pay, best first."""
        removable: list[int] = np.flatnonzero(self._problem.node_removable).tolist()
        rows = [row for row in removable if self._usable.get(self._quota[row], 0) > 0]
        rows.sort(key=lambda row: (-self._waste[row], row))
        self._try_all(((row,) for row in rows[: effort.singles]), should_stop)
        near = rows[: effort.width]
        pairs = ((a, b) for i, a in enumerate(near) for b in near[i + 1 :])
        self._try_all(pairs, should_stop)
        self._grow(near, effort, should_stop)
        return self._best()

    def _try_all(self, sets: Iterable[tuple[int, ...]], should_stop: Callable[[], bool]) -> None:
        for rows in sets:
            if should_stop():
                return
            self.attempt(rows)

    def _grow(self, near: Sequence[int], effort: Effort, should_stop: Callable[[], bool]) -> None:
        """Add to each of the best sets whichever machine helps most, until none does."""
        for start in self._best()[: effort.growing]:
            best = start
            while len(best.rows) < effort.largest and not should_stop():
                larger = (self.attempt((*best.rows, row)) for row in near if row not in best.rows)
                found = max((m for m in larger if m is not None), key=lambda m: (m.net, m.rows), default=best)
                if found.net <= best.net + 1e-9:
                    break
                best = found

    def _best(self) -> list[Move]:
        return sorted((m for m in self._tried.values() if m is not None), key=lambda m: (-m.net, m.rows))

    def attempt(self, rows: Iterable[int]) -> Move | None:
        """What it would come to if these machines went; None when it does not pay or does not fit."""
        going = tuple(sorted(rows))
        if going not in self._tried:
            self._tried[going] = self._judge(going)
        return self._tried[going]

    def _judge(self, going: tuple[int, ...]) -> Move | None:
        if not self._within_budget(going):
            return None
        left = self._place(going)
        price = self._bought(left)[0] if left else 0.0
        saving = sum(self._price[row] for row in going) - price
        net = saving - float(self._moving[list(going)].sum())
        return Move(going, saving, net) if net > 0 else None

    def risked(self, rows: Iterable[int]) -> float:
        """What machines for pods that would not land as planned would cost in $/h, on average over several orders."""
        going = tuple(sorted(rows))
        lifted = self._lifted(going)
        if sum(lifted.values()) > MOST_PODS:
            return 0.0
        left = self._place(going)
        found = strays(self._problem, going, lifted, self._bought(left)[1] if left else ())
        return sum(self._cheapest(stray) if stray else 0.0 for stray in found) / len(found)

    def _within_budget(self, going: tuple[int, ...]) -> bool:
        used: dict[str, int] = {}
        for row in going:
            pool = self._quota[row]
            used[pool] = used.get(pool, 0) + 1
        return all(count <= self._usable.get(pool, 0) for pool, count in used.items())

    def _place(self, going: tuple[int, ...]) -> dict[int, int]:
        """First fit on the machines that stay; the pods by class that found no room there."""
        lifted = self._lifted(going)
        changed: dict[int, tuple[int, ...]] = {}
        left: dict[int, int] = {}
        for index in sorted(lifted):
            wanted = lifted[index]
            need = self._requests[index]
            for row in self._takers_of(index):
                if row in going:
                    continue
                free = changed.get(row, self._free[row])
                take = min((f // n for f, n in zip(free, need, strict=True) if n), default=wanted)
                take = min(take, wanted)
                if take <= 0:
                    continue
                changed[row] = tuple(f - take * n for f, n in zip(free, need, strict=True))
                wanted -= take
                if not wanted:
                    break
            if wanted:
                left[index] = wanted
        return left

    def _lifted(self, going: tuple[int, ...]) -> dict[int, int]:
        lifted: dict[int, int] = {}
        for row in going:
            for index, count in self._holds[row]:
                lifted[index] = lifted.get(index, 0) + count
        return lifted

    def _takers_of(self, index: int) -> list[int]:
        """Machines with room for a pod of the class, in their order."""
        found = self._takers.get(index)
        if found is None:
            fits = (self._problem.node_free >= self._problem.kinds.requests[index]).all(axis=1)
            found = [int(row) for row in np.flatnonzero(fits & self._problem.node_accepts[:, index])]
            self._takers[index] = found
        return found

    def _bought(self, left: dict[int, int]) -> tuple[float, tuple[int, ...]]:
        """Machines for these pods and their price: one that holds all, or a few that are worth their price."""
        one = self._cheapest_kind(left)
        best = float("inf") if one is None else float(self._problem.kinds.price[one])
        alone = () if one is None else (one,)
        if self._most_bought == 1:
            return best, alone
        kinds: list[int] = []
        for _ in range(self._most_bought):
            kind, taken = self._most_worth(left)
            if not taken:
                break
            smaller = self._cheapest_kind(taken)
            kinds.append(kind if smaller is None else smaller)
            left = {index: count - taken.get(index, 0) for index, count in left.items() if count > taken.get(index, 0)}
            if not left:
                total = float(self._problem.kinds.price[kinds].sum())
                return (total, tuple(kinds)) if total < best else (best, alone)
        return best, alone

    def _cheapest(self, left: Mapping[int, int]) -> float:
        """The price of the cheapest kind of machine that holds what is left; infinite when none does."""
        kind = self._cheapest_kind(left)
        return float("inf") if kind is None else float(self._problem.kinds.price[kind])

    def _cheapest_kind(self, left: Mapping[int, int]) -> int | None:
        classes = np.fromiter(left, np.int64, len(left))
        counts = np.fromiter(left.values(), np.int64, len(left))
        need: Ints = counts @ self._problem.kinds.requests[classes]
        fits = (self._capacity >= need).all(axis=1) & self._allowed[classes].all(axis=0)
        where = np.flatnonzero(fits)
        return int(self._by_price[where[0]]) if len(where) else None

    def _most_worth(self, left: Mapping[int, int]) -> tuple[int, dict[int, int]]:
        """The kind that takes most value for its price, filled in the order of classes, and what it takes."""
        kinds = self._problem.kinds
        free = kinds.capacity.copy()
        worth = np.zeros(kinds.machines)
        taken: dict[int, Ints] = {}
        for index, count in left.items():
            need = kinds.requests[index]
            columns = np.flatnonzero(need)
            take: Ints = np.minimum((free[:, columns] // need[columns]).min(axis=1), count)
            take[~kinds.allowed[index]] = 0
            free -= take[:, None] * need
            worth += take * self._value[index]
            taken[index] = take
        kind = int((worth / kinds.price).argmax())
        return kind, {index: int(take[kind]) for index, take in taken.items() if take[kind]}
