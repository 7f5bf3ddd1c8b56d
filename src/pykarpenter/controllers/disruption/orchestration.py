"""Commands that run (controller `disruption.queue`): wait for replacements, then delete; or give up and roll back.

A command lives in memory only. After a crash its signs are removed by the loop's self-heal and its replacements are
ordinary capacity, so nothing here needs to be remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.timestamps import format_timestamp, parse_timestamp
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.disruption.back_off import PoolBackOff
from pykarpenter.controllers.disruption.live import LiveFacts
from pykarpenter.controllers.disruption.marking import Marking
from pykarpenter.controllers.disruption.reports import Reports
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.commands import Command, Target
from pykarpenter.kube.contract import DeleteOptions, Preconditions
from pykarpenter.kube.errors import ApiError, Conflict, NotFound
from pykarpenter.runtime.controller import Controller, Result
from pykarpenter.runtime.logs import get_logger

NAME = "disruption.queue"
PERIOD_S = 1.0
WORKERS = (100, 1000)
_PER_CANDIDATE_S = 0.08
_SHORTEST_S = 600.0
_LONGEST_S = 3600.0


@dataclass(slots=True)
class Running:
    """A command on its way: which replacements still start, which machines are already deleted."""

    command: Command
    replacements: tuple[str, ...]
    started_at: float
    starting: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)

    @property
    def left(self) -> list[Target]:
        return [target for target in self.command.targets if target.claim not in self.deleted]


class Orchestration:
    def __init__(
        self, ctx: Context, live: LiveFacts, marking: Marking, reports: Reports, back_off: PoolBackOff
    ) -> None:
        self._ctx = ctx
        self._live = live
        self._marking = marking
        self._reports = reports
        self._back_off = back_off
        self._running: dict[str, Running] = {}
        self._claims = ctx.caches.of(kinds.NODE_CLAIM)
        self._log = get_logger(controller=NAME)
        self._waited_for: dict[str, str] = {}
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, clock=ctx.clock, workers=ctx.settings.workers(*WORKERS)
        )
        ctx.caches.subscribe(kinds.NODE_CLAIM, self._claim_changed)

    def _claim_changed(self, change: Changed[NodeClaim]) -> None:
        """A replacement that is going must be known before provisioning plans for the pods that waited for it."""
        claim = change.new or change.old
        if claim is not None and claim.name in self._waited_for:
            self.controller.enqueue(self._waited_for[claim.name])

    async def run(self) -> None:
        await self.controller.run()

    def nodes(self) -> frozenset[str]:
        """Nodes that a running command holds."""
        return frozenset(target.node for running in self._running.values() for target in running.command.targets)

    @property
    def commands(self) -> list[Command]:
        return [running.command for running in self._running.values()]

    def running_for(self, claim: str) -> Running | None:
        """The command that takes this claim, while it is on its way."""
        for running in self._running.values():
            if any(target.claim == claim for target in running.command.targets):
                return running
        return None

    def add(self, running: Running) -> None:
        self._running[running.command.id] = running
        self._waited_for.update(dict.fromkeys(running.replacements, running.command.id))
        self.controller.enqueue(running.command.id)

    async def reconcile(self, command_id: str) -> Result | None:
        running = self._running.get(command_id)
        if running is None:
            return None
        lost = await self._await_replacements(running)
        if lost:
            await self._give_up(running, f"replacement {lost} is gone")
            return None
        if not running.starting:
            return await self._delete_all(running)
        if self._is_overdue(running):
            await self._give_up(running, "replacements did not initialize in time")
            return None
        return Result(requeue_after_s=PERIOD_S)

    async def _delete_all(self, running: Running) -> Result | None:
        """Success is looked at before the time-out: what is deleted is not rolled back, and the rest only then."""
        try:
            result = await self._finish(running)
        except (ApiError, OSError) as error:
            if not self._is_overdue(running):
                raise
            await self._give_up(running, f"nodes cannot be deleted: {error}")
            return None
        if result is not None and self._is_overdue(running):
            await self._give_up(running, "nodes could not be deleted in time")
            return None
        return result

    async def _await_replacements(self, running: Running) -> str:
        """The name of a replacement that is gone for good; those that are initialized stop being waited for.

        One that was ready and went again counts like one that never came, as long as nothing is deleted for it.
        """
        for name in sorted(running.starting if running.deleted else running.replacements):
            claim = self._claims.get(name)
            if claim is None or claim.is_deleting:
                claim = await self._live.claim(name)
            if claim is None:
                if name in self._ctx.state.ledger:
                    continue
                return self._lost(running, name)
            if claim.is_deleting:
                return self._lost(running, name)
            if name not in running.starting:
                continue
            ready = condition_status(claim.status.conditions, "Initialized") == "True"
            self._reports.launching(name, running.command.reason, waiting=not ready)
            if ready:
                running.starting.discard(name)
        return ""

    def _lost(self, running: Running, name: str) -> str:
        running.starting.add(name)
        return name

    def _is_overdue(self, running: Running) -> bool:
        candidates = len(self.nodes())
        limit = min(_LONGEST_S, max(_SHORTEST_S, _PER_CANDIDATE_S * candidates))
        return self._ctx.clock.now() - running.started_at > limit

    async def _finish(self, running: Running) -> Result | None:
        """Delete what is left; a machine whose facts changed stops the command as long as nothing is deleted."""
        for target in running.left:
            blocker, claim = await self._look(running.command, target)
            if blocker is not None:
                if not running.deleted:
                    await self._give_up(running, blocker.message)
                    return None
                await self.release([target])
                running.deleted.add(target.claim)
                self._log.info("node stays in service", Node=target.node, why=blocker.message)
                continue
            if claim is not None and not await self._delete(running, target, claim):
                return Result(requeue_after_s=PERIOD_S)
            running.deleted.add(target.claim)
        self._forget(running)
        if running.replacements:
            await self._back_off.succeeded(_pools(running.command))
        return None

    async def _look(self, command: Command, target: Target) -> tuple[Blocker | None, NodeClaim | None]:
        """A claim that somebody deleted already is what the command wanted."""
        blocker, live = await self._live.delete_blocker(command, target)
        gone = live.claim is None or live.claim.uid != target.claim_uid or live.claim.is_deleting
        if gone:
            return None, None
        return blocker, live.claim

    async def _delete(self, running: Running, target: Target, claim: NodeClaim) -> bool:
        """Whether the deletion is accepted; a Conflict means that the facts must be read again."""
        try:
            claim = await self._stamp(target, claim)
            expected = Preconditions(uid=claim.uid, resource_version=claim.metadata.resource_version)
            facts = {"uid": claim.uid, "resourceVersion": claim.metadata.resource_version}
            self._reports.audit("delete nodeclaim", running.command, target, facts)
            await self._ctx.api.delete(kinds.NODE_CLAIM, claim.name, options=DeleteOptions(expected))
        except NotFound:
            pass
        except Conflict:
            return False
        if target.claim not in running.counted:
            running.counted.add(target.claim)
            self._reports.terminating(target, running.command.reason)
            self._reports.disrupted(running.command, target)
        return True

    async def _stamp(self, target: Target, claim: NodeClaim) -> NodeClaim:
        """The deadline of a bounded drain; an earlier one stays, so a deadline only tightens."""
        if target.drain_bound_s is None:
            return claim
        deadline = self._ctx.clock.now() + target.drain_bound_s
        present = claim.metadata.annotations.get(labels.TERMINATION_TIMESTAMP)
        if present is not None and _is_no_later(present, deadline):
            return claim
        body = {
            "metadata": {
                "resourceVersion": claim.metadata.resource_version,
                "annotations": {labels.TERMINATION_TIMESTAMP: format_timestamp(deadline)},
            }
        }
        return await self._ctx.api.patch(kinds.NODE_CLAIM, claim.name, body)

    async def _give_up(self, running: Running, why: str) -> None:
        """Back into service: no taint, no condition, no mark. Replacements already launched become capacity."""
        self._forget(running)
        self._reports.given_up(running.command, why, len(running.starting))
        await self.release(running.left)
        if running.starting:
            await self.replacements_failed(running.command)

    def _forget(self, running: Running) -> None:
        self._running.pop(running.command.id, None)
        for name in running.replacements:
            self._waited_for.pop(name, None)

    async def replacements_failed(self, command: Command) -> None:
        """The pools wait a while before their replacements are tried again."""
        await self._back_off.failed(_pools(command))

    async def release(self, targets: Sequence[Target]) -> None:
        """What cannot be written now is left to the self-heal, for no command stands behind it any more."""
        self._ctx.state.unmark_for_deletion(*(target.provider_id for target in targets))
        for target in targets:
            try:
                await self._marking.clear(target)
            except (ApiError, OSError) as error:
                self._log.error("removing the signs of a disruption failed", Node=target.node, error=error)


def _pools(command: Command) -> list[str]:
    return sorted({target.pool for target in command.targets})


def _is_no_later(stamp: str, deadline: float) -> bool:
    try:
        return parse_timestamp(stamp) <= deadline
    except ValueError:
        return False
