"""How long a pool's replacements are left alone after one failed: one minute, doubling to ten, with equal jitter.

The numbers live on the NodePool, so that a restart neither forgets a failing roll-out nor starts all pools at once.
Several failures within one window count once, and a success forgets everything.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pykarpenter.api import labels
from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.timestamps import format_timestamp, parse_timestamp

FIRST_S = 60.0
LONGEST_S = 600.0
# Ours: `<failures>/<RFC 3339 end of the window>`.
ANNOTATION = f"{labels.OWN_GROUP}/replacement-back-off"


@dataclass(frozen=True, slots=True)
class BackOff:
    failures: int = 0
    until: float = 0.0

    def text(self) -> str:
        return f"{self.failures}/{format_timestamp(self.until)}"


def read(pool: NodePool) -> BackOff:
    """What the pool carries; a value that cannot be read counts as none."""
    count, _, until = pool.metadata.annotations.get(ANNOTATION, "").partition("/")
    try:
        return BackOff(int(count), parse_timestamp(until))
    except ValueError:
        return BackOff()


def failed(current: BackOff, pool: NodePool, now: float) -> BackOff:
    """After a failure now; one inside a window that still runs is not counted again."""
    if current.until > now:
        return current
    failures = min(current.failures + 1, 30)
    longest = min(LONGEST_S, FIRST_S * 2.0 ** (failures - 1))
    return BackOff(failures, now + longest / 2 + _jitter(pool, failures) * longest / 2)


def _jitter(pool: NodePool, failures: int) -> float:
    """Between 0 and 1, different for each pool and failure, equal in equal runs."""
    digest = hashlib.sha256(f"{pool.uid}/{pool.name}/{failures}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32
