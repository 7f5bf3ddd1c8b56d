"""Minimum values and reserved capacity: what a claim must keep, besides room, when it takes more pods.

Both only get harder to satisfy as a claim fills, so the most pods it can take are found by bisection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pykarpenter.core.instance_types import Offering
from pykarpenter.core.interning import Ints
from pykarpenter.core.packing.claims import ClaimTable
from pykarpenter.core.packing.kinds import Kind, KindTable
from pykarpenter.core.packing.type_table import TypeTable
from pykarpenter.core.requirements import Requirement, Requirements

STRICT = "strict"
FALLBACK = "fallback"
ALL_FULL = "all compatible reserved offerings are full and no on-demand or spot fallback is available"
NONE_LEFT = "all units of the compatible reservations are taken by other planned machines"


@dataclass(frozen=True, slots=True)
class _Reserved:
    row: int
    reservation: str
    usable: bool


class Care:
    """Minimum values and reservations of one decision."""

    def __init__(
        self,
        kinds: KindTable,
        tables: Sequence[TypeTable],
        best_effort: bool = False,
        mode: str = STRICT,
        credits_: Mapping[str, int] | None = None,
        enabled: bool = True,
    ) -> None:
        self._kinds = kinds
        self._best_effort = best_effort
        self._strict = mode == STRICT
        self._enabled = enabled
        self._credits = dict(credits_ or {})
        self._left = _units(tables, self._credits)
        self._reserved: dict[int, list[_Reserved]] = {}
        self._ordinary: dict[int, frozenset[int]] = {}

    # Questions.

    def most(self, claims: ClaimTable, position: int, kind: Kind, vector: Ints, wanted: int) -> int:
        """How many of the wanted pods the claim can take without breaking either rule."""
        used, held = claims.used[position], claims.holds.get(position, frozenset())
        before = bool(held)
        if not (kind.needs_care or before) or wanted <= 0:
            return wanted

        def holds_for(count: int) -> bool:
            after = used + count * vector
            return not self.unmet(kind, after, held) and self._problem(kind, after, held, before) is None

        if holds_for(wanted):
            return wanted
        low, high = 0, wanted
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if holds_for(middle) else (low, middle)
        return low

    def admitted(self, kind: Kind, vector: Ints) -> tuple[Kind | None, str]:
        """The kind that a new claim with one such pod has; None with a reason when the pod must wait instead."""
        if not kind.needs_care:
            return kind, ""
        unmet = self.unmet(kind, vector)
        if unmet:
            if not self._best_effort or any(found == 0 for _, found in unmet):
                return None, ""
            lowered = {item.key: replace(item, min_values=found) for item, found in unmet}
            kind = self._kinds.narrow(kind, Requirements(lowered.get(k, r) for k, r in kind.requirements.items()))
        problem = self._problem(kind, vector, frozenset(), False)
        if problem is None:
            return kind, ""
        return None, problem if self._strict else ""

    def full_reservation(self, kind: Kind, vector: Ints) -> str:
        """Why a pod waits for a full reservation when nothing else would take it; empty when it does not."""
        if not (self._strict and self._enabled and len(kind.full)):
            return ""
        return ALL_FULL if bool((kind.full >= vector).all(axis=1).any()) else ""

    def settle(self, claims: ClaimTable, position: int, kind: Kind) -> None:
        """Take and give back units so that the claim holds one of each reservation that still fits it."""
        if not (self._enabled and kind.selection.has_reserved) and position not in claims.holds:
            return
        held = claims.holds.get(position, frozenset())
        wanted = self._holds(kind, claims.used[position], held)
        for reservation in wanted - held:
            self._left[reservation] -= 1
        for reservation in held - wanted:
            self._left[reservation] += 1
        claims.holds[position] = wanted

    # Minimum values.

    def unmet(self, kind: Kind, used: Ints, held: frozenset[str] = frozenset()) -> list[tuple[Requirement, int]]:
        """Requirements whose minimum is not reached by the types that hold what is used, with what they reach."""
        if not kind.min_values:
            return []
        rows = kind.surviving(used)
        if self._enabled and kind.selection.has_reserved and not self._best_effort:
            rows = self._launched_from(kind, rows, self._holds(kind, used, held))
        return _short(kind, rows)

    def _launched_from(self, kind: Kind, rows: Ints, holds: frozenset[str]) -> Ints:
        """The rows that are left once the claim is narrowed to its reservations, or to all else without any."""
        held = {item.row for item in self._reserved_of(kind) if item.usable and item.reservation in holds}
        left: Ints = rows[np.isin(rows, sorted(held if holds else self._ordinary[kind.index]))]
        return left

    # Reservations.

    def _problem(self, kind: Kind, used: Ints, held: frozenset[str], held_before: bool) -> str | None:
        if not self._enabled:
            return None
        rows = set(kind.surviving(used).tolist())
        if not self._offered(kind, rows):
            return NONE_LEFT if self._strict and held_before else None
        if self._holds(kind, used, held):
            return None
        if self._strict or not rows & self._ordinary[kind.index]:
            return NONE_LEFT
        return None

    def _holds(self, kind: Kind, used: Ints, held: frozenset[str]) -> frozenset[str]:
        offered = self._offered(kind, set(kind.surviving(used).tolist()))
        mine = [item for item in offered if item.reservation in held or self._left.get(item.reservation, 0) > 0]
        return frozenset(item.reservation for item in mine) if self._enough(kind, mine) else frozenset()

    def _offered(self, kind: Kind, rows: set[int]) -> list[_Reserved]:
        """Reserved offerings that a claim could be narrowed to; none when they leave it too few types for its minimum.

        Such a claim launches from what else is offered: narrowed, it could not be emitted and its pods had no machine.
        """
        found = [item for item in self._reserved_of(kind) if item.usable and item.row in rows]
        return found if self._enough(kind, found) else []

    def _enough(self, kind: Kind, offered: Sequence[_Reserved]) -> bool:
        if not kind.min_values or self._best_effort or not offered:
            return True
        return not _short(kind, np.array(sorted({item.row for item in offered}), dtype=np.int64))

    def _reserved_of(self, kind: Kind) -> list[_Reserved]:
        found = self._reserved.get(kind.index)
        if found is None:
            table, offerings = kind.template.table, kind.selection.offerings
            found = [
                _Reserved(
                    int(table.offering_row[i]), table.offerings[i].reservation_id, self._usable(table.offerings[i])
                )
                for i in np.flatnonzero(offerings & table.reserved).tolist()
            ]
            self._reserved[kind.index] = found
            self._ordinary[kind.index] = frozenset(table.offering_row[offerings & ~table.reserved].tolist())
        return found

    def _usable(self, offering: Offering) -> bool:
        return offering.reservation_capacity > 0 or offering.reservation_id in self._credits


def _short(kind: Kind, rows: Ints) -> list[tuple[Requirement, int]]:
    """Requirements whose minimum the types of these rows do not reach, with what they reach."""
    table = kind.template.table
    types = np.unique(table.row_type[rows])
    counts = [(item, distinct_values(table, types, item)) for item in kind.min_values]
    return [(item, found) for item, found in counts if found < (item.min_values or 0)]


def distinct_values(table: TypeTable, types: Ints, wanted: Requirement) -> int:
    """How many different values of a key the types offer, among those still wanted."""
    column = table.type_keys.get(wanted.key)
    if column is None:
        return 0
    ids = np.unique(column.ids[types]).tolist()
    values = {v for i in ids if i < len(column.distinct) for v in column.distinct[i].values}
    return sum(wanted.allows(value) for value in values)


def _units(tables: Sequence[TypeTable], credits_: Mapping[str, int]) -> dict[str, int]:
    """Units per reservation: the smallest capacity among its offerings, plus credit for reservations that exist."""
    units: dict[str, int] = {}
    for table in tables:
        for index in np.flatnonzero(table.reserved).tolist():
            offering = table.offerings[index]
            known = units.get(offering.reservation_id, offering.reservation_capacity)
            units[offering.reservation_id] = min(known, offering.reservation_capacity)
    for reservation, extra in credits_.items():
        if reservation in units:
            units[reservation] += extra
    return units
