"""Machines being planned, as arrays that grow: kind, what is used, how many pods, and which pods they are."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pykarpenter.core.interning import Ints
from pykarpenter.core.packing.classes import PodClass
from pykarpenter.core.ports import HostPort


@dataclass(slots=True)
class Share:
    """A run of a class's pods on one machine."""

    members: PodClass
    start: int
    count: int


@dataclass(slots=True, eq=False)
class ClaimTable:
    """Open claims; positions are stable for the whole decision."""

    width: int
    count: int = 0
    kinds: Ints = field(default_factory=lambda: np.zeros(16, dtype=np.int64))
    used: Ints = field(default_factory=lambda: np.zeros((16, 0), dtype=np.int64))
    pods: Ints = field(default_factory=lambda: np.zeros(16, dtype=np.int64))
    shares: list[list[Share]] = field(default_factory=list)
    ports: dict[int, list[HostPort]] = field(default_factory=dict)
    # Claim keys per CSI driver.
    volumes: dict[int, dict[str, set[str]]] = field(default_factory=dict)
    # Drivers whose devices the claim's pods use; a claim of pods with devices has an entry, be it empty.
    devices: dict[int, tuple[str, ...]] = field(default_factory=dict)
    # Reservation ids of which the claim holds a unit.
    holds: dict[int, frozenset[str]] = field(default_factory=dict)
    min_values_relaxed: set[int] = field(default_factory=set)
    # Kinds that some claim has or had.
    present: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.used = np.zeros((16, self.width), dtype=np.int64)

    def open(self, kind: int, number: int) -> Ints:
        """Add empty claims of a kind; answers their positions."""
        needed = self.count + number
        if needed > len(self.kinds):
            size = max(needed, 2 * len(self.kinds))
            self.kinds = _grown(self.kinds, size)
            self.pods = _grown(self.pods, size)
            self.used = _grown(self.used, size)
        positions = np.arange(self.count, needed, dtype=np.int64)
        self.kinds[positions] = kind
        self.shares.extend([] for _ in range(number))
        self.count = needed
        return positions


def _grown(rows: Ints, size: int) -> Ints:
    grown = np.zeros((size, *rows.shape[1:]), dtype=np.int64)
    grown[: len(rows)] = rows
    return grown
