"""Two operators on one cluster: one acts, the other is ready; a lost lease ends all writes (S9, F19, F34)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykarpenter.api import kinds
from pykarpenter.cloud.catalog import read_catalog
from pykarpenter.controllers.operator import LeaseLost, Operator
from pykarpenter.kube.errors import ServerFault
from pykarpenter.providers.kwok.provider import KwokProvider
from pykarpenter.sim.api import Middleware, Request, StoreApi

from .world import World, story

_WRITES = ("create", "patch", "delete", "evict")


class Line(Middleware):
    """One operator's line to the API server: notes its writes, and can lose those to the Lease."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.blocks_lease = False
        self.writes: list[tuple[float, str, str]] = []

    async def before(self, request: Request) -> None:
        if request.kind is kinds.LEASE:
            if self.blocks_lease:
                raise ServerFault("no route to host")
        elif request.verb in _WRITES and request.kind is not kinds.EVENT:
            self.writes.append((self._world.clock.monotonic(), request.verb, request.kind.kind))


def start(world: World, name: str, line: Line) -> tuple[Operator, asyncio.Task[None]]:
    api = StoreApi(world.store, client=name, middleware=(line,))
    operator = Operator(
        api, KwokProvider(api, world.clock, read_catalog("kwok")), world.clock, world.settings, identity=name
    )
    return operator, asyncio.create_task(operator.run(), name=name)


def test_f19_lease_lost_to_another_ends_every_write_before_the_other_begins() -> None:
    async def main(world: World) -> None:
        await world.begin(operator=False)
        await world.pool()
        lines = [Line(world), Line(world)]
        first, first_task = start(world, "first", lines[0])
        await asyncio.sleep(1.0)
        second, second_task = start(world, "second", lines[1])
        await world.deployment("web", 2)
        await world.until_running("web", 2)
        assert first.is_leading and not second.is_leading and second.is_ready
        assert lines[1].writes == [], "a standby writes nothing"

        lines[0].blocks_lease = True
        await world.deployment("more", 4, cpu="3")

        async def taken_over() -> bool:
            return second.is_leading

        await world.until(taken_over, timeout_s=30.0)
        began = world.clock.monotonic()
        await world.until_running("more", 4)
        assert all(at < began for at, _, _ in lines[0].writes)
        with pytest.raises(LeaseLost):
            await first_task
        claims, nodes = await world.claims(), await world.nodes()
        assert len(claims) == len(nodes)
        assert {pod.spec.node_name for pod in await world.pods()} == {node.name for node in nodes}
        second_task.cancel()
        await asyncio.gather(second_task, return_exceptions=True)

    story(main)


def test_orderly_stop_hands_the_lease_over_at_once() -> None:
    async def main(world: World) -> None:
        await world.begin(operator=False)
        await world.pool()
        _, first_task = start(world, "first", Line(world))
        await asyncio.sleep(1.0)
        second, second_task = start(world, "second", Line(world))
        await asyncio.sleep(10.0)
        stopped = world.clock.monotonic()
        first_task.cancel()
        results: list[Any] = await asyncio.gather(first_task, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)

        async def taken_over() -> bool:
            return second.is_leading

        await world.until(taken_over, timeout_s=30.0)
        assert world.clock.monotonic() - stopped < 6.0
        second_task.cancel()
        await asyncio.gather(second_task, return_exceptions=True)

    story(main)


def test_f34_two_versions_during_a_roll_out_buy_for_a_pod_once() -> None:
    """F34: during a roll-out two versions run; only the leader plans."""

    async def main(world: World) -> None:
        await world.begin(operator=False)
        await world.pool()
        tasks = [start(world, name, Line(world))[1] for name in ("a", "b", "c")]
        await world.deployment("web", 3)
        await world.until_running("web", 3)
        assert len(await world.claims()) == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    story(main)
