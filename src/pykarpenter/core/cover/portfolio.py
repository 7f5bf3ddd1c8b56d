"""Several ways to cover a demand, from milliseconds to seconds of work; whoever asks keeps the cheapest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from pykarpenter.core.cover.bound import Relaxation
from pykarpenter.core.cover.columns import LARGE, NORMAL, PART, SMALL, THOROUGH, column_cover
from pykarpenter.core.cover.greedy import default_weightings, greedy_cover
from pykarpenter.core.cover.problem import Bundle, CoverProblem, Floats, Ints, Pattern
from pykarpenter.core.cover.shaped import FEW_MACHINES, MANY_MACHINES, shaped_cover

# Batches with this many pods are worth seconds, as long as their classes are few enough.
_LARGE_FROM_PODS = 5000
_VERY_LARGE_FROM_PODS = 50_000
_COLUMNS_UP_TO_CLASSES = 120
# So few that column generation takes milliseconds.
_FEW_CLASSES = 6
# A single pod has the cheapest machine that holds it. Up to a few pods, a look at a few machines takes milliseconds.
_ONE_POD = 1
_FEW_PODS = 100
# Fewer pods than that, or fewer of each class, have no filling that is worth repeating.
_MANY_PODS = 50
_REPEATS = 4
_GREEDY_UP_TO_CLASSES = 60
_GREEDY_UP_TO_CLASSES_OF_MANY_PODS = 200
_GREEDY_UP_TO_MACHINES = 64
_GREEDY_UP_TO_MACHINES_FOR_FEW_PODS = 16
# With more classes than that even the most effort stays with what takes seconds.
_THOROUGH_UP_TO_CLASSES = 1200


def portfolio(
    problem: CoverProblem, effort: str, should_stop: Callable[[], bool]
) -> Iterator[tuple[float, Iterator[list[Bundle]]]]:
    """Ways to cover, quick ones first, each with the cost below which it is no longer worth trying."""
    relaxation = Relaxation(problem)
    relaxed = relaxation.solve(problem.demand)
    value = (relaxed.worth * problem.requests).sum(axis=1)
    thorough = effort == "thorough"
    yield relaxed.cost, _shaped(problem, relaxation)
    enough = relaxed.cost * (1.002 if thorough else 1.01)
    pods = int(problem.demand.sum())
    large = pods >= _LARGE_FROM_PODS
    # A filling that can be repeated is worth looking for.
    repeats = pods >= max(_MANY_PODS, _REPEATS * problem.classes)
    greedy_up_to = _GREEDY_UP_TO_CLASSES_OF_MANY_PODS if large else _GREEDY_UP_TO_CLASSES
    few_pods = _ONE_POD < pods <= _FEW_PODS
    if (problem.classes <= greedy_up_to and (repeats or few_pods)) or (
        problem.classes <= _THOROUGH_UP_TO_CLASSES and thorough
    ):
        machines = relaxation.machines
        most = _GREEDY_UP_TO_MACHINES if repeats or thorough else _GREEDY_UP_TO_MACHINES_FOR_FEW_PODS
        if len(machines) > most:
            machines = relaxation.short_list(relaxed, most // 2)
        yield enough, _greedy(problem, value, machines)
    few = problem.classes <= _FEW_CLASSES and repeats
    if problem.classes <= _COLUMNS_UP_TO_CLASSES and (thorough or large or few):
        yield enough, _columns(problem, thorough, should_stop)
    elif problem.classes <= _THOROUGH_UP_TO_CLASSES and thorough:
        yield enough, _columns_by_parts(problem, should_stop)


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
    pods = int(problem.demand.sum())
    effort = LARGE if pods >= _VERY_LARGE_FROM_PODS else (NORMAL if pods >= _LARGE_FROM_PODS else SMALL)
    if thorough:
        effort = THOROUGH
    cover = column_cover(problem, effort, should_stop, prove=False).cover
    if cover is not None:
        yield _bundles_of_patterns(cover.patterns)


def _columns_by_parts(problem: CoverProblem, should_stop: Callable[[], bool]) -> Iterator[list[Bundle]]:
    """Column generation for many classes: drawn into parts of bearable size, each covered on its own."""
    parts = -(-problem.classes // _COLUMNS_UP_TO_CLASSES)
    drawn = np.random.default_rng(0).permutation(problem.classes)
    found: list[Bundle] = []
    for number in range(parts):
        members = np.sort(drawn[number::parts])
        part = problem.with_classes(members)
        cover = None if should_stop() else column_cover(part, PART, should_stop, prove=False).cover
        if cover is None:
            return
        for bundle in _bundles_of_patterns(cover.patterns):
            found.append(replace(bundle, classes=members[bundle.classes]))
    yield found


def _bundles_of_patterns(patterns: tuple[Pattern, ...]) -> list[Bundle]:
    found: list[Bundle] = []
    for pattern in patterns:
        units = np.flatnonzero(pattern.counts)
        found.append(Bundle(pattern.machine, units, pattern.counts[units], pattern.times))
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
