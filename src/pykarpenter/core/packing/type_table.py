"""A catalogue as arrays: one row per type and group of offerings that share overrides, one row per offering.

Answers which rows and offerings a requirement set leaves, and at what price. Made once per catalogue and kept
between decisions; it never depends on a pool, a pod or a limit. A catalogue outlives the templates of pools: answers
that only former ones asked for are let go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pykarpenter.api import labels
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.interning import Bools, Floats, Ints, ResourceColumns
from pykarpenter.core.recent import Recent
from pykarpenter.core.requirements import Requirement, Requirements

# Bounds the memory of a table whatever is asked.
MAX_ANSWERS = 2048


class KeyColumn:
    """What each row says about one key, as ids of the distinct requirements; the last id means nothing is said."""

    def __init__(self, key: str, sets: Sequence[Requirements]) -> None:
        distinct: dict[Requirement, int] = {}
        ids = [distinct.setdefault(s[key], len(distinct)) if key in s else -1 for s in sets]
        self.distinct = list(distinct)
        self.ids: Ints = np.array([len(distinct) if i < 0 else i for i in ids], dtype=np.int64)
        self._masks: Recent[Requirement, Bools] = Recent(MAX_ANSWERS)
        self._negative: Bools | None = None

    def meeting(self, wanted: Requirement) -> Bools:
        """Rows whose requirement on the key can meet the wanted one; silent rows can."""
        found = self._masks.get(wanted)
        if found is None:
            truth = [r.intersects(wanted) or (r.is_negative and wanted.is_negative) for r in self.distinct]
            found = self._masks.put(wanted, np.array([*truth, True], dtype=bool)[self.ids])
        return found

    def turn(self) -> None:
        """Let go of masks that were not asked for since the last turn."""
        self._masks.turn()

    def negative(self) -> Bools:
        """Rows that are silent or negative on the key: all that a host without the key can take."""
        if self._negative is None:
            self._negative = np.array([*(r.is_negative for r in self.distinct), True], dtype=bool)[self.ids]
        return self._negative


@dataclass(slots=True)
class Selection:
    """What a requirement set leaves of a catalogue."""

    # Rows with a launchable compatible offering, and rows that only a full reservation offers.
    rows: Bools
    full_rows: Bools
    # Compatible available offerings.
    offerings: Bools
    # Per type: price of the cheapest launchable compatible offering (inf: none or unknown) and its row (-1: none).
    price: Floats
    best: Ints
    has_reserved: bool


class TypeTable:
    """Arrays over instance types, their offering groups (rows) and their offerings."""

    def __init__(self, types: tuple[InstanceType, ...], columns: ResourceColumns, well_known: frozenset[str]) -> None:
        self.types = types
        self.well_known = well_known
        self.names = np.array([t.name for t in types], dtype=object)
        self._columns = columns
        self._build_rows()
        self._build_offerings()
        self.type_keys = {key: KeyColumn(key, [t.requirements for t in types]) for key in self._keys(types)}
        self._selections: Recent[tuple[frozenset[Requirement], frozenset[str]], Selection]
        self._selections = Recent(MAX_ANSWERS)

    @staticmethod
    def _keys(types: Sequence[InstanceType]) -> list[str]:
        return sorted({key for item in types for key in item.requirements})

    def _build_rows(self) -> None:
        row_type: list[int] = []
        allocatable = []
        capacity = []
        self._row_of: list[list[int]] = []
        for index, item in enumerate(self.types):
            groups: dict[tuple[frozenset[tuple[str, int]], frozenset[tuple[str, int]]], int] = {}
            rows = []
            for offering in sorted(item.offerings, key=lambda o: bool(o.capacity_override or o.overhead_override)):
                key = (frozenset(offering.capacity_override.items()), frozenset(offering.overhead_override.items()))
                if key not in groups:
                    groups[key] = len(row_type)
                    row_type.append(index)
                    allocatable.append(self._columns.vector(item.allocatable(offering)))
                    capacity.append(self._columns.vector({**item.capacity, **offering.capacity_override}))
            for offering in item.offerings:
                key = (frozenset(offering.capacity_override.items()), frozenset(offering.overhead_override.items()))
                rows.append(groups[key])
            self._row_of.append(rows)
        width = self._columns.width
        self.row_type: Ints = np.array(row_type, dtype=np.int64)
        self._allocatable = _stack(allocatable, width)
        self._capacity = _stack(capacity, width)

    def _build_offerings(self) -> None:
        listed: list[tuple[int, int, Offering]] = [
            (index, row, offering)
            for index, item in enumerate(self.types)
            for row, offering in zip(self._row_of[index], item.offerings, strict=True)
        ]
        # Cheapest first within a type, so that the first compatible one is the choice; unknown prices come last.
        listed.sort(key=lambda o: (o[0], _price(o[2]), o[2].zone, o[2].capacity_type))
        self.offerings = [offering for _, _, offering in listed]
        self.offering_type: Ints = np.array([index for index, _, _ in listed], dtype=np.int64)
        self.offering_row: Ints = np.array([row for _, row, _ in listed], dtype=np.int64)
        self.offering_price: Floats = np.array([_price(o) for o in self.offerings], dtype=np.float64)
        self.available: Bools = np.array([o.available for o in self.offerings], dtype=bool)
        self.launchable: Bools = np.array([o.launchable for o in self.offerings], dtype=bool)
        self.reserved: Bools = np.array([o.capacity_type == labels.RESERVED for o in self.offerings], dtype=bool)
        self.capacity_types = sorted({o.capacity_type for o in self.offerings})
        numbered = {name: index for index, name in enumerate(self.capacity_types)}
        self.offering_capacity_type: Ints = np.array(
            [numbered[o.capacity_type] for o in self.offerings], dtype=np.int64
        )
        self.price_overlaid: Bools = np.array(
            [any(o.price_overlaid for o in t.offerings) for t in self.types], dtype=bool
        )
        self.capacity_overlaid: Bools = np.array([t.capacity_overlaid for t in self.types], dtype=bool)
        keys = sorted({key for o in self.offerings for key in o.requirements})
        self.offering_keys = {key: KeyColumn(key, [o.requirements for o in self.offerings]) for key in keys}

    @property
    def row_count(self) -> int:
        return len(self.row_type)

    def allocatable(self) -> Ints:
        """Allocatable of each row, as wide as the columns are now."""
        self._allocatable = self._columns.padded(self._allocatable)
        return self._allocatable

    def capacity(self) -> Ints:
        """Capacity of each row, as wide as the columns are now."""
        self._capacity = self._columns.padded(self._capacity)
        return self._capacity

    def whole_types(self, allowed: Bools, offered: Bools) -> Bools:
        """The allowed rows without the types of which another offered row is not allowed.

        A claim names types, not offerings: whatever a type is offered as, it may be bought as.
        """
        if self.row_count <= len(self.types):
            return allowed
        partly = np.zeros(len(self.types), dtype=bool)
        partly[self.row_type[offered & ~allowed]] = True
        return allowed & ~partly[self.row_type]

    def types_meeting(self, wanted: Requirements) -> Bools:
        """Types whose own requirements can meet the wanted ones, offerings aside."""
        mask = np.ones(len(self.types), dtype=bool)
        for key, item in wanted.items():
            column = self.type_keys.get(key)
            if column is not None:
                mask &= column.meeting(item)
        return mask

    def offerings_compatible(self, wanted: Requirements) -> Bools:
        """Offerings that a machine with these requirements can take, available or not."""
        mask = np.ones(len(self.offerings), dtype=bool)
        for key, column in self.offering_keys.items():
            if key in wanted:
                mask &= column.meeting(wanted[key])
            elif key not in self.well_known:
                mask &= column.negative()
        return mask

    def select(self, wanted: Requirements, credited: frozenset[str] = frozenset()) -> Selection:
        """What the requirements leave; credited reservations count as not full."""
        cache_key = (frozenset(wanted.values()), credited)
        found = self._selections.get(cache_key)
        return self._selections.put(cache_key, self._select(wanted, credited)) if found is None else found

    def turn(self) -> None:
        """Let go of answers that were not asked for since the last turn."""
        self._selections.turn()
        for column in (*self.type_keys.values(), *self.offering_keys.values()):
            column.turn()

    def _select(self, wanted: Requirements, credited: frozenset[str]) -> Selection:
        types = self.types_meeting(wanted)
        offerings = self.offerings_compatible(wanted) & self.available & types[self.offering_type]
        launchable = self.launchable
        if credited:
            launchable = launchable | np.array([o.reservation_id in credited for o in self.offerings], dtype=bool)
        rows = np.zeros(self.row_count, dtype=bool)
        rows[self.offering_row[offerings & launchable]] = True
        full_rows = np.zeros(self.row_count, dtype=bool)
        full_rows[self.offering_row[offerings & ~launchable]] = True
        price, best = self.cheapest(offerings & launchable)
        return Selection(rows, full_rows & ~rows, offerings, price, best, bool((offerings & self.reserved).any()))

    def cheapest(self, allowed: Bools) -> tuple[Floats, Ints]:
        """Per type the price and row of the first allowed offering; offerings are sorted by price within a type."""
        best = np.full(len(self.types), -1, dtype=np.int64)
        backwards = np.flatnonzero(allowed)[::-1]
        best[self.offering_type[backwards]] = backwards
        price = np.full(len(self.types), np.inf)
        has = best >= 0
        price[has] = self.offering_price[best[has]]
        return price, best


def _price(offering: Offering) -> float:
    return np.inf if offering.price is None else offering.price


def _stack(rows: Sequence[Ints], width: int) -> Ints:
    table = np.zeros((len(rows), width), dtype=np.int64)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return table
