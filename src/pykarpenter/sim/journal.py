"""Everything that happens in an embedded cluster, in order: the record that runs are compared and replayed by.

Listens to the store itself, so each write is told to the listeners before the next one can happen.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from pykarpenter.sim.store import Resource, Store
from pykarpenter.sim.store.entries import Entry
from pykarpenter.sim.store.watches import Watch

_TIMES_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class Written:
    """One write: ADDED, MODIFIED or DELETED, and the object as it is now (or was last)."""

    type: str
    resource: Resource
    entry: Entry

    @property
    def key(self) -> str:
        meta = self.entry.metadata
        namespace = meta.get("namespace", "")
        return f"{namespace}/{meta['name']}" if namespace else str(meta["name"])


Listener = Callable[[Written], None]


class Journal:
    """Follows every kind the store serves when it is made; call `follow` for kinds that come later."""

    def __init__(self, store: Store, *, keep_lines: bool = False) -> None:
        self._store = store
        self._digest = hashlib.sha256()
        self._followed: dict[tuple[str, str], Watch] = {}
        self._listeners: list[Listener] = []
        self.count = 0
        # When each version was written, by the event loop's time.
        self._times: dict[str, float] = {}
        # With `keep_lines`, one short line for each write, to see where two runs part.
        self.lines: list[str] | None = [] if keep_lines else None
        self.follow()

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def follow(self) -> None:
        """Follow kinds that are served now and were not before."""
        for resource in self._store.resources():
            where = (resource.group, resource.plural)
            if where in self._followed:
                continue
            watch = self._store.watch(resource)
            self._followed[where] = watch
            watch.on_ready = lambda watch=watch, resource=resource: self._read(watch, resource)
            self._read(watch, resource)

    def written_at(self, version: str) -> float:
        """The loop's time at which a version came about; long ago when it was before this journal."""
        return self._times.get(version, float("-inf"))

    def digest(self) -> str:
        """A hash over every write so far: equal histories, equal hashes."""
        return self._digest.hexdigest()

    def close(self) -> None:
        for watch in self._followed.values():
            watch.close()

    def _read(self, watch: Watch, resource: Resource) -> None:
        for event in watch.poll():
            if event.entry is None:
                continue
            written = Written(event.type, resource, event.entry)
            self.count += 1
            self._times[str(event.rv)] = _time()
            if len(self._times) > _TIMES_KEPT:
                del self._times[next(iter(self._times))]
            body = msgspec.json.encode(event.entry.obj, order="deterministic")
            self._digest.update(f"{event.type} {resource.plural} {written.key} {event.rv} ".encode())
            self._digest.update(body)
            if self.lines is not None:
                self.lines.append(f"{event.rv} {event.type} {resource.plural} {written.key} {_brief(body)}")
            for listener in self._listeners:
                listener(written)


def _time() -> float:
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return 0.0


def _brief(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:8]
