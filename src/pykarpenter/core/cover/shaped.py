"""Covers for many classes: the relaxation says which machines to have, then classes are spread over them at once.

Every class, large pods first, goes to the machines whose free room has the shape it asks for. What does not fit gets
a relaxation of its own, until everything has a place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykarpenter.core.cover.bound import machine_mix
from pykarpenter.core.cover.problem import CoverProblem, Floats, Ints

SCORES = ("shape", "tight", "stretch")


@dataclass(frozen=True, slots=True)
class Filled:
    """Machines with the pods that were put on them: parallel arrays of (class, machine position, pods)."""

    machines: Ints
    classes: Ints
    positions: Ints
    pods: Ints


class _Floor:
    """Machines standing side by side, with what is free on each."""

    def __init__(self, problem: CoverProblem, machines: Ints) -> None:
        self.machines = machines
        self.free = problem.capacity[machines].copy()
        self.size = np.maximum(problem.capacity[machines], 1).astype(np.float64)


def shaped_cover(problem: CoverProblem, score: str, order: Ints) -> Filled | None:
    """A cover in the given order of classes, or None when some class fits on no machine."""
    remaining = problem.demand.copy()
    chosen: list[Ints] = []
    placed: list[tuple[int, Ints, Ints]] = []
    count = 0
    while remaining.any():
        before = int(remaining.sum())
        machines = machine_mix(problem.with_demand(remaining))
        if not len(machines):
            return None
        floor = _Floor(problem, machines)
        for index in order:
            if remaining[index]:
                found = _spread(problem, floor, int(index), int(remaining[index]), score)
                for positions, pods in found:
                    placed.append((int(index), positions + count, pods))
                    remaining[index] -= int(pods.sum())
        if int(remaining.sum()) == before:
            return None
        chosen.append(machines)
        count += len(machines)
    classes = np.concatenate([np.full(len(p), index, np.int64) for index, p, _ in placed])
    positions = np.concatenate([p for _, p, _ in placed])
    pods = np.concatenate([n for _, _, n in placed])
    return Filled(np.concatenate(chosen), classes, positions, pods)


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
    free = floor.free[rows] / floor.size[rows]
    share = need / floor.size[rows]
    after = free - share
    if score == "tight":
        return np.asarray(after.sum(axis=1))
    if score == "stretch":
        return np.asarray(after.max(axis=1) - after.min(axis=1))
    length = np.sqrt((free * free).sum(axis=1)) * np.sqrt((share * share).sum(axis=1))
    return np.asarray(-(free * share).sum(axis=1) / np.maximum(length, 1e-12))
