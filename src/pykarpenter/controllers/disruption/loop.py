"""The disruption loop (controller `disruption`): heal, validate what is due, decide, start.

Decisions are made on frozen snapshots, off the event loop. A graceful command waits for its second look while the
other methods go on; only consolidation itself waits, because its next answer depends on this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pykarpenter.api import kinds
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.disruption.back_off import PoolBackOff
from pykarpenter.controllers.disruption.displaced import Displaced
from pykarpenter.controllers.disruption.healing import SelfHeal
from pykarpenter.controllers.disruption.orchestration import Orchestration
from pykarpenter.controllers.disruption.outcomes import Outcomes
from pykarpenter.controllers.disruption.reports import Reports
from pykarpenter.controllers.disruption.starting import Starter
from pykarpenter.controllers.provisioning.catalogue import Catalogue
from pykarpenter.core.disruption.blockers import Notice
from pykarpenter.core.disruption.calm import workload_of
from pykarpenter.core.disruption.candidates import World
from pykarpenter.core.disruption.commands import Command, DisruptionPlan, Method
from pykarpenter.core.disruption.decide import decide
from pykarpenter.core.disruption.engine import SimulationSource
from pykarpenter.core.disruption.selection import annotation_notices, next_opening, unreadable_costs
from pykarpenter.core.disruption.settings import VALIDATION_DELAY_S, DisruptionSettings, Memory
from pykarpenter.core.disruption.validation import Validated, rejection_notices, validate
from pykarpenter.core.snapshot import ClusterSnapshot
from pykarpenter.runtime.controller import Loop
from pykarpenter.runtime.logs import get_logger

NAME = "disruption"
IDLE_S = 10.0
# Consolidation looks again after this long even when nothing seems to have changed.
REFRESH_S = 300.0
_GRACEFUL = (Method.EMPTINESS, Method.MULTI_NODE, Method.SINGLE_NODE)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A graceful command between its two looks."""

    command: Command
    due_at: float


class ChangeStamp:
    """A number that is new whenever consolidation may find something new, and at least every five minutes."""

    def __init__(self) -> None:
        self._revision = -1
        self._renewed_at = 0.0
        self._stamp = 0
        # When a machine that was blocked for a known time becomes free without any other change.
        self.lapses_at = math.inf

    def at(self, revision: int, now: float) -> float:
        if revision != self._revision or now - self._renewed_at >= REFRESH_S or now >= self.lapses_at:
            self._revision, self._renewed_at, self.lapses_at = revision, now, math.inf
            self._stamp += 1
        return float(self._stamp)

    def peek(self, revision: int) -> float | None:
        """The number given last; None when the cluster has changed since."""
        return float(self._stamp) if revision == self._revision else None


