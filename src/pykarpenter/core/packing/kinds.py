"""Kinds of planned machines: a template, its narrowed requirements and the rows that are ruled out otherwise.

Thousands of open claims are of a few dozen kinds; whatever is true of a kind is computed once. A claim's types are
those rows of its kind that hold everything placed on it so far, so nothing needs to be stored per claim and type.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykarpenter.core.interning import INCOMPATIBLE, Bools, Ints, RequirementSets
from pykarpenter.core.packing.templates import Template
from pykarpenter.core.packing.type_table import Selection
from pykarpenter.core.requirements import Requirement, Requirements


@dataclass(slots=True, eq=False)
class Kind:
    """What is common to all claims of one kind."""

    index: int
    template: Template
    requirements_id: int
    requirements: Requirements
    allowed_id: int
    selection: Selection
    # Rows that remain, what pods can have of each, and the rows that no other remaining row exceeds everywhere.
    rows: Ints
    usable: Ints
    frontier: Ints
    # Kinds with equal frontiers share this number.
    frontier_id: int
    # What pods could have of rows that only a full reservation offers.
    full: Ints
    min_values: tuple[Requirement, ...]

    @property
    def needs_care(self) -> bool:
        """Whether taking a pod depends on more than room: minimum values, or units of a reservation."""
        return bool(self.min_values) or self.selection.has_reserved

    def rooms(self, used: Ints, vector: Ints) -> Ints:
        """How many pods of that size fit beside what is used; one answer per row of `used`."""
        return rooms_below(self.frontier, used, vector)

    def room(self, vector: Ints) -> int:
        """How many pods of that size an empty machine of this kind holds."""
        if not len(self.frontier):
            return 0
        wanted = vector > 0
        each = self.frontier[:, wanted] // vector[wanted]
        return max(0, int(each.min(axis=1).max()))

    def surviving(self, used: Ints) -> Ints:
        """The rows that hold all that is used."""
        fitting: Ints = self.rows[(self.usable >= used).all(axis=1)]
        return fitting

    def single(self, key: str) -> str | None:
        """The value of a key when it is narrowed to one."""
        item = self.requirements.get(key)
        if item is None or item.complement or len(item.values) != 1:
            return None
        return next(iter(item.values))


class KindTable:
    """Interned kinds and the memoised steps between them."""

    def __init__(self, sets: RequirementSets, credited: frozenset[str] = frozenset()) -> None:
        self.sets = sets
        self._credited = credited
        self.kinds: list[Kind] = []
        self._ids: dict[tuple[int, int, int], Kind] = {}
        self._allowed: list[Bools | None] = [None]
        self._allowed_ids: dict[bytes, int] = {}
        self._usable: dict[int, Ints] = {}
        self._frontiers: dict[bytes, int] = {}
        self._merged: dict[tuple[int, int], Kind | None] = {}

    def root(self, template: Template) -> Kind:
        """A machine of the template before any pod; limits are applied when one is opened."""
        return self._kind(template, self.sets.intern(template.requirements), 0)

    def merge(self, kind: Kind, guest: int) -> Kind | None:
        """The kind once it has taken a pod's requirements; None when they contradict."""
        key = (kind.index, guest)
        if key not in self._merged:
            merged = self.sets.merge(kind.requirements_id, guest)
            same = merged == kind.requirements_id
            self._merged[key] = (
                None
                if merged == INCOMPATIBLE
                else (kind if same else self._kind(kind.template, merged, kind.allowed_id))
            )
        return self._merged[key]

    def pin(self, kind: Kind, key: str, *values: str) -> Kind | None:
        pinned = self.sets.pin(kind.requirements_id, key, *values)
        if pinned == INCOMPATIBLE:
            return None
        return kind if pinned == kind.requirements_id else self._kind(kind.template, pinned, kind.allowed_id)

    def unrestricted(self, kind: Kind) -> Kind:
        """The kind with all rows that its requirements admit."""
        return kind if kind.allowed_id == 0 else self._kind(kind.template, kind.requirements_id, 0)

    def narrow(self, kind: Kind, requirements: Requirements) -> Kind:
        """The same machine with other requirements, for minimum values that were relaxed."""
        return self._kind(kind.template, self.sets.intern(requirements), kind.allowed_id)

    def restrict(self, kind: Kind, allowed: Bools) -> Kind:
        """The kind without the rows that are not allowed."""
        before = self._allowed[kind.allowed_id]
        mask = allowed if before is None else allowed & before
        if mask.all():
            return kind
        key = bytes([kind.template.index & 255, kind.template.index >> 8]) + np.packbits(mask).tobytes()
        found = self._allowed_ids.get(key)
        if found is None:
            found = self._allowed_ids[key] = len(self._allowed)
            self._allowed.append(mask)
        return self._kind(kind.template, kind.requirements_id, found)

    def _kind(self, template: Template, requirements_id: int, allowed_id: int) -> Kind:
        key = (template.index, requirements_id, allowed_id)
        found = self._ids.get(key)
        if found is None:
            found = self._make(template, requirements_id, allowed_id)
            self._ids[key] = found
            self.kinds.append(found)
        return found

    def _make(self, template: Template, requirements_id: int, allowed_id: int) -> Kind:
        requirements = self.sets[requirements_id]
        selection = template.table.select(requirements, self._credited)
        usable = self._usable.get(template.index)
        if usable is None:
            usable = self._usable[template.index] = template.usable()
        mask = selection.rows & (usable >= 0).all(axis=1)
        allowed = self._allowed[allowed_id]
        if allowed is not None:
            mask = mask & allowed
        rows = np.flatnonzero(mask)
        top = frontier(usable[rows])
        return Kind(
            index=len(self.kinds),
            template=template,
            requirements_id=requirements_id,
            requirements=requirements,
            allowed_id=allowed_id,
            selection=selection,
            rows=rows,
            usable=usable[rows],
            full=usable[np.flatnonzero(selection.full_rows)] if selection.has_reserved else usable[:0],
            frontier=top,
            frontier_id=self._frontiers.setdefault(top.tobytes(), len(self._frontiers)),
            min_values=tuple(r for r in requirements.items_sorted() if r.min_values),
        )


def rooms_below(tops: Ints, used: Ints, vector: Ints) -> Ints:
    """How many pods fit beside what is used below any of the tops; one answer per row of `used`."""
    best = np.zeros(len(used), dtype=np.int64)
    needs = [(column, need) for column, need in enumerate(vector.tolist()) if need > 0]
    others = [column for column, need in enumerate(vector.tolist()) if need <= 0]
    for top in tops:
        each: Ints | None = None
        for column, need in needs:
            room = (top[column] - used[:, column]) // need
            each = room if each is None else np.minimum(each, room, out=each)
        if each is None:
            continue
        for column in others:
            each[used[:, column] > top[column]] = 0
        np.maximum(best, each, out=best)
    return best


def frontier(rows: Ints) -> Ints:
    """The rows that no other row matches or exceeds in every column."""
    if len(rows) <= 1:
        return rows
    scale = np.maximum(rows.max(axis=0), 1)
    left = rows[np.argsort(-(rows / scale).sum(axis=1), kind="stable")]
    kept = []
    while len(left):
        top = left[0]
        kept.append(top)
        left = left[(left > top).any(axis=1)]
    return np.array(kept, dtype=np.int64)
