"""Keeps the conditions that disruption decides on: Drifted and Consolidatable.

Acts on managed claims of existing pools that are not being deleted. A provider or catalogue that cannot be asked
leaves the condition as it is: unknown is not drifted, and not cured either.
"""

from __future__ import annotations

from functools import partial

from pykarpenter.api import kinds
from pykarpenter.api.duration import InvalidDuration
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodeClaim, NodeClass, NodeClassReference, NodePool
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.identity import is_managed_claim
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.controllers.nodepool.pools import Pools
from pykarpenter.core.conditions import Finding
from pykarpenter.core.consolidatable import quiet
from pykarpenter.core.drift import (
    instance_type_drift,
    is_old_enough_for_type_check,
    requirements_drift,
    template_drift,
)
from pykarpenter.core.lifecycle import CONSOLIDATABLE, DRIFTED, LAUNCHED
from pykarpenter.runtime.controller import Controller, Result
from pykarpenter.runtime.logs import get_logger

NAME = "nodeclaim.disruption"
RECHECK_S = 300.0
TYPE_FOUND_KEPT_S = 1800.0


class NodeClaimDisruption:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._writer = ClaimWriter(ctx)
        self._claims = ctx.caches.of(kinds.NODE_CLAIM)
        self._pools = ctx.caches.of(kinds.NODE_POOL)
        # When a claim's instance type was last found in its pool's catalogue, by UID; monotonic seconds.
        self._type_found: dict[str, float] = {}
        self._log = get_logger(controller=NAME)
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, clock=ctx.clock, workers=ctx.settings.workers(10, 1000)
        )
        ctx.caches.subscribe(kinds.NODE_CLAIM, self._claim_changed)
        ctx.caches.subscribe(kinds.NODE_POOL, self._pool_changed)
        for kind in Pools(ctx).class_kinds.values():
            ctx.caches.subscribe(kind, partial(self._class_changed, kind.group, kind.kind))

    async def run(self) -> None:
        await self.controller.run()

    def _claim_changed(self, change: Changed[NodeClaim]) -> None:
        if change.new is not None:
            self.controller.enqueue(change.new.name)
        elif change.old is not None:
            self._type_found.pop(change.old.uid, None)

    def _pool_changed(self, change: Changed[NodePool]) -> None:
        pool = change.new
        if pool is None or (change.old is not None and _same(change.old, pool)):
            return
        for claim in self._claims.values():
            if claim.pool_name == pool.name:
                self.controller.enqueue(claim.name)

    def _class_changed(self, group: str, kind: str, change: Changed[NodeClass]) -> None:
        """A new image or another spec: the provider may call the machines of this class drifted now."""
        if change.old is None or change.new is None:
            return
        wanted = NodeClassReference(group=group, kind=kind, name=change.new.name)
        for claim in self._claims.values():
            if claim.spec.node_class_ref == wanted:
                self.controller.enqueue(claim.name)

    async def reconcile(self, name: str) -> Result | None:
        claim = self._claims.get(name)
        pool = self._pools.get(claim.pool_name) if claim is not None and claim.pool_name else None
        if claim is None or pool is None or claim.is_deleting:
            return None
        if not is_managed_claim(claim, self._ctx.provider.traits):
            return None
        findings: list[Finding] = []
        clear: list[str] = []
        reason = await self._drift(claim, pool)
        if reason:
            findings.append(Finding(DRIFTED, "True", reason, reason))
        else:
            clear.append(DRIFTED)
        check_after_s = RECHECK_S
        if not pool.is_static:
            check_after_s = min(check_after_s, self._consolidatable(claim, pool, findings, clear))
        await self._writer.status(claim, *findings, clear=clear)
        return Result(requeue_after_s=check_after_s)

    def _consolidatable(self, claim: NodeClaim, pool: NodePool, findings: list[Finding], clear: list[str]) -> float:
        try:
            verdict = quiet(claim, pool, self._ctx.clock.now())
        except InvalidDuration as error:
            self._log.error("consolidateAfter cannot be read", error=error, nodepool=pool.name)
            clear.append(CONSOLIDATABLE)
            return RECHECK_S
        if verdict.consolidatable:
            findings.append(Finding(CONSOLIDATABLE, "True", CONSOLIDATABLE))
        else:
            clear.append(CONSOLIDATABLE)
        return verdict.check_after_s if verdict.check_after_s is not None else RECHECK_S

    async def _drift(self, claim: NodeClaim, pool: NodePool) -> str:
        if condition_status(claim.status.conditions, LAUNCHED) != "True":
            return ""
        rules = self._ctx.provider.traits.label_rules
        reason = template_drift(claim, pool) or requirements_drift(claim, pool, rules)
        if reason:
            return reason
        return await self._type_drift(claim, pool) or await self._ctx.provider.is_drifted(claim)

    async def _type_drift(self, claim: NodeClaim, pool: NodePool) -> str:
        now = self._ctx.clock.monotonic()
        if not is_old_enough_for_type_check(claim, self._ctx.clock.now()):
            return ""
        found = self._type_found.get(claim.uid)
        if found is not None and now - found < TYPE_FOUND_KEPT_S:
            return ""
        traits = self._ctx.provider.traits
        types = await self._ctx.provider.instance_types(pool)
        reason = instance_type_drift(claim, types, traits.label_rules, traits.reservation_id_label)
        if not reason and self._claims.get(claim.name) is not None:
            self._type_found[claim.uid] = now
        return reason


def _same(old: NodePool, new: NodePool) -> bool:
    """Status writes of the pool, several a minute, say nothing about drift."""
    return old.metadata.annotations == new.metadata.annotations and old.spec == new.spec
