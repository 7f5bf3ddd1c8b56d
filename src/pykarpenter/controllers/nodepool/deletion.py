"""`nodepool.deletion`: says at once what deleting a NodePool means for its nodes.

The deletion itself needs no help: the claims belong to the pool, so the cluster deletes them, and each drains under
its PodDisruptionBudgets.
"""

from __future__ import annotations

import asyncio

from pykarpenter.api import kinds
from pykarpenter.api.nodepool import NodePool
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.nodepool.pools import Pools, pool_reference


class PoolDeletion:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._pools = Pools(ctx)
        ctx.caches.subscribe(kinds.NODE_POOL, self._pool_changed)

    async def run(self) -> None:
        """Everything happens when a change arrives."""
        await asyncio.Event().wait()

    def _pool_changed(self, change: Changed[NodePool]) -> None:
        before, after = change.old, change.new
        if before is None or before.is_deleting or not self._pools.is_managed(before):
            return
        if after is not None and not after.is_deleting:
            return
        count = sum(1 for _ in self._pools.claims_of(before))
        if count:
            self._ctx.recorder.publish(
                pool_reference(before),
                "Warning",
                "NodePoolDeleted",
                f"the NodePool is deleted, so its {count} NodeClaim(s) are drained and removed with their nodes; "
                "PodDisruptionBudgets are respected, disruption budgets of the pool are not",
            )
