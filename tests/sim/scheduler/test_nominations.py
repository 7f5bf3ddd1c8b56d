"""Room on a node that is nominated for a pod: kept against equals, not against betters, until the pod is tried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pykarpenter.api import kinds
from pykarpenter.api.pods import Pod
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.api import StoreApi
from pykarpenter.sim.scheduler.scheduler import Scheduler
from pykarpenter.sim.store import Store
from pykarpenter.sim.views import Views
from tests.sim.scheduler.worlds import engine_with, node, pod

CLOSED = {"key": "example.com/closed", "effect": "NoSchedule"}


class Stage:
    """An API and a scheduler."""

    def __init__(self) -> None:
        clock = running_clock()
        self.api = StoreApi(Store(clock), client="test")
        views = Views(self.api, clock)
        scheduler = Scheduler(self.api, views, clock)
        self.tasks = [asyncio.create_task(part) for part in (views.run(), scheduler.run())]

    async def node(self, name: str, cpu: str = "4", **spec: Any) -> None:
        status = {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}}
        await self.api.create(kinds.NODE, {"metadata": {"name": name}, "spec": spec, "status": status})
        await self.api.patch(kinds.NODE, name, {"status": status}, subresource="status")

    async def pod(self, name: str, cpu: str = "3", nominated: str = "", **spec: Any) -> None:
        container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
        body = {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
        await self.api.create(kinds.POD, body, "default")
        if nominated:
            await self.nominate(name, nominated)

    async def nominate(self, name: str, node: str | None) -> None:
        body = {"status": {"nominatedNodeName": node}}
        await self.api.patch(kinds.POD, name, body, "default", subresource="status")

    async def open(self, node: str) -> None:
        await self.api.patch(kinds.NODE, node, {"spec": {"taints": []}})

    async def settled(self, name: str) -> Pod:
        await asyncio.sleep(1.0)
        return await self.api.get(kinds.POD, name, "default")


def play(main: Callable[[Stage], Awaitable[None]]) -> None:
    async def run() -> None:
        stage = Stage()
        try:
            await main(stage)
        finally:
            for task in stage.tasks:
                task.cancel()
            await asyncio.gather(*stage.tasks, return_exceptions=True)

    run_virtual(run())


def test_equal_pod_leaves_the_room_to_the_nominated_one() -> None:
    """Whoever came first: the node opens, and the pod that was named gets it."""

    async def main(stage: Stage) -> None:
        await stage.node("a", taints=[CLOSED])
        await stage.pod("first")
        await stage.pod("named", nominated="a")
        await stage.settled("named")
        await stage.open("a")
        assert (await stage.settled("named")).spec.node_name == "a"
        assert not (await stage.settled("first")).spec.node_name

    play(main)


def test_nominated_node_comes_before_a_better_one() -> None:
    """Scores do not matter while the named node will do."""
    engine = engine_with(node("small", cpu="4"), node("large", cpu="64"))
    waiting = pod("waiting", cpu="3")
    shape = engine.shape_of(waiting, lambda _: None)
    assert engine.place(waiting, shape) == "large"
    assert engine.place(waiting, shape, nominated="small") == "small"


def test_more_important_pod_takes_the_room() -> None:
    """Nominations count among equals and against lesser pods only."""

    async def main(stage: Stage) -> None:
        await stage.node("a", taints=[CLOSED])
        await stage.pod("named", nominated="a")
        await stage.api.create(kinds.PRIORITY_CLASS, {"metadata": {"name": "high"}, "value": 1000})
        await stage.pod("better", priorityClassName="high")
        await stage.settled("named")
        await stage.open("a")
        assert (await stage.settled("better")).spec.node_name == "a"
        named = await stage.settled("named")
        assert not named.spec.node_name and not named.is_deleting

    play(main)


def test_try_in_vain_clears_the_name() -> None:
    """So that the pod can be planned again."""

    async def main(stage: Stage) -> None:
        await stage.node("a")
        await stage.pod("large", cpu="100", nominated="a")
        await stage.node("b")
        assert not (await stage.settled("large")).status.nominated_node_name

    play(main)


def test_name_that_is_taken_back_frees_the_room() -> None:
    """Others need not wait for the pod to come."""

    async def main(stage: Stage) -> None:
        await stage.node("a", taints=[CLOSED])
        await stage.pod("named", nominated="a", nodeSelector={"never": "there"})
        await stage.pod("other", tolerations=[{"operator": "Exists"}])
        assert not (await stage.settled("other")).spec.node_name
        await stage.nominate("named", None)
        assert (await stage.settled("other")).spec.node_name == "a"

    play(main)
