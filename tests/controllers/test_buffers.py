"""Capacity buffers: room that stands ready, is used, and is made again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykarpenter.api import kinds
from pykarpenter.api.extras import CapacityBuffer
from pykarpenter.api.meta import find_condition
from pykarpenter.api.quantity import available
from pykarpenter.kube.errors import Forbidden
from pykarpenter.runtime.feature_gates import FeatureGates
from pykarpenter.runtime.settings import Settings
from pykarpenter.sim.api import Middleware, Request
from tests.controllers.world import World, story

ON = Settings(feature_gates=FeatureGates(capacity_buffer=True))
TYPES = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-4x-amd64-linux"]}]


async def template(world: World, cpu: str = "1") -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    body = {"metadata": {"name": "spare"}, "template": {"spec": {"containers": [container]}}}
    await world.api.create(kinds.POD_TEMPLATE, body, "default")


async def buffer(world: World, **spec: Any) -> None:
    body = {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "spare"},
        "spec": spec,
    }
    await world.api.create(kinds.CAPACITY_BUFFER, body, "default")


async def shown(world: World) -> CapacityBuffer:
    return await world.api.get(kinds.CAPACITY_BUFFER, "spare", "default")


async def reason(world: World, kind: str) -> str:
    found = find_condition((await shown(world)).status.conditions, kind)
    return found.reason if found is not None else ""


async def fits(world: World) -> bool:
    return await reason(world, "Provisioning") == "FitsExistingCapacity"


def test_l6_a_buffer_beyond_measure_takes_neither_memory_nor_time_from_others() -> None:
    """Its schema allows two thousand million pods, and whoever has a namespace can write one."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.pool(requirements=TYPES, limits={"nodes": "2"})
        await template(world)
        await buffer(world, podTemplateRef={"name": "spare"}, replicas=2**31 - 1)
        await world.deployment("web", 2)
        await world.until_running("web", 2)
        found = await shown(world)
        assert found.status.replicas == 10_000
        ready = find_condition(found.status.conditions, "ReadyForProvisioning")
        assert ready is not None and "10000 pods at most" in ready.message

    story(tell, settings=ON)


@pytest.mark.promise("API-1.6.11", "API-1.6.12")
def test_a_buffer_gets_its_capacity_is_used_and_refills() -> None:
    """Real pods find room at once, and the room comes back behind them."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.pool(requirements=TYPES, disruption={"consolidateAfter": "Never"})
        await template(world)
        await buffer(world, podTemplateRef={"name": "spare"}, replicas=3)
        await world.until(lambda: fits(world), 180, what="the buffer's capacity stands ready")
        assert len(await world.nodes()) == 1
        assert (await shown(world)).status.replicas == 3
        assert await world.pods() == []
        started = world.clock.now()
        await world.deployment("web", 3)
        await world.until_running("web", 3)
        assert world.clock.now() - started < 10, "no machine had to be waited for"

        async def refilled() -> bool:
            return len(await world.nodes()) == 2 and await fits(world)

        await world.until(refilled, 180, what="the buffer refills")

    story(tell, settings=ON)


@pytest.mark.promise("API-1.6.12")
def test_a_buffer_never_passes_the_pools_limits() -> None:
    """Spare room is worth less than a limit."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.pool(requirements=TYPES, limits={"cpu": "8"}, disruption={"consolidateAfter": "Never"})
        await template(world, cpu="3")
        await buffer(world, podTemplateRef={"name": "spare"}, replicas=10)
        highest = 0
        for _ in range(120):
            await asyncio.sleep(1)
            claims = await world.claims()
            highest = max(highest, sum(available(c.status.capacity).get("cpu", 0) for c in claims))
        assert highest == 8000
        assert await reason(world, "Provisioning") == "RequiresNewCapacity"

    story(tell, settings=ON)


