"""`nodepool.validation`: whether a pool's template can be used, and whether its budgets can be read."""

from __future__ import annotations

from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.validation import WARNING
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.nodepool.pools import PoolController
from pykarpenter.core import pool_conditions
from pykarpenter.core.conditions import FALSE
from pykarpenter.kube.contract import Json
from pykarpenter.runtime.controller import Result


class PoolValidation(PoolController):
    name = "nodepool.validation"
    workers = (10, 10)

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        # The generation of each pool, by UID, that was warned about: once is enough, the condition stays.
        self._told: dict[str, int] = {}

    def pool_changed(self, change: Changed[NodePool]) -> None:
        super().pool_changed(change)
        if change.new is None and change.old is not None:
            self._told.pop(change.old.uid, None)

    async def reconcile(self, pool: NodePool) -> Result | None:
        await self.writer.status(pool, self._decide)
        if self._told.get(pool.uid) != pool.metadata.generation:
            self._told[pool.uid] = pool.metadata.generation
            self._tell(pool)
        return None

    def _tell(self, pool: NodePool) -> None:
        finding, problems = pool_conditions.validation(pool, self.ctx.provider.traits.label_rules)
        if finding.status == FALSE:
            self.warn(pool, finding.reason, finding.message)
        for problem in problems:
            if problem.severity == WARNING:
                self.warn(pool, "NodePoolWarning", problem.text())
        unreadable = pool_conditions.budgets(pool)
        if unreadable is not None:
            self.warn(pool, unreadable.reason, unreadable.message)

    def _decide(self, pool: NodePool) -> Json:
        finding, _ = pool_conditions.validation(pool, self.ctx.provider.traits.label_rules)
        unreadable = pool_conditions.budgets(pool)
        if unreadable is None:
            return self.writer.with_conditions(pool, finding, clear=[pool_conditions.BUDGETS_PARSED])
        return self.writer.with_conditions(pool, finding, unreadable)
