"""Checks now and then that a machine is as large as it was said to be, and says so when it is not."""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.identity import claim_reference, is_managed_claim, nodes_of
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.core.conditions import Finding, shorten, true
from pykarpenter.core.lifecycle import CONSISTENT, INITIALIZED, inconsistencies
from pykarpenter.runtime.controller import Controller, Result

NAME = "nodeclaim.consistency"
PERIOD_S = 600.0


class Consistency:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._writer = ClaimWriter(ctx)
        self._claims = ctx.caches.of(kinds.NODE_CLAIM)
        self._checked: dict[str, float] = {}
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, clock=ctx.clock, workers=ctx.settings.workers(10, 1000)
        )
        ctx.caches.subscribe(kinds.NODE_CLAIM, self._claim_changed)

    async def run(self) -> None:
        await self.controller.run()

    def _claim_changed(self, change: Changed[NodeClaim]) -> None:
        if change.new is None:
            if change.old is not None:
                self._checked.pop(change.old.uid, None)
        elif condition_status(change.new.status.conditions, INITIALIZED) == "True":
            self.controller.enqueue(change.new.name)

    async def reconcile(self, name: str) -> Result | None:
        claim = self._claims.get(name)
        if claim is None or claim.is_deleting or not is_managed_claim(claim, self._ctx.provider.traits):
            return None
        if condition_status(claim.status.conditions, INITIALIZED) != "True":
            return None
        now = self._ctx.clock.monotonic()
        last = self._checked.get(claim.uid)
        if last is not None and last + PERIOD_S > now:
            return Result(requeue_after_s=last + PERIOD_S - now)
        nodes = nodes_of(self._ctx, claim)
        if len(nodes) != 1:
            return Result(requeue_after_s=PERIOD_S)
        problems = inconsistencies(claim, nodes[0])
        finding = true(CONSISTENT)
        if problems:
            message = shorten("; ".join(problems))
            finding = Finding(CONSISTENT, "False", "ConsistencyCheckFailed", message)
            self._ctx.recorder.publish(
                claim_reference(claim), "Warning", "FailedConsistencyCheck", message, dedupe=(claim.uid,)
            )
        await self._writer.status(claim, finding)
        if self._claims.get(name) is None:
            # Gone while its status was written.
            return None
        self._checked[claim.uid] = now
        return Result(requeue_after_s=PERIOD_S)
