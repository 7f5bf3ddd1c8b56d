"""Removes the machines that a static pool has too many of, the least missed first."""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.controllers.static.pools import PERIOD_S, StaticPoolController
from pykarpenter.core.snapshot import NodeView
from pykarpenter.core.static_capacity import surplus
from pykarpenter.runtime.controller import Result

REASON = "overprovisioned"


class StaticDeprovisioning(StaticPoolController):
    name = "static.deprovisioning"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._writer = ClaimWriter(ctx)
        # Deleted by us, not yet seen as deleting: counting them as present would delete others in their place.
        self._deleted: dict[str, None] = {}

    def _claim_changed(self, change: Changed[NodeClaim]) -> None:
        if change.old is not None and (change.new is None or change.new.is_deleting):
            self._deleted.pop(change.old.uid, None)
        super()._claim_changed(change)

    async def reconcile(self, name: str) -> Result | None:
        pool = self._pool(name)
        if pool is None:
            return None
        active = self._ctx.state.pool_claims(name).active
        machines = [view for view in self._ctx.state.views() if self._is_present(view, active)]
        managed_cost = self._ctx.settings.feature_gates.pod_deletion_cost_management
        protect = self._ctx.settings.protect_unparsable_do_not_disrupt
        for view in surplus(pool, machines, self._ctx.clock.now(), managed_cost, protect):
            if view.claim is not None:
                self._log.info("removing a machine too many", nodepool=name, nodeclaim=view.claim.name)
                await self._remove(view.claim)
        return Result(requeue_after_s=PERIOD_S)

    def _is_present(self, view: NodeView, active: set[str]) -> bool:
        return view.claim is not None and view.claim.name in active and view.claim.uid not in self._deleted

    async def _remove(self, claim: NodeClaim) -> None:
        await self._writer.give_up(claim, REASON)
        present = self._ctx.caches.of(kinds.NODE_CLAIM).get(claim.name)
        # The watch may have shown it before the answer came.
        if present is not None and present.uid == claim.uid and not present.is_deleting:
            self._deleted[claim.uid] = None
