"""`nodepool.counter`: how many nodes a pool has and what they provide together."""

from __future__ import annotations

from typing import Any

from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.quantity import format_quantities
from pykarpenter.controllers.nodepool.pools import PoolController
from pykarpenter.core.pool_conditions import zero_usage
from pykarpenter.kube.contract import Json
from pykarpenter.runtime.controller import Result

INTERVAL_S = 5.0
# While machines are being launched the numbers change quickly.
UNSYNCED_INTERVAL_S = 1.0


class PoolCounter(PoolController):
    name = "nodepool.counter"

    async def reconcile(self, pool: NodePool) -> Result | None:
        await self.writer.status(pool, self._decide)
        return Result(requeue_after_s=INTERVAL_S if self.ctx.state.is_synced() else UNSYNCED_INTERVAL_S)

    def _decide(self, pool: NodePool) -> Json:
        usage = zero_usage() | self.ctx.state.pool_resources(pool.name)
        resources: dict[str, Any] = dict(format_quantities(usage))
        changed: Json = {}
        if resources != pool.status.resources:
            # A merge patch keeps what it does not name.
            gone = dict.fromkeys(set(pool.status.resources) - set(resources))
            changed["resources"] = resources | gone
        if usage["nodes"] != pool.status.nodes:
            changed["nodes"] = usage["nodes"]
        return changed
