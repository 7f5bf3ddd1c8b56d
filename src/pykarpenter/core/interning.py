"""Small integers for what repeats: resource columns and requirement sets, with memoised algebra between the sets.

The meaning stays that of `core.requirements`; here each distinct question is only asked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from pykarpenter.core.requirements import Requirement, Requirements

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

INCOMPATIBLE = -1


class ResourceColumns:
    """Resource names to table columns; columns are only ever added, so older tables stay valid when padded."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._index: dict[str, int] = {}
        self.add(("cpu", "memory", "pods"))

    def add(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._index:
                self._index[name] = len(self.names)
                self.names.append(name)

    @property
    def width(self) -> int:
        return len(self.names)

    def vector(self, amounts: Mapping[str, int]) -> Ints:
        self.add(amounts)
        row = np.zeros(self.width, dtype=np.int64)
        for name, amount in amounts.items():
            row[self._index[name]] = amount
        return row

    def mapping(self, row: Ints) -> dict[str, int]:
        """The resources of a row; zeros are left out."""
        return {name: int(amount) for name, amount in zip(self.names, row.tolist(), strict=False) if amount}

    def padded(self, rows: Ints) -> Ints:
        """The rows with zero columns for resources that were named after they were made."""
        missing = self.width - rows.shape[-1]
        if missing <= 0:
            return rows
        return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, missing)])


class RequirementSets:
    """Interned requirement sets; merging answers a new id, or INCOMPATIBLE."""

    def __init__(self, well_known: frozenset[str]) -> None:
        self.well_known = well_known
        self._sets: list[Requirements] = []
        self._ids: dict[frozenset[Requirement], int] = {}
        self._merged: dict[tuple[int, int], int] = {}
        self._pinned: dict[tuple[int, str, tuple[str, ...]], int] = {}
        self.empty = self.intern(Requirements())

    def intern(self, items: Requirements) -> int:
        key = frozenset(items.values())
        found = self._ids.get(key)
        if found is None:
            found = len(self._sets)
            self._ids[key] = found
            self._sets.append(items)
        return found

    def __getitem__(self, index: int) -> Requirements:
        return self._sets[index]

    def __len__(self) -> int:
        return len(self._sets)

    def merge(self, host: int, guest: int) -> int:
        """What a new machine's requirements become when it takes the guest: well-known keys may be undefined."""
        if guest == self.empty:
            return host
        key = (host, guest)
        found = self._merged.get(key)
        if found is None:
            left, right = self._sets[host], self._sets[guest]
            if left.compatible(right, self.well_known):
                found = self.intern(left.merged(right.values()))
            else:
                found = INCOMPATIBLE
            self._merged[key] = found
        return found

    def pin(self, host: int, key: str, *values: str) -> int:
        """The host narrowed to one or some values of a key, whether or not the key was defined."""
        question = (host, key, values)
        found = self._pinned.get(question)
        if found is None:
            items = self._sets[host]
            narrowed = items.get_or_exists(key).intersection(Requirement(key, frozenset(values)))
            found = self.intern(items.merged([narrowed])) if narrowed.values else INCOMPATIBLE
            self._pinned[question] = found
        return found
