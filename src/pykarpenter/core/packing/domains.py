"""Placing classes whose rules speak of zones, capacity types or other keys: pod by pod in effect, cheap in practice.

Machines are gathered into cells by the domains they are in. Each step asks the rules which domains are open and for
how many pods, and takes the first machine, in the usual order, that lies in such a domain. A machine that could be in
several domains is pinned to one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import product

import numpy as np

from pykarpenter.core.interning import Ints
from pykarpenter.core.packing.classes import PodClass
from pykarpenter.core.packing.kernel import MANY, Kernel
from pykarpenter.core.packing.kinds import Kind
from pykarpenter.core.packing.rungs import Rung
from pykarpenter.core.topology.groups import GroupKind, eligible_domains

Open = dict[str, dict[str, int]]


@dataclass(slots=True)
class _Cell:
    """Machines with room that share their domains; `order` and `machines` run in parallel, `at` is the next one."""

    machines: list[int]
    order: list[int]
    at: int = 0

    @property
    def head(self) -> int:
        return self.order[self.at] if self.at < len(self.machines) else MANY


@dataclass(slots=True)
class _Field:
    """Where one class could go by one volume alternative, apart from the rules over domains."""

    guest: int
    node_rooms: Ints
    node_cells: dict[tuple[str, ...], _Cell] = field(default_factory=dict)
    claim_rooms: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    become: dict[int, Kind] = field(default_factory=dict)
    claim_cells: dict[int, _Cell] = field(default_factory=dict)


class DomainPlacer:
    """Places one class at one rung of its ladder."""

    def __init__(self, kernel: Kernel, cls: PodClass, rung: Rung) -> None:
        self._kernel = kernel
        self._cls = cls
        self._rung = rung
        self._keys = rung.keys
        self._fields: list[_Field] = []

    def place(self) -> int:
        """Place as many pods as possible; answers how many."""
        placed = 0
        self._fields = self._survey()
        while self._cls.left:
            step = self._rounds() or self._step()
            if not step:
                break
            placed += step
        return placed

    def _survey(self) -> list[_Field]:
        fields = [self._field(guest) for guest in self._rung.guests]
        # A machine that exists is tried once, by whichever alternative suits it.
        fields[0].node_rooms = self._kernel.any_node_rooms(self._cls, self._rung)
        self._gather_nodes(fields[0])
        return fields

    def _field(self, guest: int) -> _Field:
        kernel, cls, rung = self._kernel, self._cls, self._rung
        found = _Field(guest, np.zeros(kernel.nodes.targets, dtype=np.int64))
        if kernel.claims.count:
            found.claim_rooms, found.become = kernel.claim_rooms(cls, rung, guest)
            self._gather_claims(found)
        return found

    def _gather_nodes(self, found: _Field) -> None:
        """Machines with room by their domains; those that lack one of the keys are in none."""
        having = found.node_rooms.nonzero()[0]
        if not len(having):
            return
        code = np.zeros(len(having), dtype=np.int64)
        columns = [self._kernel.nodes.column(key) for key in self._keys]
        for ids, values in columns:
            own = ids[having]
            code = np.where((code < 0) | (own < 0), -1, code * len(values) + own)
        for number in np.unique(code).tolist():
            if number < 0:
                continue
            members = having[code == number].tolist()
            domains = tuple(values[ids[members[0]]] for ids, values in columns)
            found.node_cells[domains] = _Cell(members, members)

    def _gather_claims(self, found: _Field) -> None:
        claims = self._kernel.claims
        having = found.claim_rooms.nonzero()[0]
        having = having[np.argsort(claims.pods[having], kind="stable")]
        kinds = claims.kinds[having]
        for index in sorted(set(kinds.tolist())):
            where = (kinds == index).nonzero()[0]
            found.claim_cells[index] = _Cell(having[where].tolist(), where.tolist())

    # Many steps at once.

    def _rounds(self) -> int:
        """Full rounds over level domains: while each has a machine with room, one pod goes to each in turn."""
        kernel, cls, rung = self._kernel, self._cls, self._rung
        if len(rung.zonal) != 1 or len(self._fields) != 1 or cls.demand.attachments or cls.devices:
            return 0
        item, found = rung.zonal[0], self._fields[0]
        group = item.group
        if group.rule.kind is not GroupKind.SPREAD or not item.counts_itself or kernel.starts_affinity(rung):
            return 0
        allows = rung.strict.get_or_exists(group.rule.key).allows
        allowed = [domain for domain in kernel.topology.known(group, rung.tolerations) if allows(domain)]
        if len(allowed) < max(group.rule.min_domains or 0, 1):
            return 0
        if len({group.counts.get(domain, 0) for domain in allowed}) > 1:
            return 0
        heads = [self._head_in(found, domain) for domain in allowed]
        rounds = min([cls.left // len(allowed), *(head[2] for head in heads)])
        if rounds < 2:
            return 0
        placed = 0
        for is_node, machine, _ in heads:
            one, many = np.array([machine]), np.array([rounds])
            if is_node:
                found.node_rooms[machine] -= rounds
                placed += kernel.put_on_nodes(cls, one, many)
            else:
                found.claim_rooms[machine] -= rounds
                kind = found.become[int(kernel.claims.kinds[machine])]
                placed += kernel.put_on_claims(cls, kind, one, many)
        return placed

    def _head_in(self, found: _Field, domain: str) -> tuple[bool, int, int]:
        """The next machine that is surely in a domain: whether it is a node, which one, and its room (0: none)."""
        cell = found.node_cells.get((domain,))
        while cell is not None and cell.at < len(cell.machines):
            room = int(found.node_rooms[cell.machines[cell.at]])
            if room > 0:
                return True, cell.machines[cell.at], room
            cell.at += 1
        key = self._keys[0]
        for index, cell in found.claim_cells.items():
            kind = found.become[index]
            # A claim that would be narrowed by the pod changes cells; those take the slow way once.
            if kind.index != index or kind.single(key) != domain or kind.needs_care:
                continue
            while cell.at < len(cell.machines):
                position = cell.machines[cell.at]
                room = int(found.claim_rooms[position])
                if room > 0 and int(self._kernel.claims.kinds[position]) == index:
                    return False, position, room
                cell.at += 1
        return False, -1, 0

    # One step.

    def open_domains(self) -> tuple[Open, str]:
        """Per key the domains that every rule admits now, with how many pods each may take."""
        kernel, rung = self._kernel, self._rung
        result: Open = {}
        for item in rung.zonal:
            key = item.group.rule.key
            known = kernel.topology.known(item.group, rung.tolerations)
            admitted, why = eligible_domains(item.group, rung.strict.get_or_exists(key), item.counts_itself, known)
            if key in result:
                both = result[key]
                admitted = {d: min(n, both[d]) for d, n in admitted.items() if d in both}
                why = why or "the rules admit no common domain"
            if not admitted:
                return {}, f"{item.group.rule.describe()}: {why}"
            result[key] = admitted
        return result, ""

    def _step(self) -> int:
        admitted, _ = self.open_domains()
        if not admitted:
            return 0
        if self._kernel.starts_affinity(self._rung):
            placed = self._first(admitted)
            if placed:
                self._fields = self._survey()
            return placed
        return self._first(admitted)

    def _first(self, admitted: Open) -> int:
        placed = self._on_node(self._fields[0], admitted)
        if placed:
            return placed
        for found in self._fields:
            placed = self._on_claim(found, admitted)
            if placed:
                return placed
        return self._on_new(admitted)

    def _allowance(self, admitted: Open, domains: tuple[str, ...]) -> int:
        return min(admitted[key].get(domain, 0) for key, domain in zip(self._keys, domains, strict=True))

    def _on_node(self, found: _Field, admitted: Open) -> int:
        kernel, cls = self._kernel, self._cls
        while True:
            cells = [(cell.head, domains, cell) for domains, cell in found.node_cells.items() if cell.head < MANY]
            cells = [item for item in cells if self._allowance(admitted, item[1]) > 0]
            if not cells:
                return 0
            _, domains, cell = min(cells, key=lambda item: item[0])
            index = cell.machines[cell.at]
            room = int(found.node_rooms[index])
            if room > 0 and not kernel.fits_node(cls, index):
                room = 0
            if room <= 0:
                cell.at += 1
                continue
            count = min(room, cls.left, self._allowance(admitted, domains))
            found.node_rooms[index] -= count
            return kernel.put_on_nodes(cls, np.array([index]), np.array([count]))

    def _on_claim(self, found: _Field, admitted: Open) -> int:
        kinds = self._kernel.claims.kinds
        # The rules stand still until a pod is placed: claims of one kind have the same choice of domains.
        choices: dict[int, list[tuple[tuple[str, ...], Kind]]] = {}
        heads = [(cell.head, index) for index, cell in found.claim_cells.items() if cell.head < MANY]
        heapify(heads)
        while heads:
            index = heads[0][1]
            if index not in choices:
                choices[index] = list(self._pinnings(found.become[index], admitted))
            if not choices[index]:
                heappop(heads)
                continue
            cell = found.claim_cells[index]
            position = cell.machines[cell.at]
            if kinds[position] == index and found.claim_rooms[position] > 0:
                placed = self._on_this_claim(found, position, index, choices[index], admitted)
                if placed:
                    return placed
            cell.at += 1
            if cell.head < MANY:
                heapreplace(heads, (cell.head, index))
            else:
                heappop(heads)
        return 0

    def _on_this_claim(
        self, found: _Field, position: int, index: int, choices: list[tuple[tuple[str, ...], Kind]], admitted: Open
    ) -> int:
        """Place pods on the claim, in the first of the domains that takes some; answers how many."""
        kernel, cls = self._kernel, self._cls
        kind = found.become[index]
        for domains, pinned in choices:
            if kernel.tilts(cls, position, pinned):
                continue
            room = int(found.claim_rooms[position])
            if pinned is not kind:
                room = min(room, int(pinned.rooms(kernel.claims.used[position : position + 1], cls.vector)[0]))
            room = min(room, cls.left, self._allowance(admitted, domains) - self._uncounted(position, domains, pinned))
            if room <= 0:
                continue
            placed = kernel.put_carefully(cls, pinned, position, room)
            if placed:
                for other in self._fields:
                    other.claim_rooms[position] -= placed
                now = int(kernel.claims.kinds[position])
                if now != index:
                    self._moved(found, position, now)
                return placed
        return 0

    def _uncounted(self, position: int, domains: tuple[str, ...], pinned: Kind) -> int:
        """Peers on a claim that count in a domain only once the claim is known to be there."""
        kernel = self._kernel
        before = kernel.kinds.kinds[int(kernel.claims.kinds[position])]
        if before is pinned or kernel.plain:
            return 0
        at = dict(zip(self._keys, domains, strict=True))
        most = 0
        for item in self._rung.zonal:
            group = item.group
            if group.rule.kind is not GroupKind.SPREAD or not item.counts_itself:
                continue
            domain, topology = at[group.rule.key], kernel.topology
            if domain in topology.domains_taken(group, pinned) and domain not in topology.domains_taken(group, before):
                peers = sum(s.count for s in kernel.claims.shares[position] if group in s.members.counted_by)
                most = max(most, peers)
        return most

    def _moved(self, found: _Field, position: int, now: int) -> None:
        """The claim was narrowed to one domain: the pods to come look for it there, before those opened later."""
        kernel = self._kernel
        narrowed = found.become[now] = kernel.kinds.kinds[now]
        room = int(narrowed.rooms(kernel.claims.used[position : position + 1], self._cls.vector)[0])
        found.claim_rooms[position] = min(int(found.claim_rooms[position]), room)
        cell = found.claim_cells.setdefault(now, _Cell([], []))
        cell.machines.insert(cell.at, position)
        cell.order.insert(cell.at, -1)

    def _pinnings(self, kind: Kind, admitted: Open) -> Iterator[tuple[tuple[str, ...], Kind]]:
        """The kind in each admitted combination of domains: least populated first, then cheapest, then by name."""
        topology = self._kernel.topology
        options = []
        for key in self._keys:
            single = kind.single(key)
            values = (single,) if single is not None else topology.reachable(kind, key)
            allowed = [value for value in values if value in admitted[key]]
            if not allowed:
                return
            options.append(allowed)
        if self._kernel.plain:
            yield from self._plain_pinning(kind, options, admitted)
            return
        combinations = list(product(*options))
        if len(combinations) == 1:
            pinned = self._pinned(kind, combinations[0])
            if pinned is not None:
                yield combinations[0], pinned
            return
        ranked = []
        for domains in combinations:
            pinned = self._pinned(kind, domains)
            if pinned is not None and len(pinned.rows):
                price = float(pinned.selection.price[pinned.template.table.row_type[pinned.rows]].min(initial=np.inf))
                ranked.append((self._population(domains), price, domains, pinned))
        for _, _, domains, pinned in sorted(ranked, key=lambda item: item[:3]):
            yield domains, pinned

    def _plain_pinning(
        self, kind: Kind, options: list[list[str]], admitted: Open
    ) -> Iterator[tuple[tuple[str, ...], Kind]]:
        """The one narrowing that placing pod by pod makes: spreads take a single domain, other rules all they admit."""
        pinned: Kind | None = kind
        first = []
        for key, values in zip(self._keys, options, strict=True):
            rules = [item.group for item in self._rung.zonal if item.group.rule.key == key]
            starting = any(
                group.rule.kind is GroupKind.AFFINITY and not any(group.counts.get(v, 0) for v in values)
                for group in rules
            )
            if starting or any(group.rule.kind is GroupKind.SPREAD for group in rules):
                values = [min(values, key=lambda v: (max(g.counts.get(v, 0) for g in rules), v))]
            pinned = self._kernel.kinds.pin(pinned, key, *values) if pinned is not None else None
            first.append(values[0])
        if pinned is not None and len(pinned.rows):
            yield tuple(first), pinned

    def _population(self, domains: tuple[str, ...]) -> int:
        at = dict(zip(self._keys, domains, strict=True))
        return sum(item.group.counts.get(at[item.group.rule.key], 0) for item in self._rung.zonal)

    def _pinned(self, kind: Kind, domains: tuple[str, ...]) -> Kind | None:
        pinned: Kind | None = kind
        for key, value in zip(self._keys, domains, strict=True):
            if pinned is None:
                return None
            pinned = self._kernel.kinds.pin(pinned, key, value)
        return pinned

    def _on_new(self, admitted: Open) -> int:
        kernel, cls, rung = self._kernel, self._cls, self._rung
        cap = min(kernel.new_host_cap(rung), 1 if cls.ports else MANY)
        if cap <= 0:
            return 0
        for root in kernel.roots_for(cls, rung):
            for found in self._fields:
                kind = kernel.opening_kind(root, cls, rung, found.guest)
                placed = self._on_new_of(kind, found, admitted, cap) if kind is not None else 0
                if placed or kernel.deferred:
                    return placed
        return 0

    def _on_new_of(self, kind: Kind, found: _Field, admitted: Open, cap: int) -> int:
        """A new machine of one pool, by one volume alternative."""
        kernel, cls = self._kernel, self._cls
        for domains, pinned in self._pinnings(kind, admitted):
            room = pinned.room(cls.vector)
            if room <= 0:
                kernel.deferred = kernel.deferred or kernel.care.full_reservation(pinned, cls.vector)
                continue
            count = min(room, cap, cls.left, self._allowance(admitted, domains))
            placed = kernel.open_one(cls, pinned, count)
            if placed:
                # A reservation without units stood in the way of another domain only.
                kernel.deferred = ""
                self._opened(found, room=min(room, cap) - placed)
                return placed
        return 0

    def _opened(self, found: _Field, room: int) -> None:
        """The newest claim joins the cells, last in order."""
        claims = self._kernel.claims
        position = claims.count - 1
        if len(found.claim_rooms) < claims.count:
            more = np.zeros(max(claims.count, 64), dtype=np.int64)
            for other in self._fields:
                other.claim_rooms = np.concatenate([other.claim_rooms, more])
        index = int(claims.kinds[position])
        found.claim_rooms[position] = room
        found.become[index] = self._kernel.kinds.kinds[index]
        cell = found.claim_cells.setdefault(index, _Cell([], []))
        cell.machines.append(position)
        cell.order.append(position + len(claims.kinds))
