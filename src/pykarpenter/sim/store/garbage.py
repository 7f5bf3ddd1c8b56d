"""Owner references: what follows an object when it is deleted, and what it waits for.

The store's garbage collector runs at the end of each write, in the order in which dependents were created, so that a
run can be repeated. A dependent goes when none of its owners is left; a foreground deletion waits for dependents
that block it; an orphaning one takes the references off them first.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pykarpenter.sim.store.entries import Entry, Json
from pykarpenter.sim.store.requests import DeleteRequest
from pykarpenter.sim.store.resources import Resource
from pykarpenter.sim.store.tables import key_of

if TYPE_CHECKING:
    from pykarpenter.sim.store.store import Store

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"

_Where = tuple[str, str, str]


def _owner_uids(obj: Json) -> list[str]:
    return [reference.get("uid", "") for reference in obj["metadata"].get("ownerReferences") or ()]


class GarbageCollector:
    def __init__(self, store: Store, enabled: bool) -> None:
        self._store = store
        self._enabled = enabled
        self._by_uid: dict[str, _Where] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        self._queue: deque[str] = deque()
        self._queued: set[str] = set()
        self._settling = False

    def observe(self, resource: Resource, entry: Entry, old: Entry | None, removed: bool) -> None:
        """Takes note of a write; `settle` acts on it."""
        meta = entry.obj["metadata"]
        if old is None and not removed and "ownerReferences" not in meta and "finalizers" not in meta:
            self._by_uid[meta["uid"]] = (resource.group, resource.plural, key_of(entry.obj))
            return
        uid = meta["uid"]
        before = _owner_uids(old.obj) if old is not None else []
        after = [] if removed else _owner_uids(entry.obj)
        if before != after:
            for owner in before:
                if owner not in after:
                    self._drop_dependent(owner, uid)
            for owner in after:
                self._dependents.setdefault(owner, {})[uid] = None
        if removed:
            self._by_uid.pop(uid, None)
            for dependent in self._dependents.get(uid, {}):
                self._enqueue(dependent)
            for owner in before:
                self._enqueue(owner)
            return
        self._by_uid[uid] = (resource.group, resource.plural, key_of(entry.obj))
        if "deletionTimestamp" in meta and self._awaited(meta):
            self._enqueue(uid)
        if any(owner not in self._by_uid for owner in after):
            self._enqueue(uid)

    @staticmethod
    def _awaited(meta: Json) -> bool:
        finalizers = meta.get("finalizers") or ()
        return FOREGROUND in finalizers or ORPHAN in finalizers

    def _drop_dependent(self, owner: str, uid: str) -> None:
        dependents = self._dependents.get(owner)
        if dependents is not None:
            dependents.pop(uid, None)
            if not dependents:
                del self._dependents[owner]

    def _enqueue(self, uid: str) -> None:
        if uid not in self._queued:
            self._queued.add(uid)
            self._queue.append(uid)

    def settle(self) -> None:
        """Deletes and releases until nothing is left to do. Writes made here only add to the same queue."""
        if self._settling or not self._queue:
            return
        if not self._enabled:
            self._queue.clear()
            self._queued.clear()
            return
        self._settling = True
        try:
            while self._queue:
                uid = self._queue.popleft()
                self._queued.discard(uid)
                self._process(uid)
        finally:
            self._settling = False

    def _find(self, uid: str) -> tuple[Resource, Entry] | None:
        where = self._by_uid.get(uid)
        if where is None:
            return None
        table = self._store.table(where[0], where[1])
        entry = table.entries.get(where[2])
        return (table.resource, entry) if entry is not None else None

    def _process(self, uid: str) -> None:
        found = self._find(uid)
        if found is None:
            return
        resource, entry = found
        meta = entry.metadata
        if "deletionTimestamp" in meta:
            finalizers = meta.get("finalizers") or ()
            if ORPHAN in finalizers:
                self._orphan_dependents(uid)
                self._store.remove_finalizer(resource, entry, ORPHAN)
            elif FOREGROUND in finalizers:
                self._delete_dependents(uid)
                if not self._blocking_dependents(uid):
                    self._release(uid, FOREGROUND)
            return
        if meta.get("ownerReferences"):
            self._collect(resource, entry)

    def _release(self, uid: str, finalizer: str) -> None:
        found = self._find(uid)
        if found is not None and finalizer in (found[1].metadata.get("finalizers") or ()):
            self._store.remove_finalizer(*found, finalizer)

    def _blocking_dependents(self, owner: str) -> list[str]:
        blocking = []
        for uid in self._dependents.get(owner, {}):
            found = self._find(uid)
            if found is not None and any(
                reference.get("uid") == owner and reference.get("blockOwnerDeletion")
                for reference in found[1].metadata.get("ownerReferences") or ()
            ):
                blocking.append(uid)
        return blocking

    def _delete_dependents(self, owner: str) -> None:
        for uid in list(self._dependents.get(owner, {})):
            found = self._find(uid)
            if found is not None and "deletionTimestamp" not in found[1].metadata:
                self._collect(*found)

    def _orphan_dependents(self, owner: str) -> None:
        for uid in list(self._dependents.get(owner, {})):
            found = self._find(uid)
            if found is not None:
                self._store.drop_owner_references(*found, {owner})

    def _collect(self, resource: Resource, entry: Entry) -> None:
        """Deletes an object that no owner holds any more, or takes off the references that lead nowhere."""
        solid, loose, waiting = self._classify(entry)
        if solid:
            if loose or waiting:
                self._store.drop_owner_references(resource, entry, loose | waiting)
            return
        has_dependents = bool(self._dependents.get(entry.metadata["uid"]))
        propagation = "Foreground" if waiting and has_dependents else None
        meta = entry.metadata
        self._store.delete(
            resource,
            meta["name"],
            meta.get("namespace", ""),
            DeleteRequest(uid=meta["uid"], propagation=propagation),
        )

    def _classify(self, entry: Entry) -> tuple[bool, set[str], set[str]]:
        solid, loose, waiting = False, set(), set()
        for reference in entry.metadata.get("ownerReferences") or ():
            uid = reference.get("uid", "")
            owner = self._find(uid)
            if owner is None or not _reachable(entry, owner):
                loose.add(uid)
            elif FOREGROUND in (owner[1].metadata.get("finalizers") or ()) and owner[1].metadata.get(
                "deletionTimestamp"
            ):
                waiting.add(uid)
            else:
                solid = True
        return solid, loose, waiting


def _reachable(entry: Entry, owner: tuple[Resource, Entry]) -> bool:
    """A namespaced owner owns only inside its namespace."""
    resource, owning = owner
    return not resource.namespaced or owning.metadata.get("namespace") == entry.metadata.get("namespace")
