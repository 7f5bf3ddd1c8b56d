"""Deletes claims that have lived for their `expireAfter`; no budget holds it back and nothing is bought ahead."""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.api.duration import InvalidDuration
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.identity import is_managed_claim
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.core.lifecycle import expires_at
from pykarpenter.runtime.controller import Controller, Result
from pykarpenter.runtime.logs import get_logger

NAME = "nodeclaim.expiration"
# Nothing is removed while a kind is not served; looked at again this often (F33).
UNSERVED_S = 60.0


class Expiration:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._writer = ClaimWriter(ctx)
        self._claims = ctx.caches.of(kinds.NODE_CLAIM)
        self._log = get_logger(controller=NAME)
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, clock=ctx.clock, workers=ctx.settings.workers(10, 1000)
        )
        ctx.caches.subscribe(kinds.NODE_CLAIM, self._claim_changed)

    async def run(self) -> None:
        await self.controller.run()

    def _claim_changed(self, change: Changed[NodeClaim]) -> None:
        # The spec cannot change, so the first sight of a claim is enough.
        if change.new is not None and change.old is None:
            self.controller.enqueue(change.new.name)

    async def reconcile(self, name: str) -> Result | None:
        claim = self._claims.get(name)
        if claim is None or claim.is_deleting or not is_managed_claim(claim, self._ctx.provider.traits):
            return None
        try:
            due = expires_at(claim)
        except InvalidDuration as error:
            self._log.error("expireAfter cannot be read; the claim does not expire", error=error, nodeclaim=name)
            return None
        if due is None:
            return None
        left = due - self._ctx.clock.now()
        if left > 0:
            # Looked at again at least daily: a wall clock that is set back must not lose the appointment.
            return Result(requeue_after_s=min(left, 86400.0))
        if self._ctx.caches.unserved():
            return Result(requeue_after_s=UNSERVED_S)
        self._log.info("expiring nodeclaim", nodeclaim=name)
        await self._writer.give_up(claim, "expired")
        return None
