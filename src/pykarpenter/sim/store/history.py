"""What changed in one kind, in order, for as long as it is kept; asking for what was dropped is an honest 410."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from pykarpenter.sim.store.entries import Entry
from pykarpenter.sim.store.refusals import expired_version


@dataclass(frozen=True, slots=True)
class Change:
    """One write: the entry it made (of a deletion: the last state) and the one before."""

    type: str
    rv: int
    entry: Entry
    old: Entry | None


class History:
    """Changes by position. Positions never shift, so a watch is just a position."""

    def __init__(self, limit: int, start_rv: int) -> None:
        self._limit = limit
        self._changes: list[Change] = []
        self._dropped = 0
        # Every change up to this version may be gone.
        self.compacted_rv = start_rv

    def append(self, change: Change) -> None:
        self._changes.append(change)
        # Trimming a quarter at a time keeps the cost per write constant.
        if len(self._changes) > self._limit + self._limit // 4:
            self._drop(len(self._changes) - self._limit)

    def compact(self, rv: int) -> None:
        """Drops every change up to a version, as etcd's compaction does."""
        self._drop(bisect_right(self._changes, rv, key=lambda change: change.rv))
        self.compacted_rv = max(self.compacted_rv, rv)

    def _drop(self, count: int) -> None:
        if count > 0:
            self.compacted_rv = max(self.compacted_rv, self._changes[count - 1].rv)
            del self._changes[:count]
            self._dropped += count

    @property
    def end(self) -> int:
        """The position after the newest change."""
        return self._dropped + len(self._changes)

    def position_after(self, rv: int) -> int:
        """The position of the first change after a version; raises Expired."""
        if rv < self.compacted_rv:
            raise expired_version(rv, self.compacted_rv)
        return self._dropped + bisect_right(self._changes, rv, key=lambda change: change.rv)

    def read(self, position: int, seen_rv: int) -> list[Change]:
        """Every change from a position on; raises Expired when some of them were dropped."""
        if position < self._dropped:
            raise expired_version(seen_rv, self.compacted_rv)
        return self._changes[position - self._dropped :]

    def newest_first_until(self, rv: int) -> list[Change]:
        """The changes after a version, newest first; raises Expired."""
        first = self.position_after(rv) - self._dropped
        return self._changes[first:][::-1]
