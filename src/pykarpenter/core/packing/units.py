"""What cost search may move: runs of equal pods on planned machines that only room and rules over hostnames bind.

A unit keeps the machine kind it was planned for, apart from types left out for the sake of limits: whoever plans anew
charges the limits anew. It may go to any machine whose kind is at least as narrow, so no requirement is widened; a pod
that counts in a rule over zones stays in its domain, so no count changes. Machines with host ports, volumes, devices,
reservations, minimum values or hostname affinity are left as they were planned.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pykarpenter.core.interning import Bools, Floats, Ints
from pykarpenter.core.packing.claims import Share
from pykarpenter.core.packing.classes import PodClass
from pykarpenter.core.packing.kernel import Kernel
from pykarpenter.core.packing.kinds import Kind
from pykarpenter.core.packing.templates import Template
from pykarpenter.core.topology.groups import Group, GroupKind


@dataclass(slots=True)
class Unit:
    """Pods that cost search cannot tell apart."""

    index: int
    vector: Ints
    home: Kind
    # Rules over hostnames in which each of the pods takes one place.
    places: tuple[int, ...]
    zonal: frozenset[str]
    shares: list[Share] = field(default_factory=list)
    pods: int = 0


@dataclass(slots=True)
class Workshop:
    """The movable part of one template's plan, as arrays for the cover search."""

    template: Template
    units: list[Unit]
    # Claims whose pods are all in the units, and how many pods of which units each holds.
    positions: list[int]
    holdings: list[dict[int, int]]
    kinds: list[Kind]
    requests: Ints
    demand: Ints
    capacity: Ints
    price: Floats
    allowed: Bools
    # Which kinds each unit may go to, and the kind and row of each machine.
    welcome: Bools
    machine_kind: Ints
    machine_row: Ints


class HostRules:
    """Rules over hostnames as places on a machine: how many pods under the rule one machine may hold."""

    def __init__(self) -> None:
        self._index: dict[int, int] = {}
        self.limits: list[int] = []

    def places(self, cls: PodClass) -> tuple[int, ...] | None:
        """The rules under which a pod of the class takes a place; None when a rule cannot be said that way."""
        found: list[int] = []
        owned: list[Group] = []
        for rung in cls.rungs:
            for item in rung.hosts:
                if item.group.rule.kind is GroupKind.AFFINITY:
                    return None
                owned.append(item.group)
        for group in [*owned, *(g for g in [*cls.counted_by, *cls.guards] if g.is_host)]:
            if group.rule.kind is GroupKind.AFFINITY:
                continue
            index = self._place(group)
            if index not in found:
                found.append(index)
        return tuple(sorted(found))

    def _place(self, group: Group) -> int:
        known = self._index.get(id(group))
        if known is None:
            known = self._index[id(group)] = len(self.limits)
            self.limits.append(group.rule.max_skew if group.rule.kind is GroupKind.SPREAD else 1)
        return known


def workshops(kernel: Kernel) -> list[Workshop]:
    """What may be moved, template by template."""
    found: list[Workshop] = []
    for template in kernel.templates:
        made = _workshop(kernel, template)
        if made is not None:
            found.append(made)
    return found


def _workshop(kernel: Kernel, template: Template) -> Workshop | None:
    if template.table.row_count != len(template.table.types):
        return None
    rules = HostRules()
    units: dict[tuple[bytes, int, tuple[int, ...], frozenset[str]], Unit] = {}
    positions: list[int] = []
    holdings: list[dict[int, int]] = []
    places: dict[int, tuple[int, ...] | None] = {}
    for position in range(kernel.claims.count):
        kind = kernel.kinds.kinds[int(kernel.claims.kinds[position])]
        if kind.template is not template or not _movable(kernel, position, kind, rules, places):
            continue
        positions.append(position)
        holdings.append({})
        kind = kernel.kinds.unrestricted(kind)
        for share in kernel.claims.shares[position]:
            taken = places[share.members.index] or ()
            zonal = _zonal_keys(share.members)
            home = kind if zonal else _own_kind(kernel, share.members, kind)
            key = (share.members.vector.tobytes(), home.index, taken, zonal)
            unit = units.setdefault(key, Unit(len(units), share.members.vector, home, taken, zonal))
            unit.shares.append(share)
            unit.pods += share.count
            holdings[-1][unit.index] = holdings[-1].get(unit.index, 0) + share.count
    if not positions:
        return None
    return _arrays(kernel, template, list(units.values()), positions, holdings, rules)


