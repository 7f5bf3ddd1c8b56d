"""Which pods sit on which node, and the counts that follow from it.

The only place that changes the node table's requests, the counts of terms and the host ports in use; adding a pod and
removing it again leaves everything as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pykarpenter.api.pods import Pod
from pykarpenter.core.recent import Recent
from pykarpenter.core.resources import pod_requests
from pykarpenter.sim.scheduler.node_table import Demand, NodeTable
from pykarpenter.sim.scheduler.terms import Held, HeldTerm, LabelKey, PodCounts, Term, held_terms, label_key

# Terms that are counted for pods to come, before it is looked which of them are in use.
_MOST_TERMS = 4096

# (host IP, protocol, port); the IP is empty for "any".
HostPort = tuple[str, str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A pod on a node: bound, or assumed to be bound in a moment."""

    pod: Pod
    slot: int
    demand: Demand
    ports: tuple[HostPort, ...]
    labels: LabelKey
    held: tuple[HeldTerm, ...]
    priority: int

    @property
    def key(self) -> str:
        return self.pod.key


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    found = {
        ("" if port.host_ip in ("", "0.0.0.0", "::") else port.host_ip, port.protocol or "TCP", port.host_port)  # noqa: S104
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for port in container.ports
        if port.host_port
    }
    return tuple(sorted(found))


def ports_clash(wanted: HostPort, used: HostPort) -> bool:
    """Same protocol and port, and one of the two takes every address or both take the same."""
    return wanted[1:] == used[1:] and (not wanted[0] or not used[0] or wanted[0] == used[0])


class Occupancy:
    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self.placed: dict[str, Placed] = {}
        self.by_slot: dict[int, dict[str, Placed]] = {}
        self._namespace_labels: dict[str, Mapping[str, str]] = {}
        self._counts: Recent[bytes, PodCounts] = Recent(_MOST_TERMS)
        self._held: dict[tuple[bytes, str, int | None], Held] = {}
        self._matching: dict[tuple[LabelKey, bool], list[PodCounts]] = {}
        # Moves when a term is counted for the first time, so that lists of matching terms can be cached.
        self.held_version = 0
        self._priorities: Counter[int] = Counter()

    def holds_below(self, priority: int) -> bool:
        """Whether any placed pod has a lower priority."""
        return any(count and level < priority for level, count in self._priorities.items())

    def add(self, pod: Pod, slot: int) -> Placed:
        """Put a pod on a slot; a pod that is there already moves."""
        self.remove(pod.key)
        entry = Placed(
            pod,
            slot,
            self._table.demand(pod_requests(pod)),
            host_ports(pod),
            label_key(pod),
            tuple(held_terms(pod)),
            pod.spec.priority or 0,
        )
        self.put(entry)
        return entry

    def put(self, entry: Placed) -> None:
        self.placed[entry.key] = entry
        self.by_slot.setdefault(entry.slot, {})[entry.key] = entry
        self._priorities[entry.priority] += 1
        self._table.take(entry.slot, entry.demand)
        self._count(entry, 1)

    def remove(self, key: str) -> Placed | None:
        entry = self.placed.pop(key, None)
        if entry is None:
            return None
        del self.by_slot[entry.slot][key]
        self._priorities[entry.priority] -= 1
        self._table.give_back(entry.slot, entry.demand)
        self._count(entry, -1)
        return entry

    def on_slot(self, slot: int) -> Iterator[Placed]:
        return iter(list(self.by_slot.get(slot, {}).values()))

    def ports_on(self, slot: int) -> list[HostPort]:
        return [port for entry in self.by_slot.get(slot, {}).values() for port in entry.ports]

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Enter a namespace's labels; terms that select namespaces by label are counted anew when they change."""
        if labels is None:
            self._namespace_labels.pop(name, None)
            return
        if self._namespace_labels.get(name) == labels:
            return
        changed = bool(labels) or bool(self._namespace_labels.get(name))
        self._namespace_labels[name] = labels
        if changed:
            self._counts = Recent(_MOST_TERMS)
            self._matching.clear()
            self.held_version += 1

    def matches(self, term: Term, key: LabelKey) -> bool:
        return term.matches(key, self._namespace_labels.get(key[0], {}))

    def counts(self, term: Term) -> PodCounts:
        """The pods on each slot that the term matches; counted from then on."""
        found = self._counts.get(term.key)
        if found is None:
            found = self._counts.put(term.key, PodCounts(term, self._table.size))
            self._matching.clear()
            for entry in self.placed.values():
                if self._counts_for(term, entry):
                    found.add(entry.slot, 1)
        return found

    def turn(self) -> None:
        """Let go of terms that nobody asked for since the last turn, and of those that no placed pod holds any more."""
        self._counts.turn()
        self._matching.clear()
        self._held = {key: held for key, held in self._held.items() if held.counts.any()}

    def held_against(self, key: LabelKey) -> list[Held]:
        """The terms of placed pods that match a pod with these labels."""
        return [held for held in self._held.values() if self.matches(held.term, key)]

    def _counts_for(self, term: Term, entry: Placed) -> bool:
        return not (term.staying_only and entry.pod.is_deleting) and self.matches(term, entry.labels)

    def _count(self, entry: Placed, amount: int) -> None:
        cache_key = (entry.labels, entry.pod.is_deleting)
        matching = self._matching.get(cache_key)
        if matching is None:
            matching = self._matching[cache_key] = [c for c in self._counts.values() if self._counts_for(c.term, entry)]
        for counts in matching:
            counts.add(entry.slot, amount)
        for item in entry.held:
            held = self._held.get(item.key)
            if held is None:
                counts = PodCounts(item.term, self._table.size)
                held = self._held[item.key] = Held(item.term, item.topology_key, item.weight, counts)
                self.held_version += 1
            held.counts.add(entry.slot, amount)
