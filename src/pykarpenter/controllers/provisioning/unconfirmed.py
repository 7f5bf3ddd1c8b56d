"""Finds out about NodeClaims of which nobody can say whether they exist (controller `state.nodeclaimgc`).

Two doubts arise. A create may have been answered by nothing: its promise is kept until the API server, asked long
after the last attempt, knows no such claim. And a claim may have been created and deleted before the watch began to
look (F14): it would stay in memory for ever, so the API server is asked about each claim that the watch never showed.
"""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.controllers.context import Context
from pykarpenter.kube.errors import NotFound
from pykarpenter.runtime.controller import Loop
from pykarpenter.runtime.logs import get_logger

PERIOD_S = 5.0
# Karpenter looks after 15 s too: long enough for a healthy watch to have delivered.
ASK_AFTER_S = 15.0
# An API server may still carry out a request a minute after the client gave up (its own request time-out).
GIVE_UP_AFTER_S = 75.0


class UnconfirmedClaims:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._claims = ctx.caches.of(kinds.NODE_CLAIM)
        self._first_missed: dict[str, float] = {}
        self._loop = Loop("state.nodeclaimgc", self.step, clock=ctx.clock)
        self._log = get_logger(controller="state.nodeclaimgc")

    async def run(self) -> None:
        await self._loop.run()

    async def step(self) -> float:
        now = self._ctx.clock.now()
        for promise in self._ctx.state.ledger.open_promises():
            if promise.sent_at and now - promise.sent_at >= ASK_AFTER_S:
                await self._settle(promise.claim, may_give_up=now - promise.sent_at >= GIVE_UP_AFTER_S)
        for claim in self._never_shown(now):
            if await self._get(claim.name) is None:
                self._log.info("dropping nodeclaim that the cluster does not have", NodeClaim=claim.name)
                self._ctx.state.observe(kinds.NODE_CLAIM, claim, None)
        return PERIOD_S

    async def _settle(self, name: str, *, may_give_up: bool) -> None:
        claim = await self._get(name)
        if claim is not None:
            self._ctx.state.insert_claim(claim)
        elif may_give_up:
            self._ctx.state.abandon(name)

    async def _get(self, name: str) -> NodeClaim | None:
        try:
            return await self._ctx.api.get(kinds.NODE_CLAIM, name)
        except NotFound:
            return None

    def _never_shown(self, now: float) -> list[NodeClaim]:
        """Claims in memory that the watch has not shown for a while."""
        missing = [claim for claim in self._ctx.state.claims() if self._claims.get(claim.name) is None]
        self._first_missed = {claim.name: self._first_missed.get(claim.name, now) for claim in missing}
        return [claim for claim in missing if now - self._first_missed[claim.name] >= ASK_AFTER_S]
