"""The machine that was bought for a pod stays free for it, though machines open one after the other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.pods import Pod
from pykarpenter.cloud.catalog import read_catalog
from pykarpenter.controllers.nodeclaim.opening import LONGEST_WAIT_S
from pykarpenter.kube.contract import KubeApi, list_all
from pykarpenter.kube.errors import Forbidden
from pykarpenter.providers.kwok.provider import KwokProvider
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.settings import Settings
from pykarpenter.sim.api import Middleware, Request

from .world import World, is_true, story

AGENT = {"key": "example.com/agent", "effect": "NoSchedule"}


class Uneven(KwokProvider):
    """Machines of the pool `late` take their time."""

    def __init__(self, api: KubeApi, clock: Clock, wait_s: float) -> None:
        super().__init__(api, clock, read_catalog("kwok"))
        self._wait_s = wait_s

    async def create(self, claim: NodeClaim) -> NodeClaim:
        if claim.pool_name == "late":
            await asyncio.sleep(self._wait_s)
        return await super().create(claim)


class Told(Middleware):
    """What the program wrote into the status of pods, by the pod's name; an error answers each try."""

    def __init__(self, error: Exception | None = None, takes_s: float = 0.0) -> None:
        self.names: list[tuple[str, str | None]] = []
        self._error = error
        self._takes_s = takes_s

    async def before(self, request: Request) -> None:
        if request.verb == "patch" and request.kind is kinds.POD and request.subresource == "status":
            self.names.append((request.name, request.body["status"]["nominatedNodeName"]))
            await asyncio.sleep(self._takes_s)
            if self._error is not None:
                raise self._error