def _movable(
    kernel: Kernel, position: int, kind: Kind, rules: HostRules, places: dict[int, tuple[int, ...] | None]
) -> bool:
    claims = kernel.claims
    if kind.needs_care or position in claims.ports or position in claims.volumes or position in claims.holds:
        return False
    if position in claims.devices:
        return False
    for share in claims.shares[position]:
        if share.members.index not in places:
            places[share.members.index] = rules.places(share.members)
        if places[share.members.index] is None:
            return False
    return bool(claims.shares[position])


def _own_kind(kernel: Kernel, cls: PodClass, planned: Kind) -> Kind:
    """The widest kind that the class itself asked for when it was placed on the planned one.

    Pods of other classes may have narrowed the machine since; that does not bind this one.
    """
    root = kernel.roots[planned.template.index]
    for rung in cls.rungs:
        for guest in rung.guests:
            kind = kernel.with_guest(root, cls, guest)
            if (
                kind is not None
                and kind.allowed_id == planned.allowed_id
                and kernel.kinds.merge(planned, kind.requirements_id) is planned
            ):
                return kind
    return planned


def _zonal_keys(cls: PodClass) -> frozenset[str]:
    groups = [item.group for rung in cls.rungs for item in rung.zonal]
    groups += [g for g in [*cls.counted_by, *cls.guards] if not g.is_host]
    return frozenset(group.rule.key for group in groups)


def _arrays(
    kernel: Kernel,
    template: Template,
    units: list[Unit],
    positions: list[int],
    holdings: list[dict[int, int]],
    rules: HostRules,
) -> Workshop | None:
    kinds = list({unit.home.index: unit.home for unit in units}.values())
    width, limits = kernel.columns.width, np.array(rules.limits, dtype=np.int64)
    capacity, price, machine_kind, machine_row = [], [], [], []
    for index, kind in enumerate(kinds):
        known = np.flatnonzero(np.isfinite(kind.selection.price[template.table.row_type[kind.rows]]))
        rows = kind.rows[known]
        capacity.append(np.hstack([kind.usable[known], np.broadcast_to(limits, (len(rows), len(limits)))]))
        price.append(kind.selection.price[template.table.row_type[rows]])
        machine_kind.append(np.full(len(rows), index, dtype=np.int64))
        machine_row.append(rows)
    requests = np.zeros((len(units), width + len(limits)), dtype=np.int64)
    for index, unit in enumerate(units):
        requests[index, :width] = unit.vector
        requests[index, [width + place for place in unit.places]] = 1
    welcome = np.array([[_welcome(kernel, kind, unit) for kind in kinds] for unit in units], dtype=bool)
    kind_of = np.concatenate(machine_kind)
    if not len(kind_of):
        return None
    return Workshop(
        template=template,
        units=units,
        positions=positions,
        holdings=holdings,
        kinds=kinds,
        requests=requests,
        demand=np.array([unit.pods for unit in units], dtype=np.int64),
        capacity=np.concatenate(capacity),
        price=np.concatenate(price),
        allowed=welcome[:, kind_of],
        welcome=welcome,
        machine_kind=kind_of,
        machine_row=np.concatenate(machine_row),
    )


def _welcome(kernel: Kernel, kind: Kind, unit: Unit) -> bool:
    """Whether the unit may go to machines of the kind without changing what the kind or any count says."""
    if kind is unit.home:
        return True
    if kernel.kinds.merge(kind, unit.home.requirements_id) is not kind or kind.allowed_id != unit.home.allowed_id:
        return False
    return all(kind.requirements.get(key) == unit.home.requirements.get(key) for key in unit.zonal)