class DisruptionLoop:
    def __init__(
        self,
        ctx: Context,
        settings: DisruptionSettings,
        simulations: SimulationSource,
        queue: Orchestration,
        starter: Starter,
        healing: SelfHeal,
        reports: Reports,
        back_off: PoolBackOff,
    ) -> None:
        self._ctx = ctx
        self._settings = settings
        self._simulations = simulations
        self._queue = queue
        self._starter = starter
        self._healing = healing
        self._reports = reports
        self._back_off = back_off
        self._catalogue = Catalogue(ctx)
        self._stamp = ChangeStamp()
        self._nothing_at: dict[str, float] = {}
        # As above, also for a fleet without candidates, which is looked at anew in each pass.
        self._idle_at: dict[str, float] = {}
        self._unseen: tuple[str, ...] = ()
        self._nothing_better_at: tuple[float, tuple[tuple[str, int], ...]] | None = None
        self._displaced = Displaced(ctx)
        self._outcomes = Outcomes(ctx)
        self.waiting: Waiting | None = None
        # Dry run: what was reported last, so that the same finding is not repeated each pass.
        self._reported: dict[str, float] = {}
        self._loop = Loop(NAME, self.step, clock=ctx.clock)
        self._log = get_logger(controller=NAME)

    async def run(self) -> None:
        await self._ctx.sync.wait_first()
        await self._loop.run()

    async def step(self) -> float:
        """One pass; the seconds until the next."""
        if self._ctx.caches.unserved():
            return IDLE_S
        if not self._ctx.settings.dry_run:
            await self._healing.heal(self._in_flight())
        await self._catalogue.refresh()
        await self._displaced.read()
        started, given_up = await self._validate_due()
        plan = await self._decide(given_up)
        for command in plan.commands:
            if command.needs_validation:
                self.waiting = Waiting(command, self._ctx.clock.now() + VALIDATION_DELAY_S)
            else:
                started = await self._start(command) or started
        return 0.0 if started else self._pause()

    def _pause(self) -> float:
        if self.waiting is None:
            return IDLE_S
        return max(0.1, min(IDLE_S, self.waiting.due_at - self._ctx.clock.now()))

    def _in_flight(self) -> frozenset[str]:
        return self._queue.nodes() | frozenset(self._starter.starting)

    def _snapshot(self) -> ClusterSnapshot:
        return self._ctx.state.snapshot(self._ctx.clock.now())

    def _world(self, snapshot: ClusterSnapshot, waiting: Command | None) -> World:
        held = self._in_flight() | frozenset(waiting.nodes if waiting is not None else ())
        memory = Memory(
            in_flight=held,
            nothing_at=dict(self._nothing_at),
            unseen_pools=self._unseen,
            back_off_until=self._back_off.until(),
            displaced_at=self._displaced.at(),
            cooling_until=self._outcomes.cooling(),
            nothing_better_at=self._nothing_better_at,
        )
        return World(snapshot, self._settings, memory)

    async def _decide(self, given_up: Method | None = None) -> DisruptionPlan:
        """What to do now; a graceful method that was just given up has had its turn in this pass."""
        now = self._ctx.clock.now()
        stamp = self._stamp.at(self._ctx.state.consolidation_revision, now)
        snapshot = self._snapshot()
        waiting = self.waiting.command if self.waiting is not None else None
        world = self._world(snapshot, waiting)
        passed = _GRACEFUL if waiting is not None else _GRACEFUL[: _GRACEFUL.index(given_up) + 1] if given_up else ()
        methods = [m for m in Method if m not in passed]

        def answer() -> tuple[DisruptionPlan, float, list[Notice], list[tuple[str, str, str]]]:
            clock = self._ctx.clock.monotonic
            plan = decide(world, self._simulations(snapshot), stamp, methods, self._deadline, clock)
            return plan, next_opening(world), annotation_notices(world), unreadable_costs(world)

        plan, self._stamp.lapses_at, notices, costs = await self._ctx.offload(answer)
        self._remember(plan, stamp)
        await self._reports.plan(plan)
        await self._reports.publish(notices)
        self._reports.unreadable_costs(costs)
        return plan

    def _deadline(self, limit_s: float) -> Callable[[], bool]:
        end = self._ctx.clock.monotonic() + limit_s
        return lambda: self._ctx.clock.monotonic() > end

    def _remember(self, plan: DisruptionPlan, stamp: float) -> None:
        for run in plan.runs:
            if run.settled:
                self._nothing_at[run.method] = stamp
            if run.settled or not (run.eligible or run.error):
                self._idle_at[run.method] = stamp
            if run.method is Method.SINGLE_NODE:
                self._unseen = run.unseen_pools
        self._nothing_better_at = plan.nothing_better_at or self._nothing_better_at

    async def _validate_due(self) -> tuple[bool, Method | None]:
        """The second look of a command whose pause is over: whether it was started, and the method if not."""
        if self.waiting is None or self._ctx.clock.now() < self.waiting.due_at:
            return False, None
        command, self.waiting = self.waiting.command, None
        snapshot = self._snapshot()
        world = self._world(snapshot, None)

        def answer() -> Validated:
            return validate(world, self._simulations(snapshot), command)

        validated = await self._ctx.offload(answer)
        if validated.command is None:
            message = validated.blocker.message if validated.blocker is not None else ""
            self._reports.validation_failed(command, validated.failure, message)
            await self._reports.publish(rejection_notices(world, command, validated))
            return False, command.method
        started = await self._start(validated.command)
        return started, None if started else command.method

    async def _start(self, command: Command) -> bool:
        if self._ctx.settings.dry_run:
            self._report_once(command)
            return False
        workloads = self._workloads(command)
        if workloads and not await self._displaced.note(workloads) and command.needs_validation:
            return False
        started = await self._starter.start(command)
        if started:
            running = self._queue.running_for(command.targets[0].claim)
            self._outcomes.watch(command, running.replacements if running is not None else (), workloads)
        return started

    def _workloads(self, command: Command) -> list[str]:
        cache = self._ctx.caches.of(kinds.POD)
        pods = (cache.get(key) for target in command.targets for key in sorted(target.pods))
        return [workload_of(pod) for pod in pods if pod is not None]

    @property
    def quiet(self) -> bool:
        """Whether consolidation looked at the fleet as it is and found nothing to do."""
        stamp = self._stamp.peek(self._ctx.state.consolidation_revision)
        # Where single machines were all looked at, larger sets were too: only budgets keep those from being settled.
        looked = stamp is not None and self._idle_at.get(Method.SINGLE_NODE) == stamp
        further = self._nothing_better_at is not None and self._nothing_better_at[0] == stamp
        return self.waiting is None and looked and (further or not self._settings.best_sets)

    def _report_once(self, command: Command) -> None:
        now = self._ctx.clock.now()
        text = command.text()
        if now - self._reported.get(text, -REFRESH_S) >= REFRESH_S:
            self._reported = {key: at for key, at in self._reported.items() if now - at < REFRESH_S}
            self._reported[text] = now
            self._reports.would_start(command)
