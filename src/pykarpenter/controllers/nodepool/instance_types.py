"""`nodepool.instancetypes`: tells a pool's owner when no instance type, or too few, can serve the pool (B6, B9)."""

from __future__ import annotations

from pykarpenter.api.nodepool import NodePool
from pykarpenter.cloud.errors import CloudError
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.nodepool.pools import PoolController
from pykarpenter.core import pool_conditions
from pykarpenter.core.conditions import FALSE
from pykarpenter.kube.contract import Json
from pykarpenter.runtime.controller import Result

# Providers change their catalogues rarely; classes and pools wake this controller themselves.
INTERVAL_S = 300.0
_EVENT_WINDOW_S = 60.0


class PoolInstanceTypes(PoolController):
    name = "nodepool.instancetypes"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.watch_classes()

    def pool_changed(self, change: Changed[NodePool]) -> None:
        """Only another spec changes the answer, and the answer is dear with a large catalogue."""
        before, after = change.old, change.new
        if before is None or after is None or before.metadata.generation != after.metadata.generation:
            super().pool_changed(change)

    async def reconcile(self, pool: NodePool) -> Result | None:
        rules = self.ctx.provider.traits.label_rules
        if pool_conditions.validation(pool, rules)[0].status == FALSE:
            # What cannot be read cannot be searched for; the validation's own condition says so.
            return None
        try:
            types = await self.ctx.provider.instance_types(pool)
        except CloudError:
            # Unknown is not the same as none: the condition stays as it is.
            return Result(requeue_after_s=INTERVAL_S)

        def decide(current: NodePool) -> Json:
            if current.metadata.generation != pool.metadata.generation:
                return {}
            finding = pool_conditions.instance_types(current, types, rules)
            if finding is None:
                return self.writer.with_conditions(current, clear=[pool_conditions.INSTANCE_TYPES_FOUND])
            return self.writer.with_conditions(current, finding)

        await self.writer.status(pool, decide)
        finding = pool_conditions.instance_types(pool, types, rules)
        if finding is not None:
            self.warn(
                pool,
                "NoCompatibleInstanceTypes",
                finding.message,
                dedupe=(pool.uid, finding.message),
                window_s=_EVENT_WINDOW_S,
            )
        return Result(requeue_after_s=INTERVAL_S)
