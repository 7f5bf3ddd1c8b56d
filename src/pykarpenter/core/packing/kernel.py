"""Placing classes of pods: on machines that exist, then on machines being planned, then on new ones.

A class is placed as if its pods came one by one, but many at a time: rooms are computed for all machines at once.
Rules over hostnames cap the rooms; rules over other keys are handled in `domains`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pykarpenter.core.interning import Bools, Ints, ResourceColumns
from pykarpenter.core.packing.attachments import Attachments
from pykarpenter.core.packing.care import Care
from pykarpenter.core.packing.claims import ClaimTable, Share
from pykarpenter.core.packing.classes import PodClass
from pykarpenter.core.packing.devices import DevicePlaces
from pykarpenter.core.packing.kinds import Kind, KindTable, rooms_below
from pykarpenter.core.packing.node_table import NodeTable
from pykarpenter.core.packing.rungs import Consulted, Rung
from pykarpenter.core.packing.templates import NODES, Template
from pykarpenter.core.packing.topology import Topology
from pykarpenter.core.ports import first_conflict
from pykarpenter.core.resources import Resources
from pykarpenter.core.topology.groups import GroupKind

MANY = 2**31
# Parts of what a pool's limits leave that one machine may take, as long as some type is small enough.
_SHARES_OF_LIMITS = (16, 8, 4, 2, 1)


class Kernel:
    """The state of one decision while pods are being placed."""

    def __init__(
        self,
        columns: ResourceColumns,
        nodes: NodeTable,
        templates: Sequence[Template],
        kinds: KindTable,
        topology: Topology,
        care: Care,
        attachments: Attachments,
        devices: DevicePlaces,
        plain: bool = False,
    ) -> None:
        # Whether small pods leave large types out under limits, and whether price goes before a pool's weight.
        self.modest = True
        self.cost_first = False
        self.columns = columns
        self.nodes = nodes
        self.templates = templates
        self.kinds = kinds
        self.topology = topology
        self.care = care
        self.attachments = attachments
        self.devices = devices
        # Pods come one by one and machines stay as open as the rules allow.
        self.plain = plain
        self.claims = ClaimTable(columns.width)
        self.node_shares: dict[int, list[Share]] = {}
        self.node_ports = {index: list(nodes.rows[index].ports) for index in nodes.with_ports}
        self.roots = [kinds.root(template) for template in templates]
        self._charges: dict[tuple[int, bytes], Resources] = {}
        # Set while a class is being tried: pods wait for reserved capacity instead of looking further.
        self.deferred = ""

    # How many pods each machine can take.

    def node_rooms(self, cls: PodClass, rung: Rung, guest: int) -> Ints:
        nodes = self.nodes
        if not nodes.targets:
            return np.zeros(0, dtype=np.int64)
        rooms = nodes.rooms(cls.vector)
        admitted = nodes.tolerated(rung.tolerations) & nodes.compatible(self.kinds.sets[guest])
        rooms[~admitted[: nodes.targets]] = 0
        if cls.moving:
            rooms[nodes.closed] = 0
        for item in rung.hosts:
            counts = item.group.node_counts[: nodes.targets]
            np.minimum(rooms, host_caps(item, counts), out=rooms)
        if cls.ports:
            np.minimum(rooms, 1, out=rooms)
            for index, taken in self.node_ports.items():
                if index < nodes.targets and first_conflict(cls.ports, taken) is not None:
                    rooms[index] = 0
        if cls.devices and (having := self.devices.node_mask(cls.devices)) is not None:
            rooms[~having] = 0
        return rooms

    def fits_node(self, cls: PodClass, index: int) -> bool:
        """Whether a machine with room can also attach the pods' volumes and give them their devices."""
        if cls.demand.attachments and not self.attachments.fit_on_node(index, cls.demand.attachments):
            return False
        return not cls.devices or self.devices.fit_on_node(index, cls)

    def claim_rooms(self, cls: PodClass, rung: Rung, guest: int) -> tuple[Ints, dict[int, Kind]]:
        """Rooms of the open claims, and for each kind with room what it becomes with such a pod."""
        claims = self.claims
        rooms = np.zeros(claims.count, dtype=np.int64)
        become: dict[int, Kind] = {}
        current = claims.kinds[: claims.count]
        # Kinds that differ in zone or labels mostly end at the same largest machines: one look for all of them.
        by_frontier: dict[int, list[int]] = {}
        for index in sorted(claims.present):
            kind = self.kinds.kinds[index]
            if kind.template.untolerated(rung.tolerations) is not None:
                continue
            merged = self.with_guest(kind, cls, guest)
            if merged is not None and len(merged.frontier):
                become[index] = merged
                by_frontier.setdefault(merged.frontier_id, []).append(index)
        for members in by_frontier.values():
            top = become[members[0]].frontier
            if len(members) == len(claims.present):
                rooms = rooms_below(top, claims.used[: claims.count], cls.vector)
                continue
            alive = np.zeros(len(self.kinds.kinds), dtype=bool)
            alive[members] = True
            where = alive[current].nonzero()[0]
            if len(where):
                rooms[where] = rooms_below(top, claims.used[where], cls.vector)
        for item in rung.hosts:
            item.group.grow(claims.count)
            counts = item.group.claim_counts[: claims.count]
            np.minimum(rooms, host_caps(item, counts), out=rooms)
        if cls.ports:
            np.minimum(rooms, 1, out=rooms)
            for index, taken in claims.ports.items():
                if first_conflict(cls.ports, taken) is not None:
                    rooms[index] = 0
        return rooms, become

    def with_guest(self, kind: Kind, cls: PodClass, guest: int) -> Kind | None:
        """The kind once it takes a pod of the class, daemons' host ports included."""
        merged = self.kinds.merge(kind, guest)
        if merged is None or not cls.ports:
            return merged
        blocked = merged.template.port_conflicts(cls.ports)
        return merged if blocked is None else self.kinds.restrict(merged, ~blocked)

    def new_host_cap(self, rung: Rung) -> int:
        """How many pods a machine that holds nothing yet may take by the rules over hostnames."""
        empty = np.zeros(1, dtype=np.int64)
        caps = [int(host_caps(item, empty)[0]) for item in rung.hosts]
        return min(caps, default=MANY)

    def starts_affinity(self, rung: Rung) -> bool:
        """Whether the next machine decides where the whole class goes: a hostname affinity without any peer yet."""
        return any(i.group.rule.kind is GroupKind.AFFINITY and i.group.host_total == 0 for i in rung.hosts)

    # Carrying it out.

    def put_on_nodes(self, cls: PodClass, indexes: Ints, pods: Ints) -> int:
        self.nodes.free[indexes] -= pods[:, None] * cls.vector
        for index, count in zip(indexes.tolist(), pods.tolist(), strict=True):
            self.node_shares.setdefault(index, []).append(Share(cls, cls.placed, count))
            cls.placed += count
            if cls.ports:
                self.node_ports.setdefault(index, []).extend(cls.ports)
            if cls.demand.attachments:
                self.attachments.attach_to_node(index, cls.demand.attachments)
            if cls.devices:
                self.devices.place_on_node(index, cls)
        self.topology.record_nodes([*cls.counted_by, *cls.guards], indexes, pods)
        return int(pods.sum())

    def put_on_claims(self, cls: PodClass, kind: Kind, positions: Ints, pods: Ints) -> int:
        """Place pods on claims that all become the given kind."""
        claims = self.claims
        targets, amounts = positions.tolist(), pods.tolist()
        for position, before in zip(targets, claims.kinds[positions].tolist(), strict=True):
            if before != kind.index:
                self._narrowed(position, self.kinds.kinds[before], kind)
        claims.kinds[positions] = kind.index
        claims.present.add(kind.index)
        claims.used[positions] += pods[:, None] * cls.vector
        claims.pods[positions] += pods
        for position, count in zip(targets, amounts, strict=True):
            claims.shares[position].append(Share(cls, cls.placed, count))
            cls.placed += count
            if cls.ports:
                claims.ports.setdefault(position, []).extend(cls.ports)
            if cls.demand.attachments:
                held = claims.volumes.setdefault(position, {})
                for driver, keys in cls.demand.attachments.items():
                    held.setdefault(driver, set()).update(keys)
            if cls.devices:
                self.devices.place_on_claim(cls, claims, position)
        self.topology.record_claims([*cls.counted_by, *cls.guards], kind, positions, pods)
        return sum(amounts)

    def _narrowed(self, position: int, before: Kind, after: Kind) -> None:
        """Count the pods already on a claim where it is now known to be, and no longer where it cannot be."""
        for share in self.claims.shares[position]:
            for group in (*share.members.counted_by, *share.members.guards):
                if group.is_host:
                    continue
                was = self.topology.domains_taken(group, before)
                now = self.topology.domains_taken(group, after)
                for domain in now:
                    if domain not in was:
                        group.add(domain, share.count)
                for domain in was:
                    if domain not in now:
                        group.add(domain, -share.count)

    def tilts(self, cls: PodClass, position: int, after: Kind) -> bool:
        """Whether pods that stand on a claim would break a spread they count in, were it known to be there.

        They may have come before the pods that insist on the spread; kube-scheduler is free to bind them first.
        """
        before = self.kinds.kinds[int(self.claims.kinds[position])]
        if self.plain or before is after:
            return False
        shares = self.claims.shares[position]
        for group, domain in self.topology.newly_bound(before, after):
            peers = 0
            for share in shares:
                if group in share.members.counted_by:
                    peers += share.count
            if peers and self.topology.exceeds(group, domain, peers + (group in cls.counted_by)):
                return True
        return False

    def _untilted(self, cls: PodClass, found: Ints, become: dict[int, Kind]) -> Ints:
        """Without the claims that the pod would pin to a domain where their own pods break a spread."""
        pinning = [
            index
            for index, kind in become.items()
            if any(kind.single(key) and not self.kinds.kinds[index].single(key) for key in self.topology.binding_keys)
        ]
        if not pinning or self.plain:
            return found
        kinds = self.claims.kinds[found]
        asked = np.isin(kinds, pinning)
        for at in np.flatnonzero(asked).tolist():
            asked[at] = self.tilts(cls, int(found[at]), become[int(kinds[at])])
        return found[~asked]

    # The three stages for classes without rules over keys other than hostname.

    def fill(self, cls: PodClass, rung: Rung) -> int:
        """Place as many pods of the class as possible; answers how many."""
        placed = 0
        while cls.left:
            single = self.starts_affinity(rung)
            step = self._fill_nodes(cls, rung, single)
            if cls.left and not (single and step):
                step += sum(self._fill_claims(cls, rung, guest, single) for guest in rung.guests if cls.left)
            if cls.left and not (single and step):
                step += self._open(cls, rung, single)
            placed += step
            if not step or not single:
                return placed
        return placed

    def any_node_rooms(self, cls: PodClass, rung: Rung) -> Ints:
        """Rooms by whichever volume alternative suits a machine: its labels are what they are."""
        rooms = [self.node_rooms(cls, rung, guest) for guest in rung.guests]
        most: Ints = rooms[0] if len(rooms) == 1 else np.maximum.reduce(rooms)
        return most

    def _fill_nodes(self, cls: PodClass, rung: Rung, single: bool) -> int:
        rooms = self.any_node_rooms(cls, rung)
        found = rooms.nonzero()[0]
        if not len(found):
            return 0
        if cls.demand.attachments or cls.devices:
            return self._fill_nodes_carefully(cls, found, rooms, single)
        chosen, pods = _take(found, rooms[found], cls.left, single)
        return self.put_on_nodes(cls, chosen, pods)

    def _fill_nodes_carefully(self, cls: PodClass, found: Ints, rooms: Ints, single: bool) -> int:
        placed = 0
        for index in found.tolist():
            if not cls.left or (single and placed):
                break
            if self.fits_node(cls, index):
                count = min(int(rooms[index]), cls.left)
                placed += self.put_on_nodes(cls, np.array([index]), np.array([count]))
        return placed

    def _fill_claims(self, cls: PodClass, rung: Rung, guest: int, single: bool) -> int:
        if not self.claims.count or (single and not self.starts_affinity(rung)):
            return 0
        rooms, become = self.claim_rooms(cls, rung, guest)
        found = rooms.nonzero()[0]
        if not len(found):
            return 0
        found = self._untilted(cls, found, become)
        found = found[np.argsort(self.claims.pods[found], kind="stable")]
        # A claim that holds a unit of a reservation may lose it by the pod's requirements.
        care = any(kind.needs_care for kind in become.values()) or any(self.claims.holds.values())
        if cls.demand.attachments or cls.devices or care:
            return self._fill_claims_carefully(cls, found, rooms, become, single)
        chosen, pods = _take(found, rooms[found], cls.left, single)
        kinds = self.claims.kinds[chosen]
        placed = 0
        for index in sorted(set(kinds.tolist())):
            where = kinds == index
            placed += self.put_on_claims(cls, become[index], chosen[where], pods[where])
        return placed

    def _fill_claims_carefully(
        self, cls: PodClass, found: Ints, rooms: Ints, become: dict[int, Kind], single: bool
    ) -> int:
        placed = 0
        for position in found.tolist():
            if not cls.left or (single and placed):
                break
            kind = become[int(self.claims.kinds[position])]
            placed += self.put_carefully(cls, kind, position, min(int(rooms[position]), cls.left))
        return placed

    def put_carefully(self, cls: PodClass, kind: Kind, position: int, wanted: int) -> int:
        """Place up to `wanted` pods on one open claim, as far as volumes, minimum values and reservations allow."""
        narrowed = self.attachments.narrowed(self.kinds, kind, self.claims.volumes.get(position), cls.demand)
        if narrowed is not None and cls.devices:
            narrowed = self.devices.narrowed(cls, narrowed, self.claims, position)
        if narrowed is None:
            return 0
        if narrowed is not kind:
            # The room was reckoned with types that cannot attach all these volumes.
            wanted = min(wanted, int(narrowed.rooms(self.claims.used[position : position + 1], cls.vector)[0]))
        count = self.care.most(self.claims, position, narrowed, cls.vector, wanted)
        if count <= 0:
            return 0
        placed = self.put_on_claims(cls, narrowed, np.array([position]), np.array([count]))
        self.care.settle(self.claims, position, narrowed)
        return placed

    # New machines.

    def _open(self, cls: PodClass, rung: Rung, single: bool) -> int:
        placed = 0
        for root in self.roots_for(cls, rung):
            for guest in rung.guests:
                placed += self._open_of(root, cls, rung, guest, single)
                if not cls.left or self.deferred or (single and placed):
                    return placed
        return placed

    def _open_of(self, root: Kind, cls: PodClass, rung: Rung, guest: int, single: bool) -> int:
        """Open machines of one pool by one volume alternative."""
        placed = 0
        kind = self.opening_kind(root, cls, rung, guest)
        while kind is not None and cls.left:
            step = self.open_some(cls, rung, kind, single)
            placed += step
            if not step or single:
                break
            # A machine has used up some of the limits: look again at which types they allow.
            kind = self.opening_kind(root, cls, rung, guest) if root.template.remaining is not None else kind
        return placed

    def roots_for(self, cls: PodClass, rung: Rung) -> list[Kind]:
        """The pools in the order they are tried: by weight and name, or by price per pod when cost comes first."""
        if not self.cost_first or len(self.roots) < 2:
            return self.roots
        return sorted(
            self.roots, key=lambda root: min(self._price_per_pod(root, cls, rung, guest) for guest in rung.guests)
        )

    def _price_per_pod(self, root: Kind, cls: PodClass, rung: Rung, guest: int) -> float:
        kind = self.opening_kind(root, cls, rung, guest)
        if kind is None or not len(kind.rows):
            return np.inf
        wanted = cls.vector > 0
        rooms = (kind.usable[:, wanted] // cls.vector[wanted]).min(axis=1)
        price = kind.selection.price[kind.template.table.row_type[kind.rows]]
        return float(np.where(rooms > 0, price / np.maximum(rooms, 1), np.inf).min())

    def opening_kind(self, root: Kind, cls: PodClass, rung: Rung, guest: int) -> Kind | None:
        """What a new machine of the template would be for such a pod; None when it cannot be."""
        if root.template.untolerated(rung.tolerations) is not None:
            return None
        kind = self.with_guest(root, cls, guest)
        if kind is None:
            return None
        kind = self._modest(kind, cls)
        return self.attachments.narrowed(self.kinds, kind, None, cls.demand)

    def _modest(self, kind: Kind, cls: PodClass) -> Kind:
        """The kind within the pool's limits, without types that would take a large part of what is left.

        A planned machine is charged as its largest type, so one small pod that may land on the largest machine
        would use up a limit that could hold many. With a limit on `nodes` machines are scarce, not their size.
        """
        template = kind.template
        if template.remaining is None:
            return kind
        # Only some types bring devices, perhaps none of the small ones.
        bold = not self.modest or NODES in template.remaining or bool(kind.min_values) or bool(cls.devices)
        shares = (1,) if bold else _SHARES_OF_LIMITS
        for share in shares:
            allowed = template.within_limits(kind.selection.rows, share)
            narrowed = kind if allowed is None else self.kinds.restrict(kind, allowed)
            if narrowed.room(cls.vector):
                break
        return narrowed

    def open_some(self, cls: PodClass, rung: Rung, kind: Kind, single: bool) -> int:
        """Open claims of a kind for the class: one, or as many as it needs when nothing limits them."""
        room = min(kind.room(cls.vector), self.new_host_cap(rung), cls.left)
        if cls.ports:
            room = min(room, 1)
        if room <= 0:
            self.deferred = self.deferred or self.care.full_reservation(kind, cls.vector)
            return 0
        template = kind.template
        if kind.needs_care or template.remaining is not None or single or cls.demand.attachments or cls.devices:
            return self.open_one(cls, kind, room)
        number = -(-cls.left // room)
        pods = np.full(number, room, dtype=np.int64)
        pods[-1] = cls.left - room * (number - 1)
        return self.put_on_claims(cls, kind, self.claims.open(kind.index, number), pods)

    def open_one(self, cls: PodClass, kind: Kind, room: int) -> int:
        """Open one claim with up to `room` pods, charging limits, minimum values and reservations."""
        if cls.devices:
            narrowed = self.devices.narrowed(cls, kind, self.claims, None)
            if narrowed is None:
                return 0
            kind, room = narrowed, min(room, narrowed.room(cls.vector))
        relaxed, reason = self.care.admitted(kind, cls.vector)
        if relaxed is None:
            self.deferred = self.deferred or reason
            return 0
        position = int(self.claims.open(relaxed.index, 1)[0])
        if relaxed is not kind:
            self.claims.min_values_relaxed.add(position)
        count = self.care.most(self.claims, position, relaxed, cls.vector, room)
        placed = self.put_on_claims(cls, relaxed, np.array([position]), np.array([max(count, 1)]))
        self.care.settle(self.claims, position, relaxed)
        template = relaxed.template
        if template.remaining is not None:
            template.charge(self._most_capacity(relaxed, cls))
        return placed

    def _most_capacity(self, kind: Kind, cls: PodClass) -> Resources:
        """What a new machine of the kind with one such pod is charged as: the most of all types that hold it."""
        key = (kind.index, cls.vector.tobytes())
        found = self._charges.get(key)
        if found is None:
            found = self._charges[key] = kind.template.max_capacity(kind.surviving(cls.vector))
        return found


def host_caps(item: Consulted, counts: Ints) -> Ints:
    """How many more pods each machine may take by one rule over hostnames, given the peers it holds."""
    itself, rule = item.counts_itself, item.group.rule
    if rule.kind is GroupKind.SPREAD:
        caps = rule.max_skew - counts
        return np.maximum(caps, 0) if itself else np.where(caps >= 0, MANY, 0)
    if rule.kind is GroupKind.AFFINITY:
        if item.group.host_total > 0:
            return np.where(counts > 0, MANY, 0)
        return np.full(len(counts), MANY if itself else 0, dtype=np.int64)
    return np.where(counts == 0, 1 if itself else MANY, 0)


def _take(found: Ints, rooms: Ints, wanted: int, single: bool) -> tuple[Ints, Ints]:
    """The first machines whose rooms add up to what is wanted; with `single` one, preferably with room for all."""
    if single:
        enough: Bools = rooms >= wanted
        first = int(np.argmax(enough)) if enough.any() else 0
        return found[first : first + 1], np.minimum(rooms[first : first + 1], wanted)
    total = np.cumsum(rooms)
    last = int(np.searchsorted(total, wanted))
    chosen, pods = found[: last + 1], rooms[: last + 1].copy()
    if last < len(found):
        pods[-1] -= int(total[last]) - wanted
    return chosen, pods