@pytest.mark.promise("API-1.6.11")
def test_a_share_of_a_workload_follows_its_scale() -> None:
    """Ten percent of what runs now, at least one."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.pool(requirements=TYPES, disruption={"consolidateAfter": "Never"})
        await world.deployment("web", 4, cpu="100m")
        await buffer(world, scalableRef={"apiGroup": "apps", "kind": "Deployment", "name": "web"}, percentage=50)
        await asyncio.sleep(5)
        assert (await shown(world)).status.replicas == 2
        await asyncio.sleep(10)
        await world.scale("web", 9)
        await asyncio.sleep(3)
        assert (await shown(world)).status.replicas == 5

    story(tell, settings=ON)


@pytest.mark.promise("API-1.6.13")
def test_a_buffer_says_what_it_lacks() -> None:
    """A reference to nothing is no error of ours, and an unknown kind is one of the user's."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.pool(requirements=TYPES)
        await buffer(world, podTemplateRef={"name": "spare"}, replicas=1)
        await asyncio.sleep(3)
        assert await reason(world, "ReadyForProvisioning") == "PodTemplateNotFound"
        assert await reason(world, "Provisioning") == "NotReadyForProvisioning"
        await template(world)
        await asyncio.sleep(3)
        assert await reason(world, "ReadyForProvisioning") == "Resolved"
        await world.api.patch(kinds.CAPACITY_BUFFER, "spare", {"spec": {"replicas": 0}}, "default")
        await asyncio.sleep(3)
        assert await reason(world, "Provisioning") == "BufferEmpty"
        await world.api.delete(kinds.CAPACITY_BUFFER, "spare", "default")
        await buffer(world, scalableRef={"apiGroup": "batch", "kind": "Job", "name": "x"}, replicas=1)
        await asyncio.sleep(3)
        assert await reason(world, "ReadyForProvisioning") == "ResolutionFailed"

    story(tell, settings=ON)


@pytest.mark.promise("API-1.6.14")
def test_room_kept_for_a_removed_buffer_is_free_again() -> None:
    """Its machines must be able to count as empty."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.pool(requirements=TYPES, disruption={"consolidateAfter": "Never"})
        await template(world)
        await buffer(world, podTemplateRef={"name": "spare"}, replicas=2)
        await world.until(lambda: fits(world), 180, what="the buffer's capacity stands ready")
        assert world.operator is not None
        assert sum(view.buffer_pods for view in world.operator.state.views()) == 2
        await world.api.delete(kinds.CAPACITY_BUFFER, "spare", "default")
        await asyncio.sleep(5)
        assert sum(view.buffer_pods for view in world.operator.state.views()) == 0

    story(tell, settings=ON)


def test_buffers_mean_nothing_without_their_gate() -> None:
    """Alpha features are asked for."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.pool(requirements=TYPES)
        await template(world)
        await buffer(world, podTemplateRef={"name": "spare"}, replicas=2)
        await asyncio.sleep(60)
        assert await world.nodes() == []
        assert (await shown(world)).status.conditions == []

    story(tell)


@pytest.mark.promise("API-1.6.13")
def test_a_buffer_whose_template_may_not_be_read_says_so_and_keeps_its_room() -> None:
    """A refused question is a failure to show and to repeat, not a reason to give capacity back."""

    class Forbid(Middleware):
        on = False

        async def before(self, request: Request) -> None:
            if self.on and request.verb == "get" and request.kind is kinds.POD_TEMPLATE:
                raise Forbidden("podtemplates is forbidden")

    async def tell(world: World) -> None:
        forbid = Forbid()
        world.operator_api.middleware.append(forbid)
        await world.begin()
        await world.pool(requirements=TYPES)
        await template(world)
        await buffer(world, podTemplateRef={"name": "spare"}, replicas=1)
        await world.until(lambda: fits(world))
        forbid.on = True
        await asyncio.sleep(35)
        assert await reason(world, "ReadyForProvisioning") == "ResolutionFailed"
        assert len(await world.claims()) == 1
        forbid.on = False
        await asyncio.sleep(65)
        assert await reason(world, "ReadyForProvisioning") == "Resolved"

    story(tell, settings=ON)


@pytest.mark.promise("API-1.6.12")
def test_l4_a_restart_gives_no_kept_room_back() -> None:
    """What the process knew about virtual pods is gone; the machines that stand ready for them are not empty."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.pool(requirements=TYPES)
        await template(world)
        await buffer(world, podTemplateRef={"name": "spare"}, replicas=5)
        await world.until(lambda: fits(world))
        await asyncio.sleep(120)
        before = sorted(claim.name for claim in await world.claims())
        assert before
        await world.crash()
        world.start_operator()
        await asyncio.sleep(300)
        assert sorted(claim.name for claim in await world.claims()) == before
        assert await fits(world)

    story(tell, settings=ON)
