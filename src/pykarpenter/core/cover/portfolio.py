"""Several ways to cover a demand, from milliseconds to seconds of work; whoever asks keeps the cheapest."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pykarpenter.core.cover.bound import Relaxation
from pykarpenter.core.cover.columns import LARGE, NORMAL, THOROUGH, column_cover
from pykarpenter.core.cover.greedy import default_weightings, greedy_cover
from pykarpenter.core.cover.problem import Bundle, CoverProblem, Floats, Ints, Pattern
from pykarpenter.core.cover.shaped import FEW_MACHINES, MANY_MACHINES, shaped_cover

# Column generation pays for batches with this many pods and few enough classes.
_COLUMNS_FROM_PODS = 5000
_LARGE_FROM_PODS = 50_000
_COLUMNS_UP_TO_CLASSES = 120
_GREEDY_UP_TO_CLASSES = 60


def portfolio(
    problem: CoverProblem, effort: str, should_stop: Callable[[], bool]
) -> Iterator[tuple[float, Iterator[list[Bundle]]]]:
    """Ways to cover, quick ones first, each with the cost below which it is no longer worth trying."""
    relaxation = Relaxation(problem)
    relaxed = relaxation.solve(problem.demand)
    value = (relaxed.worth * problem.requests).sum(axis=1)
    thorough = effort == "thorough"
    yield relaxed.cost, _shaped(problem, relaxation)
    if problem.classes <= _GREEDY_UP_TO_CLASSES or thorough:
        yield relaxed.cost * (1.002 if thorough else 1.01), _greedy(problem, value, relaxation.machines)
    large = int(problem.demand.sum()) >= _COLUMNS_FROM_PODS
    if thorough or (large and problem.classes <= _COLUMNS_UP_TO_CLASSES):
        yield relaxed.cost * (1.002 if thorough else 1.01), _columns(problem, thorough, should_stop)


def _shaped(problem: CoverProblem, relaxation: Relaxation) -> Iterator[list[Bundle]]:
    even = relaxation.even_sized(problem.demand)
    start = relaxation.solve(problem.demand, even)
    for order in _orders(problem, many_machines=even is not None):
        for score in FEW_MACHINES if even is None else MANY_MACHINES:
            filled = shaped_cover(problem, relaxation, start, score, order)
            if filled is not None:
                yield _bundles_of_rows(filled.machines, filled.classes, filled.positions, filled.pods)


def _orders(problem: CoverProblem, many_machines: bool) -> list[Ints]:
    """Orders in which classes are placed; where rules force many machines, pods under most rules come first."""
    size = problem.requests / np.maximum(problem.capacity.max(axis=0), 1)
    if many_machines:
        rules = (problem.requests[:, problem.real :] > 0).sum(axis=1)
        return [np.lexsort((-size[:, : problem.real].max(axis=1), -rules))]
    orders = [np.argsort(-size.max(axis=1), kind="stable")]
    if problem.classes <= _GREEDY_UP_TO_CLASSES:
        orders.append(np.argsort(-size.sum(axis=1), kind="stable"))
    return orders


def _greedy(problem: CoverProblem, value: Floats, machines: Ints) -> Iterator[list[Bundle]]:
    cover = greedy_cover(problem, value, default_weightings(problem), machines)
    if cover is not None:
        yield _bundles_of_patterns(cover.patterns)


def _columns(problem: CoverProblem, thorough: bool, should_stop: Callable[[], bool]) -> Iterator[list[Bundle]]:
    very_large = int(problem.demand.sum()) >= _LARGE_FROM_PODS
    effort = THOROUGH if thorough else (LARGE if very_large else NORMAL)
    cover = column_cover(problem, effort, should_stop).cover
    if cover is not None:
        yield _bundles_of_patterns(cover.patterns)


def _bundles_of_patterns(patterns: tuple[Pattern, ...]) -> list[Bundle]:
    found: list[Bundle] = []
    for pattern in patterns:
        units = np.flatnonzero(pattern.counts)
        found.extend([Bundle(pattern.machine, units, pattern.counts[units])] * pattern.times)
    return found


def _bundles_of_rows(machines: Ints, classes: Ints, positions: Ints, pods: Ints) -> list[Bundle]:
    order = np.lexsort((classes, positions))
    classes, positions, pods = classes[order], positions[order], pods[order]
    starts = np.flatnonzero(np.r_[True, positions[1:] != positions[:-1]])
    ends = np.r_[starts[1:], len(positions)]
    return [
        Bundle(int(machines[positions[start]]), classes[start:end], pods[start:end])
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
