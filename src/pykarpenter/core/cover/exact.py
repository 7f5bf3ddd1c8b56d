"""The cheapest cover of a small demand, exactly: a few pods of a few kinds, as most batches of a quiet cluster are.

Every mix of pods up to the demand is priced on the cheapest machine that holds it, and mixes are put together from
the smallest to the whole. No solver is needed and nothing is drawn; the work grows with the square of the mixes, so
larger demands get no answer.
"""

from __future__ import annotations

import numpy as np

from pykarpenter.core.cover.problem import Bundle, CoverProblem, Floats, Ints

# Mixes of pods that are looked at; with more there is no answer.
MOST_MIXES = 500


def is_small(problem: CoverProblem) -> bool:
    # By logarithms: the number of mixes of a large batch is beyond any number type.
    return bool(np.log1p(problem.demand).sum() <= np.log(MOST_MIXES) + 1e-9)


def exact_cover(problem: CoverProblem, per_machine: float = 0.0) -> list[Bundle] | None:
    """The cover with the least price, each machine weighing so much more than its price; None where there is none."""
    mixes = _mixes(problem.demand)
    machine = _cheapest(problem, mixes)
    price: Floats = np.where(machine >= 0, problem.price[machine] + per_machine, np.inf)
    least = np.full(len(mixes), np.inf)
    least[0] = 0.0
    taken = np.zeros(len(mixes), np.int64)
    digits = mixes.astype(np.int16)
    # A machine holds the first class that there is anyway, so only such parts are tried: by class.
    parts = [np.flatnonzero(np.isfinite(price) & (mixes[:, index] > 0)) for index in range(problem.classes)]
    inside = [(numbers, digits[numbers], price[numbers]) for numbers in parts]
    first = (mixes > 0).argmax(axis=1).tolist()
    for number in range(1, len(mixes)):
        numbers, smaller, cost = inside[first[number]]
        fits = np.flatnonzero((smaller <= digits[number]).all(axis=1))
        if len(fits):
            # A mix less a part of it is a mix whose number is the difference of theirs.
            sums = cost[fits] + least[number - numbers[fits]]
            best = int(sums.argmin())
            least[number], taken[number] = sums[best], numbers[fits[best]]
    return _bundles(mixes, machine, taken) if np.isfinite(least[-1]) else None


def _mixes(demand: Ints) -> Ints:
    """Every count of pods up to the demand, the last class counting fastest."""
    grid = np.indices(tuple((demand + 1).tolist()))
    mixes: Ints = grid.reshape(len(demand), -1).T.astype(np.int64)
    return mixes


def _cheapest(problem: CoverProblem, mixes: Ints) -> Ints:
    """The cheapest machine that holds each mix, or -1."""
    needed = mixes @ problem.requests
    order = np.argsort(problem.price, kind="stable")
    capacity = problem.capacity[order]
    # Machines that refuse a class of the mix, as a product of counts.
    fits = (mixes > 0).astype(np.float32) @ (~problem.allowed[:, order]).astype(np.float32) == 0
    for have, wanted in zip(capacity.T, needed.T, strict=True):
        # A resource of which every machine has enough for all decides nothing.
        if wanted.max() > have.min():
            fits &= have[None] >= wanted[:, None]
    return np.where(fits.any(axis=1), order[fits.argmax(axis=1)], -1)


def _bundles(mixes: Ints, machine: Ints, taken: Ints) -> list[Bundle]:
    times: dict[int, int] = {}
    number = len(mixes) - 1
    while number:
        part = int(taken[number])
        times[part] = times.get(part, 0) + 1
        number -= part
    found: list[Bundle] = []
    for part, count in times.items():
        classes = np.flatnonzero(mixes[part])
        found.append(Bundle(int(machine[part]), classes, mixes[part][classes], count))
    return found
