"""Runs a scenario on virtual time with the real program in it, and sums up what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from pykarpenter.api import kinds, labels
from pykarpenter.kube.contract import Selection
from pykarpenter.kube.errors import AlreadyExists, ApiError
from pykarpenter.providers.kwok.kubelet import KubeletOptions
from pykarpenter.runtime.clock import LoopClock
from pykarpenter.runtime.settings import Settings
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.checkers import MoveChecker, Report, SafetyCheckers
from pykarpenter.sim.checkers.calm import Move
from pykarpenter.sim.cluster import ClusterOptions, EmbeddedCluster
from pykarpenter.sim.faults.actions import CLASS, carry_out
from pykarpenter.sim.faults.api import ApiFaults
from pykarpenter.sim.faults.stories import Step
from pykarpenter.sim.faults.world import World
from pykarpenter.sim.journal import Journal
from pykarpenter.sim.process import OperatorProcess
from pykarpenter.sim.simulate.measure import Meter, Sample, percentile
from pykarpenter.sim.simulate.scenario import Scenario

_SAMPLES = 288

Progress = Callable[[float], None]


class ScenarioRefused(Exception):
    """The embedded cluster refuses an object of the scenario; the text names it and the reason."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run came to; money in $, times in seconds."""

    scenario: str
    seed: int
    duration_s: float
    cost: float
    node_hours: float
    launches: int
    bought: dict[str, int]
    terminations: int
    interruptions: int
    evictions: int
    pods_scheduled: int
    pods_waiting: int
    pending_p50_s: float
    pending_p99_s: float
    peak_nodes: int
    peak_price_per_hour: float
    violations: tuple[str, ...]
    history: str


@dataclass(frozen=True, slots=True)
class Result:
    summary: Summary
    samples: tuple[Sample, ...]
    # Consolidations that moved pods, as the checkers saw them.
    moves: tuple[Move, ...] = ()
    # On the clock that moves are timed by.
    started_at: float = 0.0

    def as_json(self) -> dict[str, Any]:
        moves = [asdict(move) for move in self.moves]
        return {**asdict(self.summary), "moves": moves, "timeline": [asdict(sample) for sample in self.samples]}


# Faults that nothing comes of unless processes compete for the lease.
_NEED_ELECTION = frozenset({"pause", "roll_program", "block_lease", "block_loop"})


def simulate(
    scenario: Scenario, *, seed: int, settings: Settings | None = None, progress: Progress | None = None
) -> Result:
    """Run to the end on a fresh virtual-time loop; raises ScenarioRefused. `progress` gets shares between 0 and 1."""
    contested = any(step.action in _NEED_ELECTION for step in scenario.steps)
    chosen = replace(settings or Settings(), disable_leader_election=not contested)
    return run_virtual(_simulate(scenario, seed, chosen, progress or (lambda _: None)))


async def _simulate(scenario: Scenario, seed: int, settings: Settings, progress: Progress) -> Result:
    clock = running_clock()
    started_at = clock.now()
    options = ClusterOptions(
        seed=seed,
        catalog=scenario.catalog,
        price_period_s=scenario.price_period_s,
        kubelet=KubeletOptions(nodes=Selection(), lease_interval_s=None, status_interval_s=3600.0),
        scheduler_events=False,
    )
    async with EmbeddedCluster(clock, options) as cluster:
        journal = Journal(cluster.store)
        report = Report()
        faults = ApiFaults()
        checkers = SafetyCheckers(cluster, journal, report)
        moves = MoveChecker(
            cluster, journal, report, settings.eviction_price, lambda claim: world.leader().decision_of(claim)
        )
        process_clock = LoopClock(clock.now(), asyncio.get_running_loop())
        process, standby = (
            OperatorProcess(cluster, settings, clock=process_clock, middleware=[faults, checkers, moves], name=name)
            for name in ("operator", "standby")
        )
        faults.written_at = journal.written_at
        world = World(cluster, cluster.client("user"), process, faults, process_clock, standby, report)
        meter = Meter(cluster, journal)
        keeper = asyncio.create_task(process.run_for_ever(), name="keeper")
        try:
            await _install(world, scenario)
            async with asyncio.TaskGroup() as group:
                story = group.create_task(_tell(world, scenario), name="story")
                await _watch_clock(meter, scenario.duration_s, progress)
                story.cancel()
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            await process.stop()
            await standby.stop()
        summary = _summary(world, meter, journal, report, scenario, seed)
        return Result(summary, tuple(meter.found.samples), tuple(moves.moves), started_at)


