"""All objects of one kind: the current versions by key, by namespace and by node, and their history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pykarpenter.sim.store.entries import Entry, Json, object_key
from pykarpenter.sim.store.history import Change, History
from pykarpenter.sim.store.resources import Resource
from pykarpenter.sim.store.selectors import Filter

if TYPE_CHECKING:
    from pykarpenter.sim.store.watches import Watch

_NO_ENTRIES: dict[str, Entry] = {}


def key_of(obj: Json) -> str:
    meta = obj["metadata"]
    return object_key(meta.get("namespace", ""), meta["name"])


class Table:
    def __init__(self, resource: Resource, history_limit: int, start_rv: int) -> None:
        self.resource = resource
        self.entries: dict[str, Entry] = {}
        self.history = History(history_limit, start_rv)
        self.watches: dict[int, Watch] = {}
        self._by_namespace: dict[str, dict[str, Entry]] = {}
        self._by_node: dict[str, dict[str, Entry]] | None = {} if resource.plural == "pods" else None
        self._sorted: list[str] | None = None
        self._past: tuple[int, list[Entry]] | None = None

    def record(self, change: Change) -> None:
        """Makes a change visible: current state, history, then the watches in the order they were opened."""
        key = key_of(change.entry.obj)
        if change.old is not None:
            self._unindex(key, change.old)
        else:
            self._sorted = None
        if change.type == "DELETED":
            self.entries.pop(key, None)
            self._sorted = None
        else:
            self.entries[key] = change.entry
            self._index(key, change.entry)
        self.history.append(change)
        for watch in self.watches.values():
            watch.notify()

    def _index(self, key: str, entry: Entry) -> None:
        if self.resource.namespaced:
            self._by_namespace.setdefault(entry.obj["metadata"]["namespace"], {})[key] = entry
        if self._by_node is not None:
            self._by_node.setdefault(entry.obj["spec"].get("nodeName", ""), {})[key] = entry

    def _unindex(self, key: str, entry: Entry) -> None:
        if self.resource.namespaced:
            _take_out(self._by_namespace, entry.obj["metadata"]["namespace"], key)
        if self._by_node is not None:
            _take_out(self._by_node, entry.obj["spec"].get("nodeName", ""), key)

    def in_namespace(self, namespace: str) -> list[Entry]:
        found = self._by_namespace.get(namespace, _NO_ENTRIES)
        return [found[key] for key in sorted(found)]

    def select(self, wanted: Filter) -> list[Entry]:
        """The current entries a filter takes, by key."""
        if wanted.takes_all:
            if self._sorted is None:
                self._sorted = sorted(self.entries)
            entries = self.entries
            return [entries[key] for key in self._sorted]
        found = self._narrowest(wanted)
        return [found[key] for key in sorted(found) if wanted.matches(found[key].obj)]

    def _narrowest(self, wanted: Filter) -> dict[str, Entry]:
        if self._by_node is not None and (node := wanted.required_field("spec.nodeName")) is not None:
            return self._by_node.get(node, _NO_ENTRIES)
        name = wanted.required_field("metadata.name")
        if name is not None and (wanted.namespace or not self.resource.namespaced):
            key = object_key(wanted.namespace, name)
            return {key: self.entries[key]} if key in self.entries else _NO_ENTRIES
        return self._by_namespace.get(wanted.namespace, _NO_ENTRIES) if wanted.namespace else self.entries

    def select_at(self, wanted: Filter, rv: int) -> list[Entry]:
        """The entries a filter took at an earlier version, by key; raises Expired after compaction."""
        past = self._state_at(rv)
        return past if wanted.takes_all else [entry for entry in past if wanted.matches(entry.obj)]

    def _state_at(self, rv: int) -> list[Entry]:
        changes = self.history.newest_first_until(rv)
        if self._past is None or self._past[0] != rv:
            state = dict(self.entries)
            _undo(state, changes)
            # Pages of one list ask for the same version over and over.
            self._past = (rv, [state[key] for key in sorted(state)])
        return self._past[1]


def _take_out(index: dict[str, dict[str, Entry]], value: str, key: str) -> None:
    """Nodes and namespaces that hold nothing any more leave nothing behind."""
    members = index[value]
    members.pop(key, None)
    if not members:
        del index[value]


def _undo(state: dict[str, Entry], newest_first: Iterable[Change]) -> None:
    for change in newest_first:
        key = key_of(change.entry.obj)
        if change.old is None:
            state.pop(key, None)
        else:
            state[key] = change.old
