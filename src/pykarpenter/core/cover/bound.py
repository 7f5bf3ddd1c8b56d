"""What no fleet can undercut: a linear relaxation over total resources.

Machines may be bought in fractions, pods split over machines, and each resource placed on its own, but only on
machines that accept the pods' class. Everything a real plan must respect beyond that can only cost more, so the
value is a lower bound of every plan for the same pods.
"""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np

from pykarpenter.core.cover.problem import Bools, CoverProblem, Floats, Ints, undominated


def quiet_solver() -> highspy.Highs:
    """One thread and a fixed seed: equal input gives equal output."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    return solver


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The relaxation's answer: its cost, what a unit of each resource is worth to each class, machines in fractions."""

    cost: float
    worth: Floats
    machines: Ints
    amounts: Floats


def resource_bound(problem: CoverProblem, free: Ints | None = None) -> tuple[float, Floats]:
    """The bound in $/h and the value of one unit of each resource at it, for each class: `[C, R]`.

    `free` is capacity that is there already and costs nothing. A class that no machine accepts is left out: no plan
    can place it, so it adds nothing to any plan's cost.
    """
    relaxed = _relax(problem, free)
    return relaxed.cost, relaxed.worth


def machine_mix(problem: CoverProblem) -> Ints:
    """Machines to have for the demand: the relaxation's fractions rounded up, in whole machines."""
    relaxed = _relax(problem, None)
    whole = np.ceil(relaxed.amounts - 1e-6).astype(np.int64)
    return np.repeat(relaxed.machines, whole)


def _relax(problem: CoverProblem, free: Ints | None) -> Relaxed:
    machines = undominated(problem)
    signatures, member = np.unique(problem.allowed[:, machines], axis=0, return_inverse=True)
    member = member.reshape(-1)
    if not len(machines) or not problem.demand.any():
        return Relaxed(0.0, np.zeros(problem.requests.shape), machines, np.zeros(len(machines)))
    totals = np.zeros((len(signatures), problem.requests.shape[1]))
    np.add.at(totals, member, problem.requests * problem.demand[:, None].astype(np.float64))
    totals[~signatures.any(axis=1)] = 0.0
    program = _Program(problem, machines, signatures, totals)
    if free is not None:
        program.add_free(free)
    return program.solve(member)


class _Program:
    """min Σ price·n: each signature's total of each resource is served by machines that accept the signature."""

    def __init__(self, problem: CoverProblem, machines: Ints, signatures: Bools, totals: Floats) -> None:
        self._machines = machines
        self._totals = totals
        self._scale = np.maximum(totals.max(axis=0), 1.0)
        self._solver = quiet_solver()
        self._served: dict[tuple[int, int], int] = {}
        for machine in machines:
            self._column(float(problem.price[machine]))
        uses: dict[tuple[int, int], list[int]] = {}
        for group, resource in np.argwhere(totals).tolist():
            columns = []
            for kind in np.flatnonzero(signatures[group]).tolist():
                column = self._column(0.0)
                uses.setdefault((kind, resource), []).append(column)
                columns.append(column)
            self._served[group, resource] = self._solver.getNumRow()
            self._row(float(totals[group, resource] / self._scale[resource]), columns, [1.0] * len(columns))
        for (kind, resource), columns in uses.items():
            amount = float(problem.capacity[machines[kind], resource] / self._scale[resource])
            self._row(0.0, [kind, *columns], [amount, *([-1.0] * len(columns))])

    def _column(self, price: float) -> int:
        self._solver.addCol(price, 0.0, highspy.kHighsInf, 0, np.zeros(0, np.int32), np.zeros(0))
        return int(self._solver.getNumCol()) - 1

    def _row(self, least: float, columns: list[int], values: list[float]) -> None:
        index = np.array(columns, np.int32)
        self._solver.addRow(least, highspy.kHighsInf, len(index), index, np.array(values))

    def add_free(self, free: Ints) -> None:
        """Capacity that is there already serves any class, up to its amount of each resource."""
        by_resource: dict[int, list[int]] = {}
        for (_, resource), row in self._served.items():
            column = self._column(0.0)
            self._solver.changeCoeff(row, column, 1.0)
            by_resource.setdefault(resource, []).append(column)
        for resource, columns in by_resource.items():
            self._row(-float(max(0, free[resource]) / self._scale[resource]), columns, [-1.0] * len(columns))

    def solve(self, member: Ints) -> Relaxed:
        self._solver.run()
        solution = self._solver.getSolution()
        duals = np.array(solution.row_dual)
        worth = np.zeros(self._totals.shape)
        for (group, resource), row in self._served.items():
            worth[group, resource] = max(0.0, duals[row]) / self._scale[resource]
        amounts = np.array(solution.col_value)[: len(self._machines)]
        cost = float(self._solver.getInfo().objective_function_value)
        return Relaxed(cost, worth[member], self._machines, amounts)
