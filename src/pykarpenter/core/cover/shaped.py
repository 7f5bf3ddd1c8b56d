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
    """Machines standing side by side, with what is free on each."""

    def __init__(self, problem: CoverProblem, machines: Ints, first: int) -> None:
        self.machines = machines
        self.first = first
        self.free = problem.capacity[machines].copy()
        self.real = problem.real
        self.size = np.maximum(problem.capacity[machines, : self.real], 1).astype(np.float64)


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

    def stand(self, machines: Ints) -> _Floor:
        floor = _Floor(self.problem, machines, self.count)
        self.machines.append(machines)
        self.count += len(machines)
        return floor

    def put(self, index: int, positions: Ints, pods: Ints) -> None:
        self._classes.append(np.full(len(positions), index, np.int64))
        self._positions.append(positions)
        self._pods.append(pods)
        self.remaining[index] -= int(pods.sum())

    def result(self) -> Filled:
        return Filled(
            np.concatenate(self.machines),
            np.concatenate(self._classes),
            np.concatenate(self._positions),
            np.concatenate(self._pods),
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
            for positions, pods in _spread(problem, floor, index, int(filling.remaining[index]), score):
                filling.put(index, positions + floor.first, pods)
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
            for positions, pods in _spread(problem, floor, other, int(filling.remaining[other]), score):
                filling.put(other, positions + floor.first, pods)
    return True


def _spread(problem: CoverProblem, floor: _Floor, index: int, wanted: int, score: str) -> list[tuple[Ints, Ints]]:
    """Put up to `wanted` pods of a class on the floor, one per machine and pass, best machines first."""
    need = problem.requests[index]
    columns = np.flatnonzero(need)
    allowed = problem.allowed[index, floor.machines]
    result: list[tuple[Ints, Ints]] = []
    while wanted:
        room = (floor.free[:, columns] // need[columns]).min(axis=1)
        room[~allowed] = 0
        open_ = np.flatnonzero(room > 0)
        if not len(open_):
            break
        ranked = open_[np.argsort(_cost(floor, open_, need, score), kind="stable")][:wanted]
        pods = np.ones(len(ranked), np.int64)
        if len(open_) < wanted:
            # Fewer machines than pods: a second round would look the same, so take a fair share at once.
            pods = np.minimum(room[ranked], max(1, wanted // (2 * len(ranked))))
        floor.free[ranked] -= pods[:, None] * need
        wanted -= int(pods.sum())
        result.append((ranked, pods))
    return result


def _cost(floor: _Floor, rows: Ints, need: Ints, score: str) -> Floats:
    """Lower is better: how badly the pod fits into what is free."""
    free = floor.free[rows, : floor.real] / floor.size[rows]
    share = need[: floor.real] / floor.size[rows]
    after = free - share
    if score == "tight":
        return np.asarray(after.sum(axis=1))
    if score == "stretch":
        return np.asarray(after.max(axis=1) - after.min(axis=1))
    length = np.sqrt((free * free).sum(axis=1)) * np.sqrt((share * share).sum(axis=1))
    return np.asarray(-(free * share).sum(axis=1) / np.maximum(length, 1e-12))
