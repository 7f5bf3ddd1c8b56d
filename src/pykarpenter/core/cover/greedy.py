"""A quick cover: fill the machine that holds most value per dollar, repeat the filling while demand lasts."""

from __future__ import annotations

import numpy as np

from pykarpenter.core.cover.filling import by_dot_product
from pykarpenter.core.cover.problem import Cover, CoverProblem, Floats, Ints, Pattern

# How many machines stay in the race between full looks at all of them.
_SHORT_LIST = 4
_FULL_LOOK_EVERY = 10


def greedy_cover(problem: CoverProblem, value: Floats, weightings: tuple[Floats, ...], machines: Ints) -> Cover | None:
    """A cover of the demand, or None when some class fits on no machine."""
    remaining = problem.demand.copy()
    patterns: list[Pattern] = []
    cost = 0.0
    short_list = list(machines)
    rounds = 0
    while remaining.any():
        looked_at = machines if rounds % _FULL_LOOK_EVERY == 0 else short_list
        ranked = _ranked(problem, value, weightings, looked_at, remaining)
        if not ranked and looked_at is not machines:
            ranked = _ranked(problem, value, weightings, machines, remaining)
        if not ranked:
            return None
        short_list = [machine for _, machine, _ in ranked[:_SHORT_LIST]]
        _, machine, counts = ranked[0]
        used = counts > 0
        times = int((remaining[used] // counts[used]).min())
        remaining = remaining - counts * times
        patterns.append(Pattern(int(machine), counts, times))
        cost += float(problem.price[machine]) * times
        rounds += 1
    return Cover(tuple(patterns), cost)


def _ranked(
    problem: CoverProblem, value: Floats, weightings: tuple[Floats, ...], machines: Ints | list[int], remaining: Ints
) -> list[tuple[float, int, Ints]]:
    found: list[tuple[float, int, Ints]] = []
    for machine in machines:
        best: tuple[float, int, Ints] | None = None
        for weights in weightings:
            counts = by_dot_product(problem, int(machine), remaining, weights)
            if not counts.any():
                continue
            worth = float(counts @ value) / float(problem.price[machine])
            if best is None or worth > best[0]:
                best = (worth, int(machine), counts)
        if best is not None:
            found.append(best)
    found.sort(key=lambda entry: (-entry[0], entry[1]))
    return found


def default_weightings(problem: CoverProblem) -> tuple[Floats, ...]:
    """Every resource alike, and each of the first two stressed in turn."""
    resources = problem.requests.shape[1]
    alike = np.ones(resources)
    stressed = []
    for index in range(min(2, resources)):
        weights = np.ones(resources)
        weights[index] = 2.0
        stressed.append(weights)
    return (alike, *stressed)
