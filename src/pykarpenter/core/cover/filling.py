"""Ways to fill one machine: greedily by value, by drawing pods from the demand, or exactly by a small program."""

from __future__ import annotations

import highspy
import numpy as np

from pykarpenter.core.cover.bound import quiet_solver
from pykarpenter.core.cover.problem import CoverProblem, Floats, Ints


def fill_up(problem: CoverProblem, counts: Ints, free: Ints, most: Ints, order: Ints) -> Ints:
    """Add as many pods as still fit, class after class in the given order."""
    for index in order:
        take = most[index] - counts[index]
        if take <= 0:
            continue
        need = problem.requests[index]
        rows = need > 0
        take = min(int(take), int((free[rows] // need[rows]).min()) if rows.any() else int(take))
        if take > 0:
            counts[index] += take
            free -= need * take
    return counts


def by_dot_product(problem: CoverProblem, machine: int, remaining: Ints, weights: Floats) -> Ints:
    """Prefer the pod whose shape is closest to what is still free: it leaves the least of anything stranded."""
    capacity = problem.capacity[machine]
    counts = np.zeros(problem.classes, np.int64)
    wanted = np.flatnonzero(problem.allowed[:, machine] & (remaining > 0))
    requests, left = problem.requests[wanted], remaining[wanted]
    size = np.maximum(capacity, 1).astype(np.float64)
    shape, pull = requests / size, weights / size
    free = capacity.copy()
    while True:
        fitting = np.flatnonzero((requests <= free).all(axis=1) & (left > 0))
        if not len(fitting):
            return counts
        best = int(fitting[(shape[fitting] @ (pull * free)).argmax()])
        need = requests[best]
        asked = need > 0
        room = int((free[asked] // need[asked]).min()) if asked.any() else int(left[best])
        # A third of the room at a time: the best shape changes as the machine fills up.
        take = max(1, min(room, int(left[best])) // 3)
        counts[wanted[best]] += take
        left[best] -= take
        free = free - need * take


def by_draw(problem: CoverProblem, machine: int, value: Floats, most: Ints, draw: np.random.Generator) -> Ints:
    """Draw pods from the demand for part of the machine, then complete it with the most valuable that fit."""
    capacity = problem.capacity[machine]
    counts = np.zeros(problem.classes, np.int64)
    share = np.where(most > 0, problem.demand * np.maximum(value, value.max() * 1e-3), 0.0)
    total = share.sum()
    if total <= 0:
        return counts
    free = capacity.copy()
    kept_back = (capacity * (1.0 - draw.uniform(0.3, 1.0))).astype(np.int64)
    for index in draw.choice(problem.classes, size=64, p=share / total):
        need = problem.requests[index]
        if counts[index] >= most[index] or ((need > free - kept_back) & (need > 0)).any():
            break
        counts[index] += 1
        free -= need
    return fill_up(problem, counts, free, most, np.argsort(-value, kind="stable"))


class ExactFilling:
    """The most valuable filling of one machine, as an integer program kept between questions."""

    def __init__(self, problem: CoverProblem, machine: int) -> None:
        self.machine = machine
        self._most = problem.most_of_each(machine)
        self._usable = np.flatnonzero(self._most)
        self._solver = self._build(problem) if len(self._usable) else None

    def best(self, value: Floats, search_nodes: int) -> tuple[Ints, float]:
        """The best filling found within the search nodes, and a value that no filling can exceed."""
        counts = np.zeros(len(self._most), np.int64)
        worth = value[self._usable]
        if self._solver is None or worth.max() <= 0:
            return counts, 0.0
        solver = self._solver
        solver.changeColsCost(len(worth), np.arange(len(worth), dtype=np.int32), worth)
        solver.setOptionValue("mip_max_nodes", search_nodes)
        solver.run()
        found = np.rint(np.array(solver.getSolution().col_value)).astype(np.int64)
        if len(found) == len(worth):
            counts[self._usable] = found
        return counts, float(solver.getInfo().mip_dual_bound)

    def _build(self, problem: CoverProblem) -> highspy.Highs:
        left = problem.requests[self._usable].T.astype(np.float64)
        rows, columns = left.shape
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = columns, rows
        model.col_cost_ = np.zeros(columns)
        model.col_lower_ = np.zeros(columns)
        model.col_upper_ = self._most[self._usable].astype(np.float64)
        model.row_lower_ = np.full(rows, -highspy.kHighsInf)
        model.row_upper_ = problem.capacity[self.machine].astype(np.float64)
        model.sense_ = highspy.ObjSense.kMaximize
        model.integrality_ = [highspy.HighsVarType.kInteger] * columns
        filled = [np.flatnonzero(row) for row in left]
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.cumsum([0, *(len(f) for f in filled)]).astype(np.int32)
        model.a_matrix_.index_ = np.concatenate(filled).astype(np.int32)
        model.a_matrix_.value_ = np.concatenate([row[f] for row, f in zip(left, filled, strict=True)])
        solver = quiet_solver()
        solver.setOptionValue("mip_rel_gap", 1e-4)
        solver.passModel(model)
        return solver
