"""First guesses at good fleets: a linear program says which machines to keep, how to fill them, and what to buy.

Each machine that exists may be kept, with or without more pods in its free room; its price counts less what moving
its own pods would cost. Fillings of free room and of new machines are generated for the prices that the program asks.
Fractions are rounded and the rest is placed by the usual rebuild, so a guess is a real fleet; the search polishes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import highspy
import numpy as np

from pykarpenter.core.cover.bound import quiet_solver
from pykarpenter.core.cover.problem import Floats, Ints
from pykarpenter.core.fleet.problem import Draft, FleetProblem, first_draft
from pykarpenter.core.fleet.rebuild import Rebuilder

Filling = tuple[int, Ints]
# $/h per displaced pod at which guesses are made; dense where the trade turns.
GUESS_PRICES = (0.05, 0.03, 0.02, 0.015, 0.01, 0.007, 0.004, 0.0)
_ROUNDS = 25
# How much each resource counts when classes are ranked by worth for their size.
_STRESS = (0.5, 0.2, 0.8, 0.35, 0.65)
_WORTHWHILE = 1e-6


def guesses(
    problem: FleetProblem, value: Floats, fillings: Sequence[Filling], should_stop: Callable[[], bool]
) -> list[Draft]:
    """Fleets that suit each of the prices, with reluctant and eager rounding."""
    guide = Guide(problem, value, fillings)
    found: list[Draft] = []
    for price in GUESS_PRICES:
        if should_stop():
            break
        guide.solve(price)
        found.extend(draft for share in (0.2, 0.5, 0.8) if (draft := guide.rounded(share)) is not None)
    return found


class Guide:
    """The program of one fleet, kept warm from price to price."""

    def __init__(self, problem: FleetProblem, value: Floats, fillings: Sequence[Filling]) -> None:
        self._problem = problem
        self._kinds = problem.kinds
        self._rebuilder = Rebuilder(problem, value)
        self._demand = problem.node_pods.sum(axis=0)
        self._bins = np.vstack([problem.node_free, problem.kinds.capacity])
        self._accepts = np.vstack([problem.node_accepts, problem.kinds.allowed.T])
        self._size = problem.kinds.requests / np.maximum(problem.kinds.capacity.max(axis=0), 1)
        # Columns: the bin (machines that exist first, then kinds) and the pods put into it.
        self._bin_of: list[int] = []
        self._put: list[Ints] = []
        self._known: set[tuple[int, bytes]] = set()
        self._amounts = np.zeros(0)
        self._duals = np.zeros(0)
        self._solver = self._rows()
        nothing = np.zeros(problem.kinds.classes, np.int64)
        for node in range(problem.nodes):
            self._add(node, nothing)
        for kind, counts in fillings:
            self._add(problem.nodes + kind, counts)

    def _rows(self) -> highspy.Highs:
        solver = quiet_solver()
        empty = (0, np.zeros(0, np.int32), np.zeros(0))
        for wanted in self._demand:
            solver.addRow(float(wanted), highspy.kHighsInf, *empty)
        for removable in self._problem.node_removable:
            solver.addRow(0.0 if removable else 1.0, 1.0, *empty)
        return solver

    def _add(self, bin_: int, counts: Ints) -> bool:
        key = (bin_, counts.tobytes())
        if key in self._known:
            return False
        self._known.add(key)
        self._bin_of.append(bin_)
        self._put.append(counts)
        nodes, classes = self._problem.nodes, self._kinds.classes
        held = counts + self._problem.node_pods[bin_] if bin_ < nodes else counts
        rows = np.flatnonzero(held)
        values = held[rows].astype(np.float64)
        if bin_ < nodes:
            rows, values = np.append(rows, classes + bin_), np.append(values, 1.0)
        self._solver.addCol(0.0, 0.0, highspy.kHighsInf, len(rows), rows.astype(np.int32), values)
        return True

    def solve(self, eviction_price: float) -> None:
        """Solve for a price, adding fillings while the duals find some worth having."""
        problem = self._problem
        moving = problem.node_pods @ problem.weight * eviction_price
        price = np.concatenate([problem.node_price - moving, self._kinds.price])
        for _ in range(_ROUNDS):
            columns = len(self._bin_of)
            self._solver.changeColsCost(columns, np.arange(columns, dtype=np.int32), price[self._bin_of])
            self._solver.run()
            solution = self._solver.getSolution()
            self._amounts = np.array(solution.col_value, np.float64)
            self._duals = np.array(solution.row_dual, np.float64)
            if not self._generate(price):
                return

    def _generate(self, price: Floats) -> bool:
        classes, nodes = self._kinds.classes, self._problem.nodes
        worth = np.maximum(self._duals[:classes], 0.0)
        # What a bin must earn: its price less what its own pods earn, and the dual of keeping it at most once.
        owed = price.copy()
        owed[:nodes] -= self._problem.node_pods @ worth + self._duals[classes:]
        added = False
        for stress in _STRESS:
            ranked = worth / np.maximum(self._size[:, 0] * stress + self._size[:, 1:].sum(axis=1) * (1 - stress), 1e-9)
            counts = self._fill(np.lexsort((np.arange(classes), -ranked)))
            gain = counts @ worth - owed
            for bin_ in np.flatnonzero(gain > _WORTHWHILE).tolist():
                added = self._add(bin_, counts[bin_]) or added
        return added

    def _fill(self, order: Ints) -> Ints:
        """Fill every bin with the classes in that order: `[bins, C]`."""
        requests = self._kinds.requests
        free = self._bins.copy()
        counts = np.zeros((len(free), self._kinds.classes), np.int64)
        for index in order.tolist():
            columns = np.flatnonzero(requests[index])
            take = np.minimum((free[:, columns] // requests[index, columns]).min(axis=1), self._demand[index])
            take[~self._accepts[:, index] | (take < 0)] = 0
            counts[:, index] = take
            free -= take[:, None] * requests[index]
        return counts

    def rounded(self, share: float) -> Draft | None:
        """Machines kept to at least that share stay; whole fillings are bought; the rest is rebuilt."""
        problem, nodes = self._problem, self._problem.nodes
        kept = np.zeros(nodes)
        for column in np.flatnonzero(self._amounts > 1e-9).tolist():
            if self._bin_of[column] < nodes:
                kept[self._bin_of[column]] += self._amounts[column]
        draft = first_draft(problem)
        left = np.zeros(self._kinds.classes, np.int64)
        for row in np.flatnonzero((kept < share) & problem.node_removable).tolist():
            draft.give_up(problem, row)
            left += problem.node_pods[row]
        whole = np.floor(self._amounts + 1e-6).astype(np.int64)
        for column in np.flatnonzero(whole).tolist():
            bin_ = self._bin_of[column]
            for _ in range(int(whole[column])):
                counts = np.minimum(self._put[column], left)
                if bin_ >= nodes:
                    self._rebuilder.buy_filling(draft, bin_ - nodes, counts, left)
                elif counts.any():
                    self._rebuilder.take_in(draft, bin_, counts, left)
        return draft if self._rebuilder.place(draft, left) else None
