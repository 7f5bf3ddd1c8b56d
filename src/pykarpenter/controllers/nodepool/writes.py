"""Writes to NodePools: status and annotations as merge patches bound to the version they were decided on.

Several controllers write conditions of the same pool, and a merge patch replaces the whole list. So a decision is a
function of the pool: when the version is stale, it is asked again about the pool as it is now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pykarpenter.api import kinds
from pykarpenter.api.nodepool import NodePool
from pykarpenter.controllers.context import Context
from pykarpenter.core import conditions
from pykarpenter.core.conditions import Finding
from pykarpenter.kube.contract import Json
from pykarpenter.kube.errors import Conflict, NotFound

# Five writers can meet on a new pool; after this many collisions the key backs off.
_ATTEMPTS = 5


class PoolWriter:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def status(self, pool: NodePool, decide: Callable[[NodePool], Json]) -> NodePool | None:
        """Patch the status with what `decide` answers; an empty answer writes nothing. None when the pool is gone."""
        return await self._patch(
            pool, lambda current: {"status": found} if (found := decide(current)) else {}, "status"
        )

    async def annotations(self, pool: NodePool, values: dict[str, str]) -> NodePool | None:
        return await self._patch(pool, lambda _: {"metadata": {"annotations": values}}, "")

    def with_conditions(
        self, pool: NodePool, *findings: Finding, clear: Iterable[str] = (), fields: Json | None = None
    ) -> Json:
        """The status patch for these findings and other fields; empty when nothing would change."""
        before = pool.status.conditions
        now = self._ctx.clock.now()
        after = conditions.NODE_POOL.apply(before, pool.metadata, now, *findings, clear=clear)
        changed: dict[str, Any] = dict(fields or {})
        if after != before:
            changed["conditions"] = conditions.to_wire(after)
        return changed

    async def _patch(self, pool: NodePool, decide: Callable[[NodePool], Json], subresource: str) -> NodePool | None:
        for attempt in range(_ATTEMPTS):
            body = decide(pool)
            if not body:
                return pool
            version = {"resourceVersion": pool.metadata.resource_version}
            body = body | {"metadata": {**body.get("metadata", {}), **version}}
            try:
                return await self._ctx.api.patch(kinds.NODE_POOL, pool.name, body, subresource=subresource)
            except NotFound:
                return None
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
            try:
                current = await self._ctx.api.get(kinds.NODE_POOL, pool.name)
            except NotFound:
                return None
            if current.uid != pool.uid:
                return None
            pool = current
        return pool
