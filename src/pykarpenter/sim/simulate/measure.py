"""Measures a running world: how long pods wait, what machines cost, what was evicted, and all of it over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.sim.cluster import EmbeddedCluster
from pykarpenter.sim.journal import Journal, Written


@dataclass(frozen=True, slots=True)
class Sample:
    """The world at one moment; `at` is seconds from the start."""

    at: float
    price_per_hour: float
    nodes: int
    pending: int
    running: int
    # Evictions and $ so far.
    evictions: int = 0
    cost: float = 0.0


@dataclass(slots=True)
class Measurements:
    """What the journal tells, as it is told."""

    waits_s: list[float] = field(default_factory=list)
    evictions: int = 0
    samples: list[Sample] = field(default_factory=list)
    _waiting: dict[str, float] = field(default_factory=dict)
    _evicted: dict[str, None] = field(default_factory=dict)
    _running: dict[str, None] = field(default_factory=dict)


class Meter:
    def __init__(self, cluster: EmbeddedCluster, journal: Journal) -> None:
        self._cluster = cluster
        self._start = cluster.clock.now()
        self.found = Measurements()
        journal.listen(self._written)

    def sample(self) -> None:
        found = self.found
        nodes = len(self._cluster.store.table("", "nodes").entries)
        found.samples.append(
            Sample(
                self._cluster.clock.now() - self._start,
                self._cluster.cloud.price_per_hour(),
                nodes,
                len(found._waiting),
                len(found._running),
                found.evictions,
                round(self._cluster.cloud.cost_so_far()[0], 4),
            )
        )

    def still_waiting_s(self) -> list[float]:
        """How long pods that have no node yet have been waiting."""
        now = self._cluster.clock.now()
        return [now - since for since in self.found._waiting.values()]

    def _written(self, written: Written) -> None:
        if written.resource.kind != "Pod":
            return
        pod = written.entry.obj
        uid = pod["metadata"]["uid"]
        found = self.found
        if written.type == "DELETED":
            found._waiting.pop(uid, None)
            found._running.pop(uid, None)
            found._evicted.pop(uid, None)
            return
        now = self._cluster.clock.now()
        if not pod.get("spec", {}).get("nodeName"):
            created = parse_optional_timestamp(pod["metadata"].get("creationTimestamp")) or now
            found._waiting.setdefault(uid, max(created, now - 1.0))
        elif uid in found._waiting:
            found.waits_s.append(now - found._waiting.pop(uid))
        if pod.get("status", {}).get("phase") == "Running":
            found._running[uid] = None
        else:
            found._running.pop(uid, None)
        if uid not in found._evicted and _is_evicted(pod):
            found._evicted[uid] = None
            found.evictions += 1


def _is_evicted(pod: dict[str, Any]) -> bool:
    return any(
        c.get("type") == "DisruptionTarget" and c.get("status") == "True"
        for c in pod.get("status", {}).get("conditions") or ()
    )


def percentile(values: list[float], share: float) -> float:
    """The value below which that share lies; 0 for no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
