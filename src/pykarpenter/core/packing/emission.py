"""From open claims to planned NodeClaims: types by price, requirements, labels, annotations and the cheapest choice.

Claims of one kind with the same surviving rows share everything but their pods and requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from pykarpenter.api import labels
from pykarpenter.api.pods import NodeSelectorRequirement
from pykarpenter.core.interning import Bools, Floats, Ints, ResourceColumns
from pykarpenter.core.packing.care import distinct_values
from pykarpenter.core.packing.claims import ClaimTable
from pykarpenter.core.packing.kinds import Kind
from pykarpenter.core.packing.templates import SIMULATION_ONLY
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.plans import OfferingChoice, PlannedClaim
from pykarpenter.core.requirements import Requirement, Requirements, to_expressions
from pykarpenter.core.resources import Resources

MIN_VALUES_UNMET = "pod didn't schedule because NodePool couldn't meet minValues requirements"


@dataclass(slots=True)
class _Form:
    """What claims of one kind with the same surviving rows have in common."""

    types: tuple[str, ...]
    requirements: tuple[NodeSelectorRequirement, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    choice: OfferingChoice
    max_capacity: Resources
    overhead: Ints
    relaxed: bool = False


class Emission:
    """Turns the claims of one decision into planned NodeClaims."""

    def __init__(
        self, settings: PackingSettings, columns: ResourceColumns, credited: frozenset[str] = frozenset()
    ) -> None:
        self._settings = settings
        self._columns = columns
        self._credited = credited
        self._forms: dict[tuple[int, bytes, frozenset[str]], _Form | None] = {}
        self._ranks: dict[int, Ints] = {}
        self._overheads: dict[int, Ints] = {}

    def emit(self, claims: ClaimTable, kinds: list[Kind]) -> tuple[list[PlannedClaim], list[int]]:
        """The planned claims in order, and positions of claims that cannot keep their minimum values."""
        planned: list[PlannedClaim] = []
        dropped: list[int] = []
        for position in range(claims.count):
            if not claims.shares[position]:
                continue
            kind = kinds[int(claims.kinds[position])]
            form = self._form(kind, claims.used[position], claims.holds.get(position, frozenset()))
            if form is None:
                dropped.append(position)
                continue
            relaxed = form.relaxed or position in claims.min_values_relaxed
            annotations = {**form.annotations, labels.MIN_VALUES_RELAXED: "true" if relaxed else "false"}
            if claims.devices.get(position):
                annotations[labels.REQUESTED_DRA_DRIVERS] = ",".join(claims.devices[position])
            planned.append(
                PlannedClaim(
                    node_pool=kind.template.name,
                    requirements=form.requirements,
                    instance_types=form.types,
                    requests=self._columns.mapping(claims.used[position] + form.overhead),
                    pods=pod_keys(claims, position),
                    choice=form.choice,
                    max_capacity=form.max_capacity,
                    labels=form.labels,
                    annotations=annotations,
                )
            )
        return planned, dropped

    def _form(self, kind: Kind, used: Ints, holds: frozenset[str]) -> _Form | None:
        fitting = (kind.usable >= used).all(axis=1)
        key = (kind.index, np.packbits(fitting).tobytes(), holds)
        if key not in self._forms:
            self._forms[key] = self._make(kind, kind.rows[fitting], holds)
        return self._forms[key]

    def _make(self, kind: Kind, rows: Ints, holds: frozenset[str]) -> _Form | None:
        table = kind.template.table
        requirements = self._reserved_only(kind.requirements, holds)
        offerings = self._launchable(kind, rows, holds)
        price, best = table.cheapest(offerings)
        types = np.flatnonzero(best >= 0)
        rank = self._rank(kind)
        types = types[np.lexsort((rank[types], price[types]))][: self._settings.max_instance_types]
        kept = np.zeros(len(table.types), dtype=bool)
        kept[types] = True
        relaxed = self._relaxed(kind, types)
        if relaxed is None:
            return None
        requirements = self._final(requirements, kind, types, offerings & kept[table.offering_type], relaxed)
        rows = rows[kept[table.row_type[rows]]]
        overhead = self._overhead(kind)[rows].min(axis=0) if len(rows) else np.zeros(0, dtype=np.int64)
        names = tuple(table.names[types].tolist())
        return _Form(
            types=names,
            requirements=tuple(to_expressions(requirements)),
            labels=self._labels(kind, requirements),
            annotations=self._annotations(kind, types),
            choice=self._choice(kind, names, types, best, price),
            max_capacity=kind.template.max_capacity(rows),
            overhead=overhead,
            relaxed=bool(relaxed),
        )

    def _launchable(self, kind: Kind, rows: Ints, holds: frozenset[str]) -> Bools:
        table = kind.template.table
        surviving = np.zeros(table.row_count, dtype=bool)
        surviving[rows] = True
        launchable = table.launchable
        if self._credited:
            launchable = launchable | np.array(
                [o.reservation_id in self._credited for o in table.offerings], dtype=bool
            )
        mask: Bools = kind.selection.offerings & launchable & surviving[table.offering_row]
        if self._settings.reserved_capacity and kind.selection.has_reserved:
            # Without a unit in hand a reservation is not ours to launch from; with one, nothing else is.
            held = np.array([o.reservation_id in holds for o in table.offerings], dtype=bool) & table.reserved
            mask = mask & held if holds else mask & ~table.reserved
        return mask

    def _reserved_only(self, requirements: Requirements, holds: frozenset[str]) -> Requirements:
        if not holds:
            return requirements
        narrowed = [Requirement(labels.CAPACITY_TYPE, frozenset({labels.RESERVED}))]
        if self._settings.reservation_id_label:
            narrowed.append(Requirement(self._settings.reservation_id_label, holds))
        return requirements.merged(narrowed)

    def _rank(self, kind: Kind) -> Ints:
        """Positions of the types by name, to break ties of price."""
        table = kind.template.table
        found = self._ranks.get(id(table))
        if found is None:
            order = sorted(range(len(table.types)), key=lambda i: table.types[i].name)
            found = np.zeros(len(order), dtype=np.int64)
            found[order] = np.arange(len(order))
            self._ranks[id(table)] = found
        return found

    def _overhead(self, kind: Kind) -> Ints:
        found = self._overheads.get(kind.template.index)
        if found is None:
            found = self._overheads[kind.template.index] = kind.template.overhead()
        return found

    def _relaxed(self, kind: Kind, types: Ints) -> dict[str, int] | None:
        """Minimum values to lower after cutting the list; None when that is not allowed."""
        lowered: dict[str, int] = {}
        for item in kind.min_values:
            found = distinct_values(kind.template.table, types, item)
            if found < (item.min_values or 0):
                if self._settings.min_values_policy != "BestEffort":
                    return None
                lowered[item.key] = found
        return lowered

    def _final(
        self, requirements: Requirements, kind: Kind, types: Ints, offerings: Bools, lowered: Mapping[str, int]
    ) -> Requirements:
        table = kind.template.table
        kept = {
            key: replace(item, min_values=lowered[key]) if key in lowered else item
            for key, item in requirements.items()
            if key not in SIMULATION_ONLY and key != labels.HOSTNAME
        }
        names = frozenset(table.names[types].tolist())
        before = kept.get(labels.INSTANCE_TYPE)
        minimum = before.min_values if before is not None else None
        kept[labels.INSTANCE_TYPE] = Requirement(labels.INSTANCE_TYPE, names, min_values=minimum)
        numbers = np.unique(table.offering_capacity_type[offerings]).tolist()
        capacity_types = frozenset(table.capacity_types[number] for number in numbers)
        if capacity_types:
            before = kept.get(labels.CAPACITY_TYPE)
            minimum = before.min_values if before is not None else None
            kept[labels.CAPACITY_TYPE] = Requirement(labels.CAPACITY_TYPE, capacity_types, min_values=minimum)
        return Requirements(kept.values())

    def _labels(self, kind: Kind, requirements: Requirements) -> dict[str, str]:
        """The template's labels, and one permitted value of every custom key."""
        found = dict(kind.template.labels)
        rules = self._settings.label_rules
        for item in requirements.items_sorted():
            key = item.key
            if key in found or key in rules.well_known or rules.is_restricted(key) or item.operator == "DoesNotExist":
                continue
            found[key] = min(item.values) if not item.complement else _some_integer(kind.template.name, item)
        return found

    def _annotations(self, kind: Kind, types: Ints) -> dict[str, str]:
        found = dict(kind.template.pool.spec.template.metadata.annotations)
        table = kind.template.table
        if table.price_overlaid[types].any():
            found[labels.PRICE_OVERLAY_APPLIED] = "true"
        if table.capacity_overlaid[types].any():
            found[labels.CAPACITY_OVERLAY_APPLIED] = "true"
        return found

    @staticmethod
    def _choice(kind: Kind, names: tuple[str, ...], types: Ints, best: Ints, price: Floats) -> OfferingChoice:
        if not len(types):
            return OfferingChoice("", "", "", None)
        offering = kind.template.table.offerings[int(best[types[0]])]
        return OfferingChoice(names[0], offering.zone, offering.capacity_type, offering.price)


def pod_keys(claims: ClaimTable, position: int) -> tuple[str, ...]:
    return tuple(
        pod.key
        for share in claims.shares[position]
        for pod in share.members.pods[share.start : share.start + share.count]
    )


def _some_integer(pool: str, item: Requirement) -> str:
    """A number that the requirement permits, always the same for the same pool and key."""
    low = item.gte if item.gte is not None else 0
    high = item.lte if item.lte is not None else max(low, 0) + 2**31
    if item.gte is None and high < low:
        low = high
    start = int.from_bytes(hashlib.sha256(f"{pool}/{item.key}".encode()).digest()[:8], "big") % (high - low + 1)
    for step in range(len(item.values) + 1):
        candidate = str(low + (start + step) % (high - low + 1))
        if item.allows(candidate):
            return candidate
    return str(low)