async def two_machines(world: World, wait_s: float = 20.0, **early: Any) -> None:
    """A flexible pod that is planned onto a late machine, and one bound to the zone of the early machine."""
    world.make_provider = lambda api: Uneven(api, world.clock, wait_s)
    await world.begin()
    size = {"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["c-4x-amd64-linux"]}
    for name, zone, weight, template in (("late", "test-zone-b", 10, {}), ("early", "test-zone-a", 1, early)):
        only = {"key": labels.ZONE, "operator": "In", "values": [zone]}
        await world.pool(name, requirements=[size, only], weight=weight, template=template)
    await world.until(lambda: usable_pools(world))
    await world.deployment("anywhere", 1, cpu="3")
    await world.until(lambda: waiting(world, 1))
    await world.deployment("bound", 1, cpu="3", nodeSelector={labels.ZONE: "test-zone-a"})
    await world.until(lambda: waiting(world, 2))


async def waiting(world: World, count: int) -> bool:
    return sum(bool(pod.status.conditions) for pod in await world.pods()) == count


async def usable_pools(world: World) -> bool:
    pools = await list_all(world.api, kinds.NODE_POOL)
    return all(condition_status(pool.status.conditions, "Ready") == "True" for pool in pools)


async def only(world: World, app: str) -> Pod:
    (pod,) = await world.pods(app)
    return pod


async def nominated(world: World, app: str) -> str:
    return (await only(world, app)).status.nominated_node_name


async def bound_to(world: World, app: str) -> str:
    return (await only(world, app)).spec.node_name


async def ready(world: World, pool: str) -> list[NodeClaim]:
    return [claim for claim in await world.claims() if claim.pool_name == pool and is_true(claim, "Initialized")]


@pytest.mark.promise("SCH-18.5")
@pytest.mark.parametrize(("nominate", "machines"), [(True, 2), (False, 3)])
def test_flexible_pod_does_not_take_the_room_of_a_bound_one(nominate: bool, machines: int) -> None:
    """The first machine to open would go to whoever waits longest, and another would be bought for its owner."""
    told = Told()

    async def main(world: World) -> None:
        await two_machines(world)
        await world.until_running("bound", 1)
        await world.until_running("anywhere", 1)
        assert len(await world.claims()) == machines
        assert bool(told.names) is nominate

    story(main, settings=Settings(nominate_pods=nominate), faults=(told,))


@pytest.mark.parametrize(("behind_s", "opens_after_s"), [(1.0, 1.0), (60.0, LONGEST_WAIT_S)])
def test_machine_waits_for_another_that_is_a_moment_behind(behind_s: float, opens_after_s: float) -> None:
    """Opened together, each gets the pods it was bought for; and nobody waits long for a machine that is slow."""

    async def main(world: World) -> None:
        await two_machines(world, behind_s)
        await world.until(world.nodes)
        seen = world.clock.monotonic()
        await world.until(lambda: bound_to(world, "bound"))
        assert opens_after_s - 0.5 <= world.clock.monotonic() - seen < opens_after_s + 0.5

    story(main)


def test_nobody_is_told_when_only_one_machine_is_awaited() -> None:
    """Every write has to pay: with nobody to keep room from, there is nothing to say."""
    told = Told()

    async def main(world: World) -> None:
        await world.begin()
        await world.pool()
        await world.deployment("web", 5)
        await world.until_running("web", 5)
        assert told.names == []

    story(main, faults=(told,))


def test_pod_that_somebody_else_nominated_is_left_alone() -> None:
    """A name in the status means preemption, or another program's plan."""
    told = Told()

    async def main(world: World) -> None:
        await two_machines(world)
        await world.until(world.claims)
        pod = await only(world, "anywhere")
        await world.api.patch(
            kinds.POD, pod.name, {"status": {"nominatedNodeName": "elsewhere"}}, "default", subresource="status"
        )
        await world.until_running("anywhere", 1)
        assert pod.name not in [name for name, _ in told.names]

    story(main, faults=(told,))


def test_pod_of_another_scheduler_is_left_alone() -> None:
    """Only the default scheduler is known to take the name as a hint and to clear it."""
    told = Told()

    async def main(world: World) -> None:
        world.make_provider = lambda api: Uneven(api, world.clock, 20.0)
        await world.begin()
        await world.pool()
        await world.deployment("web", 2, cpu="200")
        await world.deployment("own", 2, cpu="200", schedulerName="own")
        for pod in await world.until(lambda: world.pods("own")):
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            body = {"status": {"conditions": [condition]}}
            await world.api.patch(kinds.POD, pod.name, body, "default", subresource="status")
        await world.until_running("web", 2)
        assert {name.split("-")[0] for name, _ in told.names} == {"web"}

    story(main, faults=(told,))


def test_pod_is_told_again_while_its_machine_is_closed_and_not_afterwards() -> None:
    """The scheduler clears the name with each try in vain; once the machine is open, that is its answer."""

    async def main(world: World) -> None:
        await two_machines(world, 3600.0, startupTaints=[AGENT])
        node = await world.until(lambda: nominated(world, "bound"))
        await world.stop_scheduler()
        pod = await only(world, "bound")
        cleared = {"status": {"nominatedNodeName": None}}
        await world.api.patch(kinds.POD, pod.name, cleared, "default", subresource="status")
        assert await world.until(lambda: nominated(world, "bound")) == node
        await world.api.patch(kinds.NODE, node, {"spec": {"taints": []}})
        await world.until(lambda: ready(world, "early"))
        await world.api.patch(kinds.POD, pod.name, cleared, "default", subresource="status")
        await asyncio.sleep(5.0)
        assert not await nominated(world, "bound")

    story(main)


def test_name_is_taken_back_when_the_machine_goes() -> None:
    """A pod with a name in its status gets no machine; it must not wait for one that is gone."""

    async def main(world: World) -> None:
        await two_machines(world, 3600.0, startupTaints=[AGENT])
        node = await world.until(lambda: nominated(world, "bound"))
        await world.stop_scheduler()
        await world.api.delete(kinds.NODE, node)

        async def another() -> bool:
            return bool(await nominated(world, "bound") not in ("", node))

        await world.until(another, what="the pod is told of another machine")

    story(main)


def test_name_is_taken_back_when_the_scheduler_does_not_use_it() -> None:
    """Whatever keeps the pod from the open machine, it is planned like any other pod after a while."""

    async def main(world: World) -> None:
        await two_machines(world, 3600.0, startupTaints=[AGENT])
        node = await world.until(lambda: nominated(world, "bound"))
        await world.stop_scheduler()
        await world.api.patch(kinds.NODE, node, {"spec": {"taints": []}})
        await world.until(lambda: ready(world, "early"))
        assert await nominated(world, "bound") == node

        async def free() -> bool:
            return not await nominated(world, "bound")

        await world.until(free, 30.0, what="the name is taken back")

    story(main)


@pytest.mark.parametrize(
    "told", [Told(Forbidden("no pods/status")), Told(takes_s=3600.0)], ids=["forbidden", "hanging"]
)
def test_machines_open_although_pods_cannot_be_told(told: Told) -> None:
    """A role from before, or a slow webhook on pods, costs a hint and never a machine."""

    async def main(world: World) -> None:
        await two_machines(world)
        await world.until_running("bound", 1)
        await world.until_running("anywhere", 1)
        assert told.names

    told.names.clear()
    story(main, faults=(told,))
