"""One seeded world: an embedded cluster, the real program in it, a story that happens, and checkers that watch.

Everything runs on one virtual-time loop from one seed; the outcome says what was broken, what fired, and a hash of
the whole history.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pykarpenter.api import kinds
from pykarpenter.cloud.provider import CloudProvider
from pykarpenter.controllers.context import Metrics
from pykarpenter.kube.contract import Json, KubeApi, Selection
from pykarpenter.providers.kwok.kubelet import KubeletOptions
from pykarpenter.runtime.clock import Clock, LoopClock
from pykarpenter.runtime.feature_gates import parse_feature_gates
from pykarpenter.runtime.settings import Settings
from pykarpenter.runtime.virtual_loop import DEFAULT_START, VirtualTimeLoop, run_virtual, running_clock
from pykarpenter.sim.api import Middleware, Request
from pykarpenter.sim.checkers import (
    DecisionCheckers,
    FreshnessChecker,
    MoveChecker,
    PlacementChecker,
    Report,
    SafetyCheckers,
    Violation,
    check_liveness,
)
from pykarpenter.sim.checkers.decisions import Decision
from pykarpenter.sim.checkers.liveness import named_waits, waiting
from pykarpenter.sim.cloud.cloud import SimCloud
from pykarpenter.sim.cloud.provider import SimProvider
from pykarpenter.sim.cluster import ClusterOptions, EmbeddedCluster
from pykarpenter.sim.faults.actions import MARKS, carry_out
from pykarpenter.sim.faults.api import ApiFaults, FaultyApi
from pykarpenter.sim.faults.stories import Story
from pykarpenter.sim.journal import Journal
from pykarpenter.sim.process import OperatorProcess

# After the faults: long enough for leases, liveness timeouts and collectors to run their course.
SETTLE_S = 1800.0
STEADY_S = 600.0
# A pod for which two machines came to nothing waits for the next: as long as it was told, never longer than this.
PATIENCE_S = 3600.0
_LOOK_S = 60.0

LEASE = ("karpenter-leader-election", "kube-system")

MakeProvider = Callable[[KubeApi, Clock, SimCloud], CloudProvider]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one world came to."""

    seed: int
    violations: tuple[Violation, ...]
    fired: dict[str, int]
    digest: str
    writes: int
    launches: int
    failures: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return not self.violations and not self.failures


@dataclass(slots=True)
class World:
    """The parts that actions work on."""

    cluster: EmbeddedCluster
    user: KubeApi
    process: OperatorProcess
    api_faults: ApiFaults
    # The program's own wall clock, which a fault can set wrong.
    process_clock: LoopClock
    # A second process of the program, which runs only while a fault wants two.
    standby: OperatorProcess | None = None
    report: Report = field(default_factory=Report)
    marks: Counter[str] = field(default_factory=Counter)

    def mark(self, fault: str) -> None:
        self.marks[fault] += 1

    def broken(self, rule: str, message: str) -> None:
        self.report.add(rule, self.cluster.clock.now(), message)

    async def install(self, objects: Sequence[Json]) -> None:
        await self.cluster.install(objects)

    def all(self, kind: kinds.Kind[Any]) -> list[Any]:
        """Every object of a kind, by key."""
        table = self.cluster.store.table(kind.group, kind.plural)
        return [entry.decode(kind.type) for _, entry in sorted(table.entries.items())]

    def second(self) -> OperatorProcess:
        """The process that stands by; RuntimeError in worlds of one process."""
        if self.standby is None:
            raise RuntimeError("this world has no second process")
        return self.standby

    def sender(self, request: Request) -> OperatorProcess:
        """The process that a request comes from."""
        return next((p for p in (self.process, self.standby) if p and p.identity == request.client), self.process)

    def leader(self) -> OperatorProcess:
        holder = self.lease_holder()
        return self.standby if self.standby is not None and self.standby.identity == holder else self.process

    def lease_holder(self) -> str:
        held = [lease for lease in self.all(kinds.LEASE) if (lease.name, lease.namespace) == LEASE]
        return (held[0].spec.holder_identity or "") if held else ""

    def template_generation(self, pool: str) -> int:
        """Changes with the pool's spec and with its class."""
        found = [p for p in self.all(kinds.NODE_POOL) if p.name == pool] + self.all(kinds.SIM_NODE_CLASS)
        return sum(item.metadata.generation or 0 for item in found)

    def fired(self) -> dict[str, int]:
        total = Counter(self.marks)
        for source in (self.api_faults.fired, self.cluster.cloud.faults.fired):
            for name, count in source.items():
                if name in MARKS:
                    total[MARKS[name]] += count
        return dict(sorted(((name, n) for name, n in total.items() if n), key=lambda item: int(item[0][1:])))


def run_story(
    story: Story,
    *,
    settings: Settings | None = None,
    make_provider: MakeProvider | None = None,
    metrics: Metrics | None = None,
) -> Outcome:
    """Let a story happen on a fresh virtual-time loop and judge it."""
    chosen = settings or Settings()
    if story.gates:
        chosen = replace(chosen, feature_gates=parse_feature_gates(story.gates))
    with _local_time(story.zone):
        start = DEFAULT_START if story.start is None else story.start
        return run_virtual(_run(story, chosen, make_provider or _sim_provider, metrics), start=start)


