"""Calm at work: moves are remembered across restarts, misses cool a pool down, and silence is announced."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from pykarpenter.api import kinds
from pykarpenter.controllers.disruption import outcomes
from pykarpenter.controllers.disruption.displaced import KEY, MOST, Displaced
from pykarpenter.controllers.disruption.loop import DisruptionLoop
from pykarpenter.controllers.disruption.outcomes import Outcomes
from pykarpenter.controllers.permissions import MEMORY_NAME
from pykarpenter.core.disruption.calm import HORIZON_S
from pykarpenter.kube.errors import Forbidden, ServerFault
from pykarpenter.runtime import logs
from pykarpenter.runtime.settings import Settings
from pykarpenter.sim.api import Middleware, Request
from tests.controllers.disruption_steps import begin, half_full, nodes_left
from tests.controllers.world import World, story


class _Refuse(Middleware):
    """Writes of the memory fail with this error while it is set."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.tries = 0

    async def before(self, request: Request) -> None:
        if request.kind is kinds.CONFIG_MAP and request.verb in ("patch", "create") and self.error is not None:
            self.tries += 1
            raise self.error


async def written(world: World) -> dict[str, float]:
    found = await world.api.get(kinds.CONFIG_MAP, MEMORY_NAME, "kube-system")
    return json.loads(found.data[KEY])


def test_displaced_workloads_are_remembered_by_the_next_process() -> None:
    """A restart must not make a workload move again as if for the first time."""

    async def main(world: World) -> None:
        await begin(world)
        await half_full(world, 2)
        await nodes_left(world, 1, 900)
        moved = await written(world)
        (name,) = moved
        assert name.startswith("default/ReplicaSet/web")
        await world.crash()
        operator = world.start_operator()
        again = Displaced(operator.context)
        await again.read()
        assert dict(again.at()) == moved
        await world.crash()
        await asyncio.sleep(HORIZON_S)
        assert again.at() == {}

    story(main)


def test_f23_no_consolidation_begins_that_could_not_be_written_down() -> None:
    """The server is ill for a while: the command waits for the next pass."""
    refuse = _Refuse()

    async def main(world: World) -> None:
        await begin(world)
        refuse.error = ServerFault("ill")
        before = {n.name for n in await half_full(world, 2)}
        await asyncio.sleep(120)
        assert refuse.tries and {n.name for n in await world.nodes()} == before
        refuse.error = None
        await nodes_left(world, 1, 300)

    story(main, faults=(refuse,))


def test_without_the_right_to_remember_consolidation_goes_on() -> None:
    """Roles of an older installation: a short memory is better than a standstill."""
    refuse = _Refuse()

    async def main(world: World) -> None:
        refuse.error = Forbidden("no")
        await begin(world)
        await half_full(world, 2)
        await nodes_left(world, 1, 900)
        assert refuse.tries

    story(main, faults=(refuse,))


def test_the_memory_fits_into_its_object() -> None:
    """The longest ago are forgotten first."""

    async def main(world: World) -> None:
        await world.begin()
        memory = Displaced(world.operator.context)
        await memory.note([f"default/ReplicaSet/old-{i}" for i in range(10)])
        await asyncio.sleep(10)
        await memory.note([f"default/ReplicaSet/new-{i}" for i in range(MOST)])
        assert len(await written(world)) == MOST
        assert not any("old" in name for name in memory.at())

    story(main)


def test_a_pool_whose_pods_land_on_machines_nobody_planned_cools_down() -> None:
    """The saving that moved them does not exist."""

    async def main(world: World) -> None:
        await begin(world)
        await half_full(world, 3)
        loop = next(c for c in world.operator._controllers if isinstance(c, DisruptionLoop))
        watched = loop._outcomes
        await nodes_left(world, 1, 900)
        await world.until_running("web", 3)
        assert watched.cooling() == {}, "all landed where planned"
        # The same once more, but no machine counts as known.
        item = outcomes._Watched(
            command=type("C", (), {"id": "x", "targets": [type("T", (), {"pool": "default"})()]})(),
            replacements=(),
            known=frozenset(),
            started_at=world.clock.now(),
            expected=Counter({(await workload(world)): 1}),
        )
        watched._watched.append(item)
        await world.scale("web", 4)
        await world.until_running("web", 4)
        assert list(watched.cooling()) == ["default"]
        await asyncio.sleep(outcomes.COOL_S + 1)
        assert watched.cooling() == {}

    story(main)


async def workload(world: World) -> str:
    pod = (await world.pods("web"))[0]
    return f"default/ReplicaSet/{pod.metadata.owner_references[0].name}"


def test_what_never_lands_is_judged_after_a_while() -> None:
    """A workload that was scaled down meanwhile must not be watched for ever."""

    async def main(world: World) -> None:
        await begin(world)
        await half_full(world, 2)
        await nodes_left(world, 1, 900)
        watched: Outcomes = next(c for c in world.operator._controllers if isinstance(c, DisruptionLoop))._outcomes
        await asyncio.sleep(outcomes.WATCH_S + 60)
        watched.cooling()
        assert watched._watched == []

    story(main)


def test_a_quiet_fleet_says_how_far_it_is_from_the_optimum() -> None:
    """The line and the gauge: users ask why nothing happens."""
    lines: list[str] = []
    logs.configure("info", write=lines.append)

    async def main(world: World) -> None:
        await begin(world, budgets=[{"nodes": "10%"}])
        await half_full(world, 2)
        await nodes_left(world, 1, 900)
        await asyncio.sleep(3600)
        assert 0.0 <= world.metrics.gauges["pykarpenter_fleet_optimality_gap"] < 5.0
        told = [line for line in lines if "of the optimum, nothing worth moving" in line]
        assert told and "within " in told[-1]
        assert len(told) <= 3, "said when it changes, not again and again"

    try:
        story(main, settings=Settings(consolidation_search="best"))
    finally:
        logs.configure("error", write=lambda line: None)
