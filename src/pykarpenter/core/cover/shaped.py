"""Covers for many classes: the relaxation says which machines to have, then classes are spread over them at once.

Every class, large pods first, goes to the machines whose free room has the shape it asks for. What does not fit gets
a relaxation of its own, until everything has a place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykarpenter.core.cover.bound import Relaxation, Relaxed
from pykarpenter.core.cover.problem import CoverProblem, Floats, Ints

# Scores worth trying where machines are few and large, and where rules force many of them.
FEW_MACHINES = ("shape", "stretch")
MANY_MACHINES = ("tight",)
# How often a rest gets a relaxation of its own, and how many machines of a set it may use.
_TURNS = 4
_SHORT_LIST = 32


@dataclass(frozen=True, slots=True)
class Filled:
    """Machines with the pods that were put on them: parallel arrays of (class, machine position, pods)."""

    machines: Ints
    classes: Ints
    positions: Ints
    pods: Ints


class _Floor:
    """Machines standing side by side, with what is free on each; one row per resource, one column per machine."""

    def __init__(self, problem: CoverProblem, machines: Ints, first: int) -> None:
        self.machines = machines
        self.first = first
        self.free = np.ascontiguousarray(problem.capacity[machines].T)
        self.real = problem.real
        self.size = np.maximum(self.free[: self.real], 1).astype(np.float64)
        self._each = 1.0 / self.size
        # What is free on each machine, as a share of it, all resources together.
        self.level = (self.free[: self.real] * self._each).sum(axis=0)

    def share(self, need: Ints) -> Floats:
        """What share of each machine such a pod takes, all resources together."""
        taken: Floats = need[: self.real] @ self._each
        return taken

    def take(self, need: Ints, share: Floats, where: Ints, pods: Ints) -> None:
        self.free[:, where] -= need[:, None] * pods
        self.level[where] -= share[where] * pods


class _Filling:
    """A cover in the making."""

    def __init__(self, problem: CoverProblem) -> None:
        self.problem = problem
        self.remaining = problem.demand.copy()
        self.machines: list[Ints] = []
        self.count = 0
        self._classes: list[Ints] = []
        self._positions: list[Ints] = []
        self._pods: list[Ints] = []
        # Class and machine of pods that came alone.
        self._single: list[tuple[int, int]] = []

    def stand(self, machines: Ints) -> _Floor:
        floor = _Floor(self.problem, machines, self.count)
        self.machines.append(machines)
        self.count += len(machines)
        return floor

    def fill(self, floor: _Floor, index: int, score: str) -> None:
        """Put as many pods of a class as fit on the floor."""
        wanted = int(self.remaining[index])
        if wanted == 1:
            position = _best_place(self.problem, floor, index, score)
            if position >= 0:
                self._single.append((index, position + floor.first))
                self.remaining[index] = 0
            return
        for positions, pods in _spread(self.problem, floor, index, wanted, score):
            self._put(index, positions + floor.first, pods)

    def _put(self, index: int, positions: Ints, pods: Ints) -> None:
        self._classes.append(np.full(len(positions), index, np.int64))
        self._positions.append(positions)
        self._pods.append(pods)
        self.remaining[index] -= int(pods.sum())

    def result(self) -> Filled:
        single = np.array(self._single, np.int64).reshape(-1, 2)
        return Filled(
            np.concatenate(self.machines),
            np.concatenate([*self._classes, single[:, 0]]),
            np.concatenate([*self._positions, single[:, 1]]),
            np.concatenate([*self._pods, np.ones(len(single), np.int64)]),
        )


def shaped_cover(
    problem: CoverProblem, relaxation: Relaxation, relaxed: Relaxed, score: str, order: Ints
) -> Filled | None:
    """A cover that starts from the machines of `relaxed`, or None when some class fits on no machine."""
    filling = _Filling(problem)
    short_list = relaxation.short_list(relaxed, _SHORT_LIST)
    for turn in range(_TURNS):
        if turn:
            relaxed = relaxation.solve(filling.remaining, short_list)
        machines = relaxed.whole_machines()
        if not len(machines):
            return None
        floor = filling.stand(machines)
        for index in order[filling.remaining[order] > 0].tolist():
            filling.fill(floor, index, score)
        if not filling.remaining.any():
            return filling.result()
    return filling.result() if _finish(filling, short_list, order, score) else None


def _finish(filling: _Filling, short_list: Ints, order: Ints, score: str) -> bool:
    """The last few pods: the machine that is cheapest per pod, and whatever else fits beside."""
    problem = filling.problem
    while filling.remaining.any():
        index = int(order[filling.remaining[order] > 0][0])
        need = problem.requests[index]
        columns = np.flatnonzero(need)
        room = (problem.capacity[short_list][:, columns] // need[columns]).min(axis=1)
        room = np.where(problem.allowed[index, short_list], np.minimum(room, filling.remaining[index]), 0)
        if not room.any():
            return False
        each = np.where(room > 0, problem.price[short_list] / np.maximum(room, 1), np.inf)
        floor = filling.stand(short_list[[int(each.argmin())]])
        for other in order[filling.remaining[order] > 0].tolist():
            filling.fill(floor, other, score)
    return True


def _best_place(problem: CoverProblem, floor: _Floor, index: int, score: str) -> int:
    """The machine on the floor for one pod of a class, which it takes; -1 when there is none."""
    need = problem.requests[index]
    open_ = (floor.free >= need[:, None]).all(axis=0)
    open_ &= problem.allowed[index, floor.machines]
    where = open_.nonzero()[0]
    if not len(where):
        return -1
    share = floor.share(need)
    position = int(where[_cost(floor, where, need, share, score).argmin()])
    floor.free[:, position] -= need
    floor.level[position] -= share[position]
    return position


def _spread(problem: CoverProblem, floor: _Floor, index: int, wanted: int, score: str) -> list[tuple[Ints, Ints]]:
    """Put up to `wanted` pods of a class on the floor, one per machine and pass, best machines first."""
    need = problem.requests[index]
    columns = np.flatnonzero(need)
    allowed = problem.allowed[index, floor.machines]
    least, share = need[columns, None], floor.share(need)
    result: list[tuple[Ints, Ints]] = []
    while wanted:
        open_ = np.flatnonzero((floor.free[columns] >= least).all(axis=0) & allowed)
        if not len(open_):
            break
        ranked = open_[np.argsort(_cost(floor, open_, need, share, score), kind="stable")][:wanted]
        pods = np.ones(len(ranked), np.int64)
        if len(open_) < wanted:
            # Fewer machines than pods: a second round would look the same, so take a fair share at once.
            room = (floor.free[columns[:, None], ranked] // least).min(axis=0)
            pods = np.minimum(room, max(1, wanted // (2 * len(ranked))))
        floor.take(need, share, ranked, pods)
        wanted -= int(pods.sum())
        result.append((ranked, pods))
    return result


def _cost(floor: _Floor, where: Ints, need: Ints, share: Floats, score: str) -> Floats:
    """Lower is better: how badly the pod fits into what is free."""
    if score == "tight":
        return np.asarray(floor.level[where] - share[where])
    size = floor.size[:, where]
    free = floor.free[: floor.real, where] / size
    part = need[: floor.real, None] / size
    if score == "stretch":
        after = free - part
        return np.asarray(after.max(axis=0) - after.min(axis=0))
    length = np.sqrt((free * free).sum(axis=0)) * np.sqrt((part * part).sum(axis=0))
    return np.asarray(-(free * part).sum(axis=0) / np.maximum(length, 1e-12))
