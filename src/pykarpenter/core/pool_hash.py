"""Which hash annotations a NodePool and its claims need.

When the way of hashing changed since the pool was last written, its claims are brought along first: otherwise every
node would look drifted although nobody changed anything. Claims that are drifted already stay so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pykarpenter.api import labels
from pykarpenter.api.meta import find_condition
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.api.nodepool_hash import nodepool_hash

VERSION = labels.NODEPOOL_HASH_VERSION_VALUE


@dataclass(frozen=True, slots=True)
class HashWrites:
    """Annotations to write: on claims first, then on the pool."""

    claims: tuple[tuple[NodeClaim, dict[str, str]], ...] = ()
    pool: dict[str, str] | None = None


def hash_writes(pool: NodePool, claims: Iterable[NodeClaim]) -> HashWrites:
    """What must be written so that pool and claims carry today's hash; `claims` are the pool's own."""
    wanted = {labels.NODEPOOL_HASH: nodepool_hash(pool), labels.NODEPOOL_HASH_VERSION: VERSION}
    written = pool.metadata.annotations
    if all(written.get(key) == value for key, value in wanted.items()):
        return HashWrites()
    if written.get(labels.NODEPOOL_HASH_VERSION) == VERSION:
        return HashWrites(pool=wanted)
    return HashWrites(tuple(_claim_writes(claims, wanted)), wanted)


def _claim_writes(claims: Iterable[NodeClaim], wanted: dict[str, str]) -> Iterable[tuple[NodeClaim, dict[str, str]]]:
    for claim in claims:
        if claim.metadata.annotations.get(labels.NODEPOOL_HASH_VERSION) == VERSION:
            continue
        drifted = find_condition(claim.status.conditions, "Drifted") is not None
        yield claim, {labels.NODEPOOL_HASH_VERSION: VERSION} if drifted else dict(wanted)
