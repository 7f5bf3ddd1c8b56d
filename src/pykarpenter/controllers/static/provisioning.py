"""Creates the machines that a static pool lacks, never more than its node limit leaves room for."""

from __future__ import annotations

from pykarpenter.api.meta import condition_status
from pykarpenter.api.quantity import InvalidQuantity
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.provisioning.creation import ClaimCreator
from pykarpenter.controllers.static.pools import PERIOD_S, StaticPoolController
from pykarpenter.core.disruption.static_pools import template_claim
from pykarpenter.core.static_capacity import NODES, shortfall
from pykarpenter.runtime.controller import Result

AT_LIMIT_S = 30.0


class StaticProvisioning(StaticPoolController):
    name = "static.provisioning"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._creator = ClaimCreator(ctx)
        self._plans = 0

    async def reconcile(self, name: str) -> Result | None:
        pool = self._pool(name)
        if pool is None:
            return None
        if condition_status(pool.status.conditions, "Ready") != "True":
            return Result(requeue_after_s=PERIOD_S)
        claims = self._ctx.state.pool_claims(name)
        promised = self._ctx.state.ledger.promised(name).get(NODES, 0)
        try:
            wanted = shortfall(pool, len(claims.active), len(claims.pending_disruption), len(claims.deleting), promised)
        except InvalidQuantity as error:
            self._log.error("the node limit cannot be read; nothing is created", error=error, nodepool=name)
            return Result(requeue_after_s=PERIOD_S)
        if wanted.count:
            self._plans += 1
            plan_id = f"{self._ctx.identity}/static/{pool.uid}/{self._ctx.clock.now():.6f}/{self._plans}"
            await self._creator.create_all(plan_id, [template_claim(pool)] * wanted.count, {})
        return Result(requeue_after_s=AT_LIMIT_S if wanted.limited else PERIOD_S)
