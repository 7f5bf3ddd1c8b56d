"""Turns a decided command into a running one: facts, taint, facts again, replacements, marks.

Each machine is read live before it is tainted and again before anything is launched or deleted for it, because a pod
may have been bound, protected or budgeted since the decision. A step that fails puts everything back at once.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from pykarpenter.api.pods import Pod
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.disruption.live import LiveFacts
from pykarpenter.controllers.disruption.marking import ATTEMPTS, Marking
from pykarpenter.controllers.disruption.orchestration import Orchestration, Running
from pykarpenter.controllers.disruption.reboots import RebootHandoff
from pykarpenter.controllers.disruption.reports import Reports
from pykarpenter.controllers.provisioning.creation import ClaimCreator, Outcome
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.commands import Command, Decision, Target
from pykarpenter.core.reasons import Why
from pykarpenter.kube.errors import ApiError, Conflict
from pykarpenter.runtime.logs import get_logger

# Machines that are tainted at the same time.
PARALLEL = 20


class Starter:
    def __init__(self, ctx: Context, live: LiveFacts, marking: Marking, queue: Orchestration, reports: Reports) -> None:
        self._ctx = ctx
        self._live = live
        self._marking = marking
        self._queue = queue
        self._reports = reports
        self._creator = ClaimCreator(ctx)
        self._reboots = RebootHandoff(ctx, live, reports)
        # Nodes of commands that are being started right now.
        self.starting: dict[str, None] = {}
        self._log = get_logger(controller="disruption")

    async def start(self, command: Command) -> bool:
        """Whether the command runs now."""
        held = self._queue.nodes()
        if any(name in held or name in self.starting for name in command.nodes):
            return False
        if command.decision is Decision.REBOOT:
            return await self._reboots.commit(command)
        for name in command.nodes:
            self.starting[name] = None
        try:
            return await self._start(command)
        finally:
            for name in command.nodes:
                self.starting.pop(name, None)

    async def _start(self, command: Command) -> bool:
        marked = await self._mark_all(command)
        if not marked:
            return False
        if len(marked) < len(command.targets):
            # A removal can go on with fewer machines; a replacement was sized and priced for all of them.
            if command.replacements:
                await self._queue.release(marked)
                return False
            command = _only(command, marked)
        still = [target for target in marked if await self._holds(command, target)]
        if len(still) < len(marked) and command.replacements:
            await self._queue.release(marked)
            return False
        await self._queue.release([target for target in marked if target not in still])
        if not still:
            return False
        return await self._launch(_only(command, still))

    async def _mark_all(self, command: Command) -> list[Target]:
        """The machines that carry the taint and the reason now, in the order of the command."""
        free = asyncio.Semaphore(PARALLEL)

        async def mark(target: Target) -> bool:
            async with free:
                try:
                    return await self._mark(command, target)
                except (ApiError, OSError) as error:
                    self._log.error("marking node failed", Node=target.node, command=command.id, error=error)
                    await self._queue.release([target])
                    return False

        done = await asyncio.gather(*(mark(target) for target in command.targets))
        return [target for target, marked in zip(command.targets, done, strict=True) if marked]

    async def _mark(self, command: Command, target: Target) -> bool:
        for _ in range(ATTEMPTS):
            blocker, live = await self._live.blocker(command, target)
            if blocker is not None or live.node is None or live.claim is None:
                self._dropped(command, target, blocker)
                return False
            facts = {
                "node-uid": live.node.uid,
                "node-resourceVersion": live.node.metadata.resource_version,
                "claim-uid": live.claim.uid,
                "pods": ",".join(sorted(target.pods)),
            }
            try:
                self._reports.audit("taint node", command, target, facts)
                await self._marking.taint(live.node)
                await self._marking.tell_reason(live.claim, command.reason)
            except Conflict:
                continue
            return True
        await self._queue.release([target])
        return False

    async def _holds(self, command: Command, target: Target) -> bool:
        """The facts once more, now that no new pod can come."""
        blocker, _ = await self._live.blocker(command, target)
        if blocker is not None:
            self._dropped(command, target, blocker)
        return blocker is None

    def _dropped(self, command: Command, target: Target, blocker: Blocker | None) -> None:
        why = blocker.message if blocker is not None else "node or NodeClaim is gone"
        self._log.info("facts changed, dropping disruption", Node=target.node, command=command.id, blocker=why)
        if command.consolidation_type:
            self._reports.validation_failed(command, str(blocker.why if blocker else Why.CHANGED), why)

    async def _launch(self, command: Command) -> bool:
        """Marks and promises are made in one step without waiting, so that no plan in between counts them twice."""
        state = self._ctx.state
        state.mark_for_deletion(*(target.provider_id for target in command.targets), reason=command.reason)
        pods = self._pods(command)
        outcomes = await self._creator.create_all(command.id, command.replacements, pods, reason=command.reason.lower())
        refused = [outcome for outcome in outcomes if outcome.refusal is not None]
        if refused:
            await self._abort(command, refused)
            return False
        for placement in command.placements:
            state.nominate(placement.node, self._ctx.clock.now() + self._ctx.settings.nomination_s)
        names = tuple(outcome.name for outcome in outcomes)
        self._queue.add(Running(command, names, self._ctx.clock.now(), set(names)))
        self._reports.started(command, names)
        return True

    def _pods(self, command: Command) -> dict[str, Pod]:
        keys = [key for claim in command.replacements for key in claim.pods]
        found = {key: self._ctx.state.pod(key) for key in keys}
        return {key: pod for key, pod in found.items() if pod is not None}

    async def _abort(self, command: Command, refused: Sequence[Outcome]) -> None:
        why = "; ".join(outcome.refusal.text() for outcome in refused if outcome.refusal is not None)
        self._log.error("replacements refused, dropping disruption", command=command.id, why=why)
        await self._queue.release(command.targets)
        await self._queue.replacements_failed(command)


def _only(command: Command, targets: Sequence[Target]) -> Command:
    """The command for these machines alone, with what they save."""
    if len(targets) == len(command.targets):
        return command
    fewer = dataclasses.replace(command, targets=tuple(targets))
    return dataclasses.replace(fewer, saving=fewer.price_now)
