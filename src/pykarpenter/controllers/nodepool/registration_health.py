"""`nodepool.registrationhealth`: whether a pool's machines become nodes, judged by their last registrations.

Results are read off the NodeClaims themselves: one that turns Registered has succeeded, one that is deleted when it was
overdue has failed. So nobody has to report, and a result cannot be forgotten between two writes.
"""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.api.meta import condition_status, find_condition
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.nodepool.pools import PoolController
from pykarpenter.core import registration_health as health
from pykarpenter.core.lifecycle import LAUNCHED, REGISTERED, check_liveness
from pykarpenter.kube.contract import Json
from pykarpenter.runtime.controller import Result


class PoolRegistrationHealth(PoolController):
    name = "nodepool.registrationhealth"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.history = health.RegistrationHistory()
        self.watch_classes()
        ctx.caches.subscribe(kinds.NODE_CLAIM, self._claim_changed)

    def pool_changed(self, change: Changed[NodePool]) -> None:
        super().pool_changed(change)
        if change.new is None and change.old is not None:
            self.history.forget(change.old.uid)

    def _claim_changed(self, change: Changed[NodeClaim]) -> None:
        result = None if change.initial or change.old is None else self._result(change.old, change.new)
        claim = change.new or change.old
        owner = _owner_uid(claim) if claim is not None else ""
        if result is None or claim is None or not owner:
            return
        pool = self.pools.get(claim.pool_name)
        if pool is not None and pool.uid == owner:
            self.history.seed(pool)
            self.history.record(owner, result)
            self.controller.enqueue(pool.name)

    def _result(self, old: NodeClaim, new: NodeClaim | None) -> health.Registration | None:
        if condition_status(old.status.conditions, REGISTERED) == "True" or old.is_deleting:
            return None
        if new is not None and condition_status(new.status.conditions, REGISTERED) == "True":
            return health.Registration(True)
        if new is not None and not new.is_deleting:
            return None
        overdue = check_liveness(old, self.ctx.clock.now()).overdue
        if overdue is None:
            return None
        launched = find_condition(old.status.conditions, LAUNCHED)
        if launched is None or launched.status == "True":
            return health.Registration(False, "RegistrationFailed", overdue.message)
        return health.Registration(False, launched.reason, launched.message)

    async def reconcile(self, pool: NodePool) -> Result | None:
        await self.writer.status(pool, self._decide)
        return None

    def _decide(self, pool: NodePool) -> Json:
        node_class = self.pools.node_class(pool) if self.pools.is_managed(pool) else None
        if node_class is None:
            return {}
        generation = node_class.metadata.generation
        if health.needs_reset(pool, generation):
            self.history.reset(pool.uid)
            fields = {"nodeClassObservedGeneration": generation}
            return self.writer.with_conditions(pool, health.fresh(), fields=fields)
        self.history.seed(pool)
        finding = health.verdict(self.history, pool.uid)
        return self.writer.with_conditions(pool, finding) if finding is not None else {}


def _owner_uid(claim: NodeClaim) -> str:
    for owner in claim.metadata.owner_references:
        if owner.kind == kinds.NODE_POOL.kind:
            return owner.uid
    return ""