async def _install(world: World, scenario: Scenario) -> None:
    """A cluster comes with some namespaces and priority classes; a snapshot holds them too."""
    for body in (CLASS, *scenario.objects):
        try:
            await world.install([body])
        except AlreadyExists as error:
            if body.get("kind") not in ("Namespace", "PriorityClass"):
                raise _refused(body, error) from error
        except (ApiError, ValueError) as error:
            raise _refused(body, error) from error


async def _create(world: World, body: dict[str, Any]) -> None:
    try:
        await world.install([body])
    except (ApiError, ValueError) as error:
        raise _refused(body, error) from error


def _refused(body: dict[str, Any], error: Exception) -> ScenarioRefused:
    return ScenarioRefused(f"{body.get('kind')} {body.get('metadata', {}).get('name', '')}: {error}")


async def _tell(world: World, scenario: Scenario) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    async with asyncio.TaskGroup() as group:
        for step in scenario.steps:
            await asyncio.sleep(max(0.0, start + step.at - loop.time()))
            group.create_task(_carry_out(world, step), name=f"step:{step.action}")


async def _carry_out(world: World, step: Step) -> None:
    args = step.args
    if step.action == "apply":
        await _create(world, args["body"])
    elif step.action == "scale_to":
        patch = {"spec": {"replicas": args["replicas"]}}
        await _user_write(world.user.patch(kinds.DEPLOYMENT, args["name"], patch, args["namespace"]), step)
    elif step.action == "restart":
        stamp = {"annotations": {f"{labels.OWN_GROUP}/restarted-at": str(round(step.at))}}
        patch = {"spec": {"template": {"metadata": stamp}}}
        await _user_write(world.user.patch(kinds.DEPLOYMENT, args["name"], patch, args["namespace"]), step)
    elif step.action == "delete":
        kind = next((k for k in kinds.ALL if k.kind == args["kind"]), None)
        if kind is None:
            raise ScenarioRefused(f"{_place(step)}: this kind is not served by the embedded cluster")
        namespace = args.get("namespace", "default") if kind.namespaced else ""
        await _user_write(world.user.delete(kind, args["name"], namespace), step)
    else:
        await carry_out(world, step.action, args)


async def _user_write(write: Any, step: Step) -> None:
    try:
        await write
    except ApiError as error:
        remedy = "; make it before this step, or correct the name" if error.code == 404 else ""
        raise ScenarioRefused(f"{_place(step)}: {error}{remedy}") from error


def _place(step: Step) -> str:
    """A step as the user wrote it: when, and on what."""
    what = "scale" if step.action == "scale_to" else step.action
    where = "/".join(str(step.args[key]) for key in ("kind", "namespace", "name") if step.args.get(key))
    return f"step at {step.at:g}s: {what} {where}"


async def _watch_clock(meter: Meter, duration_s: float, progress: Progress) -> None:
    for number in range(_SAMPLES):
        meter.sample()
        await asyncio.sleep(duration_s / _SAMPLES)
        progress((number + 1) / _SAMPLES)
    meter.sample()


def _summary(world: World, meter: Meter, journal: Journal, report: Report, scenario: Scenario, seed: int) -> Summary:
    cloud = world.cluster.cloud
    cost, hours = cloud.cost_so_far()
    found = meter.found
    waits = [*found.waits_s, *meter.still_waiting_s()]
    failures = [f"the program died: {error!r}" for error in world.process.failures]
    return Summary(
        scenario=scenario.name,
        seed=seed,
        duration_s=scenario.duration_s,
        cost=round(cost, 4),
        node_hours=round(hours, 3),
        launches=cloud.ledger.launched,
        bought=dict(cloud.ledger.by_type.most_common()),
        terminations=cloud.ledger.terminated,
        interruptions=cloud.ledger.interrupted,
        evictions=found.evictions,
        pods_scheduled=len(found.waits_s),
        pods_waiting=len(waits) - len(found.waits_s),
        pending_p50_s=round(percentile(waits, 0.5), 1),
        pending_p99_s=round(percentile(waits, 0.99), 1),
        peak_nodes=max((s.nodes for s in found.samples), default=0),
        peak_price_per_hour=round(max((s.price_per_hour for s in found.samples), default=0.0), 4),
        violations=(*(str(v) for v in report.violations), *failures),
        history=journal.digest(),
    )
