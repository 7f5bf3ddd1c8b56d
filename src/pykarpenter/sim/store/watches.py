"""Watches: a position in a kind's history, a filter, and a bell to ring when there is more to read.

Nothing here knows an event loop: `notify` calls back, `poll` hands out what is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pykarpenter.sim.store.entries import Entry, with_metadata
from pykarpenter.sim.store.history import Change
from pykarpenter.sim.store.selectors import Filter
from pykarpenter.sim.store.tables import Table

BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class RawEvent:
    """ADDED, MODIFIED or DELETED with an entry, or a BOOKMARK with only a version."""

    type: str
    rv: int
    entry: Entry | None = None
    initial_events_end: bool = False


class Watch:
    """One reader of one kind's changes."""

    def __init__(self, ident: int, table: Table, wanted: Filter, position: int, rv: int) -> None:
        self._ident = ident
        self._table = table
        self._wanted = wanted
        self._position = position
        self._queued: list[RawEvent] = []
        # The newest version this watch has handed out or stepped over.
        self.rv = rv
        self.on_ready: Callable[[], None] | None = None
        table.watches[ident] = self

    def queue(self, events: list[RawEvent]) -> None:
        """Events to hand out before any change: the initial state of a streaming list."""
        self._queued.extend(events)

    def notify(self) -> None:
        if self.on_ready is not None:
            self.on_ready()

    def poll(self) -> list[RawEvent]:
        """Everything ready now; raises Expired when history went past this watch."""
        ready, self._queued = self._queued, []
        changes = self._table.history.read(self._position, self.rv)
        if changes:
            self._position += len(changes)
            self.rv = changes[-1].rv
            ready.extend(event for change in changes for event in self._seen(change))
        return ready

    def bookmark(self, store_rv: int) -> RawEvent:
        """A bookmark at the store's version; only right after `poll`, when nothing before it is unread."""
        self.rv = max(self.rv, store_rv)
        return RawEvent(BOOKMARK, self.rv)

    def close(self) -> None:
        self._table.watches.pop(self._ident, None)

    def _seen(self, change: Change) -> Iterator[RawEvent]:
        """The change as this filter sees it: an object that leaves the selection is deleted for its watcher."""
        wanted = self._wanted
        if wanted.takes_all:
            yield RawEvent(change.type, change.rv, change.entry)
            return
        was = change.old is not None and wanted.matches(change.old.obj)
        if change.type == "DELETED":
            if was:
                yield RawEvent("DELETED", change.rv, change.entry)
            return
        now = wanted.matches(change.entry.obj)
        if now:
            yield RawEvent("MODIFIED" if was else "ADDED", change.rv, change.entry)
        elif was and change.old is not None:
            last = with_metadata(change.old.obj, resourceVersion=str(change.rv))
            yield RawEvent("DELETED", change.rv, Entry(last, change.rv))
