"""Find places for pods that lost theirs: tight fits on machines that stay, then machines worth their price."""

from __future__ import annotations

import numpy as np

from pykarpenter.core.cover.problem import Floats, Ints
from pykarpenter.core.fleet.problem import Draft, FleetProblem


class Rebuilder:
    """Places pods on a draft; `value[C]` is the fair hourly price of one pod of each class."""

    def __init__(self, problem: FleetProblem, value: Floats) -> None:
        self._problem = problem
        kinds = problem.kinds
        self._requests = kinds.requests
        self._value = value
        largest = np.maximum(kinds.capacity.max(axis=0), 1).astype(np.float64)
        self._size = kinds.requests / largest
        # Large pods first: they have the fewest places to go.
        self._order = [int(i) for i in np.lexsort((np.arange(kinds.classes), -self._size.max(axis=1)))]
        self._scale = 1.0 / largest
        self._needs = [np.flatnonzero(row) for row in kinds.requests]
        self._by_price = np.lexsort((np.arange(kinds.machines), kinds.price))

    def place(self, draft: Draft, pods: Ints) -> bool:
        """Place all pods; False when some fit on nothing that can be bought."""
        left = pods.copy()
        rows = np.flatnonzero(draft.alive)
        for index in self._order:
            if left[index]:
                left[index] -= self._tight_fit(draft, rows, index, int(left[index]))
        while left.any():
            if not self._buy(draft, left):
                return False
        return True

    def buy_filling(self, draft: Draft, kind: int, counts: Ints, left: Ints) -> None:
        """Buy the cheapest machine that holds these pods, and take them off what is left."""
        if counts.any() and draft.spare:
            left -= counts
            draft.buy(self._problem.kinds, self._cheapest_holding(kind, counts), counts)

    def take_in(self, draft: Draft, row: int, counts: Ints, left: Ints) -> None:
        """Put these pods, which fit, on a machine that stays."""
        left -= counts
        draft.free[row] -= counts @ self._requests
        draft.taken_in[row] += counts

    def _tight_fit(self, draft: Draft, rows: Ints, index: int, wanted: int) -> int:
        """Put up to `wanted` pods of a class on the machines that are fullest already."""
        need, columns = self._requests[index], self._needs[index]
        free = draft.free[rows]
        room = (free[:, columns] // need[columns]).min(axis=1)
        room[~draft.accepts[rows, index]] = 0
        open_ = np.flatnonzero(room > 0)
        if not len(open_):
            return 0
        slack = (free[open_] * self._scale).sum(axis=1)
        placed = 0
        for position in open_[np.argsort(slack, kind="stable")]:
            take = min(int(room[position]), wanted - placed)
            row = rows[position]
            draft.free[row] -= need * take
            draft.taken_in[row, index] += take
            placed += take
            if placed == wanted:
                break
        return placed

    def _buy(self, draft: Draft, left: Ints) -> bool:
        """Buy the kind of machine that takes most value per dollar of what is left, then the cheapest that holds it."""
        if not draft.spare:
            return False
        counts = self._fill_every_kind(left)
        worth = (counts @ self._value) / self._problem.kinds.price
        kind = int(worth.argmax())
        if not counts[kind].any():
            return False
        left -= counts[kind]
        draft.buy(self._problem.kinds, self._cheapest_holding(kind, counts[kind]), counts[kind])
        return True

    def _fill_every_kind(self, left: Ints) -> Ints:
        """How much of what is left one machine of each kind would take, large pods first: `[K, C]`."""
        kinds = self._problem.kinds
        free = kinds.capacity.copy()
        counts = np.zeros((kinds.machines, kinds.classes), np.int64)
        for index in self._order:
            if not left[index]:
                continue
            columns = self._needs[index]
            take = np.minimum((free[:, columns] // self._requests[index, columns]).min(axis=1), left[index])
            take[~kinds.allowed[index]] = 0
            counts[:, index] = take
            free -= take[:, None] * self._requests[index]
        return counts

    def _cheapest_holding(self, kind: int, counts: Ints) -> int:
        kinds = self._problem.kinds
        used = counts @ self._requests
        present = counts > 0
        fits = (used <= kinds.capacity[self._by_price]).all(axis=1) & kinds.allowed[present][:, self._by_price].all(
            axis=0
        )
        found = np.flatnonzero(fits)
        return int(self._by_price[found[0]]) if len(found) else kind
