"""`nodepool.readiness`: whether the pool's class exists, stays, and is ready."""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.nodepool.pools import PoolController
from pykarpenter.core import pool_conditions
from pykarpenter.kube.contract import Json
from pykarpenter.runtime.controller import Result


class PoolReadiness(PoolController):
    name = "nodepool.readiness"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.watch_classes()
        ctx.caches.subscribe(kinds.NODE_CLAIM, self._claim_changed)

    def _claim_changed(self, change: Changed[NodeClaim]) -> None:
        """A class that is being deleted lists the claims in its way."""
        if change.new is None and change.old is not None:
            ref = change.old.spec.node_class_ref
            for name in self.pools.names_using(ref.group, ref.kind, ref.name):
                self.controller.enqueue(name)

    async def _reconcile_name(self, name: str) -> Result | None:
        pool = self.pools.misnamed(name)
        if pool is None:
            return await super()._reconcile_name(name)
        await self.writer.status(pool, self._decide_misnamed)
        return None

    async def reconcile(self, pool: NodePool) -> Result | None:
        await self.writer.status(pool, self._decide)
        return None

    def _decide_misnamed(self, pool: NodePool) -> Json:
        known = sorted(kind for _, kind in self.pools.class_kinds)
        return self.writer.with_conditions(pool, pool_conditions.unknown_class_kind(pool, known))

    def _decide(self, pool: NodePool) -> Json:
        if not self.pools.is_managed(pool):
            return {}
        ref = pool.spec.template.spec.node_class_ref
        finding = pool_conditions.class_readiness(pool, self.pools.node_class(pool), self.pools.claims_of_class(ref))
        return self.writer.with_conditions(pool, finding)
