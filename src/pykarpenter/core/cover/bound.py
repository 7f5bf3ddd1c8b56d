"""What no fleet can undercut: a linear relaxation over total resources.

Machines may be bought in fractions, pods split over machines, and each resource placed on its own, but only on
machines that accept the pods' class. Everything a real plan must respect beyond that can only cost more, so the
value is a lower bound of every plan for the same pods.
"""

from __future__ import annotations

import highspy
import numpy as np

from pykarpenter.core.cover.problem import CoverProblem, Floats, Ints, undominated


def quiet_solver() -> highspy.Highs:
    """One thread and a fixed seed: equal input gives equal output."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    return solver


def resource_bound(problem: CoverProblem) -> tuple[float, Floats]:
    """The bound in $/h and the value of one unit of each resource at it, for each class: `[C, R]`.

    A class that no machine accepts is left out: no plan can place it, so it adds nothing to any plan's cost.
    """
    machines = undominated(problem)
    signatures, member = np.unique(problem.allowed[:, machines], axis=0, return_inverse=True)
    member = member.reshape(-1)
    values = np.zeros(problem.requests.shape)
    if not len(machines) or not problem.demand.any():
        return 0.0, values
    totals = np.zeros((len(signatures), problem.requests.shape[1]))
    np.add.at(totals, member, problem.requests * problem.demand[:, None].astype(np.float64))
    totals[~signatures.any(axis=1)] = 0.0
    return _relaxation(problem, machines, signatures, totals, member)


def _relaxation(
    problem: CoverProblem, machines: Ints, signatures: np.ndarray, totals: Floats, member: Ints
) -> tuple[float, Floats]:
    """min Σ price·n: each signature's total of each resource is served by machines that accept the signature."""
    scale = np.maximum(totals.max(axis=0), 1.0)
    solver = quiet_solver()
    kinds = len(machines)
    for machine in machines:
        solver.addCol(float(problem.price[machine]), 0.0, highspy.kHighsInf, 0, np.zeros(0, np.int32), np.zeros(0))
    column = kinds
    served: dict[tuple[int, int], int] = {}
    uses: dict[tuple[int, int], list[int]] = {}
    for group, resource in np.argwhere(totals).tolist():
        columns = []
        for kind in np.flatnonzero(signatures[group]):
            solver.addCol(0.0, 0.0, highspy.kHighsInf, 0, np.zeros(0, np.int32), np.zeros(0))
            uses.setdefault((int(kind), resource), []).append(column)
            columns.append(column)
            column += 1
        served[group, resource] = solver.getNumRow()
        wanted = float(totals[group, resource] / scale[resource])
        index = np.array(columns, np.int32)
        solver.addRow(wanted, highspy.kHighsInf, len(index), index, np.ones(len(index)))
    for (machine_index, resource), columns in uses.items():
        amount = float(problem.capacity[machines[machine_index], resource] / scale[resource])
        index = np.array([machine_index, *columns], np.int32)
        solver.addRow(0.0, highspy.kHighsInf, len(index), index, np.array([amount, *([-1.0] * len(columns))]))
    solver.run()
    duals = np.array(solver.getSolution().row_dual)
    worth = np.zeros(totals.shape)
    for (group, resource), row in served.items():
        worth[group, resource] = max(0.0, duals[row]) / scale[resource]
    return float(solver.getInfo().objective_function_value), worth[member]
