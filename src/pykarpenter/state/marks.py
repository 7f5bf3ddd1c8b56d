"""What the program itself decided about machines and has not yet seen in the cluster.

Deletion marks and nominations live only in memory: losing them in a restart is safe, because a mark is followed by a
delete that the cluster remembers, and a nomination only delays disruption.
"""

from __future__ import annotations


class DeletionMarks:
    """Machines, by providerID, that a disruption has committed to remove."""

    def __init__(self) -> None:
        self._marked: dict[str, str] = {}

    def mark(self, provider_id: str, reason: str = "") -> bool:
        """Whether this changed anything."""
        changed = provider_id not in self._marked
        self._marked[provider_id] = reason
        return changed

    def unmark(self, provider_id: str) -> bool:
        return self._marked.pop(provider_id, None) is not None

    def __contains__(self, provider_id: str) -> bool:
        return provider_id in self._marked


class Nominations:
    """Machines, by name, that pods are expected on soon, and until when (epoch seconds)."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def nominate(self, name: str, until: float) -> None:
        """Extends a nomination, never shortens it."""
        self._until[name] = max(until, self._until.get(name, 0.0))

    def until(self, name: str) -> float:
        return self._until.get(name, 0.0)

    def forget(self, name: str) -> None:
        self._until.pop(name, None)

    def expire(self, now: float) -> list[str]:
        """Drop nominations that are over; returns their names, sorted."""
        over = sorted(name for name, until in self._until.items() if until <= now)
        for name in over:
            del self._until[name]
        return over


class Tombstones:
    """UIDs of NodeClaims whose deletion was seen, so that a late answer to their creation does not revive them."""

    _KEPT = 4096

    def __init__(self) -> None:
        self._uids: dict[str, None] = {}

    def add(self, uid: str) -> None:
        self._uids[uid] = None
        while len(self._uids) > self._KEPT:
            del self._uids[next(iter(self._uids))]

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids
