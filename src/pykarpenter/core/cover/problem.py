"""The covering problem: classes of equal pods, kinds of machines, and what one machine may hold.

Rules that are not in here (topology between machines, limits) only make real fleets dearer, so a lower bound of this
problem is a lower bound of theirs. Whoever turns patterns back into plans must check those rules again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CoverProblem:
    """`requests[C, R]`, `demand[C]`, `capacity[M, R]`, `price[M]`, `allowed[C, M]`.

    A rule that lets at most k pods of some classes share a machine is one more resource: each such pod asks for 1,
    each machine has k. `shape` says how many of the first columns are real resources, whose proportions matter.
    """

    requests: Ints
    demand: Ints
    capacity: Ints
    price: Floats
    allowed: Bools
    shape: int = 0

    @property
    def real(self) -> int:
        """How many columns are real resources."""
        return self.shape or int(self.requests.shape[1])

    @property
    def classes(self) -> int:
        return int(self.requests.shape[0])

    @property
    def machines(self) -> int:
        return int(self.capacity.shape[0])

    def most_of_each(self, machine: int) -> Ints:
        """How many pods of each class fit on an empty machine, at most the demand; 0 where not allowed."""
        return np.where(self.allowed[:, machine], room_for(self.requests, self.capacity[machine], self.demand), 0)

    def with_classes(self, members: Ints) -> CoverProblem:
        """The problem of some of the classes alone."""
        return CoverProblem(
            self.requests[members], self.demand[members], self.capacity, self.price, self.allowed[members], self.shape
        )

    def with_demand(self, demand: Ints) -> CoverProblem:
        return CoverProblem(self.requests, demand, self.capacity, self.price, self.allowed, self.shape)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way to fill a machine, and how many machines to fill that way."""

    machine: int
    counts: Ints
    times: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """A machine of a cover: which it is, how many pods of each class that is there, and how many such machines."""

    machine: int
    classes: Ints
    pods: Ints
    times: int = 1


@dataclass(frozen=True, slots=True)
class Cover:
    """Patterns that hold the whole demand, and their cost."""

    patterns: tuple[Pattern, ...]
    cost: float


def room_for(requests: Ints, free: Ints, at_most: Ints) -> Ints:
    """How many pods of each class fit into what is free."""
    with np.errstate(divide="ignore"):
        room: Ints = np.where(requests > 0, free[None, :] // np.maximum(requests, 1), np.iinfo(np.int64).max)
    fitting: Ints = np.clip(room.min(axis=1), 0, at_most)
    return fitting