@contextmanager
def _local_time(zone: str) -> Iterator[None]:
    """The process's own time zone, which must not matter (F41)."""
    before = os.environ.get("TZ")
    if not zone:
        yield
        return
    os.environ["TZ"] = zone
    time.tzset()
    try:
        yield
    finally:
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()


def _sim_provider(api: KubeApi, clock: Clock, cloud: SimCloud) -> CloudProvider:
    return SimProvider(api, clock, cloud)


async def _run(story: Story, settings: Settings, make_provider: MakeProvider, metrics: Metrics | None) -> Outcome:
    clock = running_clock()
    options = ClusterOptions(
        seed=story.seed,
        kubelet=KubeletOptions(nodes=Selection(), lease_interval_s=None),
        scheduler_events=False,
    )
    async with EmbeddedCluster(clock, options) as cluster:
        journal = Journal(cluster.store)
        report = Report()
        world = _world(cluster, journal, report, settings, make_provider, metrics)
        keeper = asyncio.create_task(world.process.run_for_ever(), name="keeper")
        try:
            await _tell(world, story)
            await _settle(world, report)
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            await world.process.stop()
            await world.second().stop()
        return Outcome(
            seed=story.seed,
            violations=tuple(report.violations),
            fired=world.fired(),
            digest=journal.digest(),
            writes=journal.count,
            launches=cluster.cloud.ledger.launched,
            failures=tuple(
                f"{type(error).__name__}: {error}"
                for process in (world.process, world.second())
                for error in process.failures
            ),
        )


def _world(
    cluster: EmbeddedCluster,
    journal: Journal,
    report: Report,
    settings: Settings,
    make_provider: MakeProvider,
    metrics: Metrics | None,
) -> World:
    """The program in a cluster, watched by every checker, its requests open to faults."""
    checkers = SafetyCheckers(cluster, journal, report)
    checkers.require_lease(*LEASE)

    def decision_of(claim: str) -> Decision | None:
        return world.leader().decision_of(claim)

    decided = [
        DecisionCheckers(cluster, journal, report, decision_of),
        MoveChecker(cluster, journal, report, settings.eviction_price, decision_of),
        PlacementChecker(cluster, journal, report, decision_of),
    ]
    fresh = FreshnessChecker(cluster, report)
    faults = ApiFaults()
    faults.written_at = journal.written_at
    process_clock = LoopClock(cluster.clock.now(), asyncio.get_running_loop())

    def make_client(name: str, middleware: Sequence[Middleware]) -> KubeApi:
        api = FaultyApi(cluster.store, client=name, middleware=middleware)
        api.faults = faults
        return api

    def make_process(name: str) -> OperatorProcess:
        return OperatorProcess(
            cluster,
            settings,
            clock=process_clock,
            middleware=[faults, checkers, fresh, *decided],
            make_provider=lambda api, now: make_provider(api, now, cluster.cloud),
            make_client=make_client,
            name=name,
            metrics=metrics,
        )

    world = World(
        cluster,
        cluster.client("user"),
        make_process("operator"),
        faults,
        process_clock,
        make_process("standby"),
        report,
    )
    return world


async def _tell(world: World, story: Story) -> None:
    """Carry out the steps at their times; steps that last run beside the others."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    async with asyncio.TaskGroup() as group:
        for number, step in enumerate(story.steps):
            await asyncio.sleep(max(0.0, start + step.at - loop.time()))
            group.create_task(carry_out(world, step.action, step.args), name=f"step-{number}:{step.action}")
    await asyncio.sleep(max(0.0, start + story.busy_s - loop.time()))


async def _settle(world: World, report: Report) -> None:
    world.api_faults.calm()
    world.cluster.cloud.faults.calm()
    world.cluster.cloud.market.restock()
    world.cluster.cloud.market.bad_data = None
    world.cluster.workloads.attacher.is_stuck = False
    world.process_clock.skew_s = 0.0
    loop = asyncio.get_running_loop()
    if isinstance(loop, VirtualTimeLoop):
        loop.thaw_all()
    await asyncio.sleep(SETTLE_S)
    # Who still waits must have been told why and how long; so long is waited, and no longer.
    until = named_waits(world.cluster, report)
    settled_at = loop.time()
    for _ in range(int(PATIENCE_S / _LOOK_S)):
        if loop.time() >= until or not waiting(world.cluster):
            break
        await asyncio.sleep(_LOOK_S)
    if loop.time() > settled_at:
        # The load became steady only now: what came for the last pods may still be consolidated once.
        await asyncio.sleep(STEADY_S)
    ledger = world.cluster.cloud.ledger
    launched, terminated = ledger.launched, ledger.terminated
    await asyncio.sleep(STEADY_S)
    check_liveness(world.cluster, report, launched=launched, terminated=terminated)
