"""Whether pods that a set of machines sets free would land where the plan has room for them.

Plans pack pods tightly; schedulers spread them. A pod that takes the room meant for a larger one leaves that one
without a place, a machine is bought for it, and the saving is gone. Here the pods are placed as a scheduler would,
each where most is free, in several orders. On resources alone, and only for sets small enough for one more machine
to matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pykarpenter.core.cover.problem import Bools, Floats, Ints
from pykarpenter.core.fleet.problem import FleetProblem

# With more pods than this one machine more or less decides nothing, and looking takes long.
MOST_PODS = 60


def strays(
    problem: FleetProblem, going: tuple[int, ...], lifted: Mapping[int, int], bought: Sequence[int]
) -> list[dict[int, int]]:
    """Pods by class that find no place, for each order looked at; `bought` are the kinds of the new machines."""
    kinds = problem.kinds
    stays = np.setdiff1d(np.arange(problem.nodes), np.array(going, np.int64))
    free: Ints = problem.node_free[stays]
    size: Ints = free + problem.node_pods[stays] @ kinds.requests
    accepts: Bools = problem.node_accepts[stays]
    if bought:
        new = kinds.capacity[list(bought)]
        free, size = np.vstack([free, new]), np.vstack([size, new])
        accepts = np.vstack([accepts, kinds.allowed[:, list(bought)].T])
    share: Floats = 1.0 / np.maximum(size[:, : kinds.real], 1)
    return [_left_over(problem, order, free.copy(), accepts, share) for order in _orders(lifted)]


def _orders(lifted: Mapping[int, int]) -> Iterator[list[int]]:
    """Class by class in both directions, and in turns."""
    classes = sorted(lifted)
    yield [index for index in classes for _ in range(lifted[index])]
    yield [index for index in reversed(classes) for _ in range(lifted[index])]
    longest = max(lifted.values(), default=0)
    turns = [index for turn in range(longest) for index in classes if lifted[index] > turn]
    yield turns
    yield turns[::-1]


def _left_over(problem: FleetProblem, order: list[int], free: Ints, accepts: Bools, share: Floats) -> dict[int, int]:
    requests, real = problem.kinds.requests, problem.kinds.real
    left: dict[int, int] = {}
    for index in order:
        need = requests[index]
        fits = np.flatnonzero((free >= need).all(axis=1) & accepts[:, index])
        if not len(fits):
            left[index] = left.get(index, 0) + 1
            continue
        asked = need[:real] > 0
        spread = ((free[fits][:, :real] - need[:real]) * share[fits])[:, asked].mean(axis=1)
        free[fits[spread.argmax()]] -= need
    return left
