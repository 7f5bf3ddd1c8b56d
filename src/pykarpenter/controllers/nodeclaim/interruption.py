"""Acts on interruptions that the cloud announces: every machine that was warned is given up at once.

All warned machines are marked before the first is deleted, so that one plan replaces them together instead of one
after the other as budgets release their pods. Repeated, late and foreign messages do no harm: a machine that no
claim of ours owns is not touched, and one that is leaving already is left to leave.
"""

from __future__ import annotations

import asyncio

from pykarpenter.api import labels
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.cloud.provider import Interruption
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.identity import claim_reference, claims_of, node_reference, nodes_of
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.core.interruption import Answer, answer_to
from pykarpenter.core.lifecycle import termination_deadline
from pykarpenter.kube.errors import Conflict
from pykarpenter.runtime.controller import Loop
from pykarpenter.runtime.logs import get_logger

NAME = "interruption"
PERIOD_S = 2.0
PARALLEL = 20
_HANDLED_KEPT = 10_000


class Interruptions:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._writer = ClaimWriter(ctx)
        # Messages that need no second look, by ID; losing them in a restart costs a repeated event.
        self._handled: dict[str, None] = {}
        self._log = get_logger(controller=NAME)
        self._loop = Loop(NAME, self.step, clock=ctx.clock)

    async def run(self) -> None:
        await self._loop.run()

    async def step(self) -> float:
        try:
            announced = await self._ctx.provider.interruptions()
        except Exception:
            self._ctx.metrics.gauge("pykarpenter_degraded", {"what": "interruptions"}, 1)
            raise
        self._ctx.metrics.gauge("pykarpenter_degraded", {"what": "interruptions"}, 0)
        warned = [found for message in announced if (found := self._judge(message)) is not None]
        self._ctx.state.mark_for_deletion(*(claim.status.provider_id for claim, _, _ in warned), reason=NAME)
        free = asyncio.Semaphore(PARALLEL)

        async def give_up(claim: NodeClaim, message: Interruption, answer: Answer) -> None:
            async with free:
                await self._give_up(claim, message, answer)

        results = await asyncio.gather(*(give_up(*found) for found in warned), return_exceptions=True)
        for error in results:
            if isinstance(error, Exception) and not isinstance(error, Conflict):
                self._log.error("giving up an interrupted machine failed, trying again", error=error)
        return PERIOD_S

    def _judge(self, message: Interruption) -> tuple[NodeClaim, Interruption, Answer] | None:
        """The claim to give up; None when there is nothing to do, or nothing to do any more."""
        key = message.id or f"{message.provider_id}/{message.reason}"
        if key in self._handled:
            return None
        answer = answer_to(message.reason)
        claims = claims_of(self._ctx, message.provider_id)
        if len(claims) != 1 or answer is None:
            # Another cluster's machine, one that is gone, or words we do not know.
            self._ctx.metrics.count("pykarpenter_foreign_skipped_total", {"what": "interruption"})
            self._remember(key)
            return None
        self._ctx.metrics.count("karpenter_interruption_received_messages_total", {"message_type": answer.metric})
        self._publish(claims[0], answer)
        if answer.gives_up and not claims[0].is_deleting:
            return claims[0], message, answer
        self._remember(key)
        return None

    async def _give_up(self, claim: NodeClaim, message: Interruption, answer: Answer) -> None:
        if answer.forceful:
            now = self._ctx.clock.now()
            present = termination_deadline(claim)
            if present is None or present > now:
                stamp = {labels.TERMINATION_TIMESTAMP: format_timestamp(now)}
                claim = await self._writer.metadata(claim, annotations=stamp)
        self._log.info("giving up interrupted nodeclaim", nodeclaim=claim.name, reason=message.reason)
        await self._writer.give_up(claim, answer.metric)
        self._remember(message.id or f"{message.provider_id}/{message.reason}")

    def _remember(self, key: str) -> None:
        self._handled[key] = None
        while len(self._handled) > _HANDLED_KEPT:
            del self._handled[next(iter(self._handled))]

    def _publish(self, claim: NodeClaim, answer: Answer) -> None:
        text = f"The cloud announced: {answer.event}"
        self._ctx.recorder.publish(claim_reference(claim), "Warning", answer.event, text, dedupe=(claim.uid,))
        for node in nodes_of(self._ctx, claim):
            self._ctx.recorder.publish(node_reference(node), "Warning", answer.event, text, dedupe=(node.uid,))
