"""Static pools follow their replicas."""

from __future__ import annotations

import asyncio

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.kube.contract import list_all
from pykarpenter.runtime.feature_gates import FeatureGates
from pykarpenter.runtime.settings import Settings
from tests.machines.world import CLASS_REF, World, story

ON = Settings(feature_gates=FeatureGates(static_capacity=True))


async def static_pool(world: World, replicas: int, limit: str | None = None) -> None:
    await world.begin()
    types = [{"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["c-4x-amd64-linux"]}]
    spec = {
        "replicas": replicas,
        "template": {"spec": {"nodeClassRef": CLASS_REF, "requirements": types, "expireAfter": "Never"}},
        **({"limits": {"nodes": limit}} if limit else {}),
    }
    await world.api.create(kinds.NODE_POOL, {"metadata": {"name": "pool"}, "spec": spec})
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await world.api.patch(kinds.NODE_POOL, "pool", ready, subresource="status")


async def claims(world: World) -> list[NodeClaim]:
    return await list_all(world.api, kinds.NODE_CLAIM)


async def scale(world: World, replicas: int) -> None:
    await world.api.patch(kinds.NODE_POOL, "pool", {"spec": {"replicas": replicas}})


@pytest.mark.promise("API-4.20", "API-4.21")
def test_a_static_pool_follows_its_replicas_up_and_down() -> None:
    """A number of machines, whatever runs on them."""

    async def tell(world: World) -> None:
        await static_pool(world, 3)
        await asyncio.sleep(20)
        assert len(await world.nodes()) == 3
        await scale(world, 5)
        await asyncio.sleep(20)
        names = [node.name for node in await world.nodes()]
        assert len(names) == 5
        await world.pod("web", names[0])
        await asyncio.sleep(5)
        await scale(world, 1)
        await asyncio.sleep(60)
        assert [node.name for node in await world.nodes()] == [names[0]]
        assert len(await claims(world)) == 1
        assert world.recorded.counted("karpenter_nodeclaims_disrupted_total", reason="overprovisioned") == 4

    story(tell, settings=ON)


@pytest.mark.promise("API-4.20")
def test_a_static_pool_replaces_a_machine_that_was_deleted() -> None:
    """`kubectl delete node` does not make the pool smaller."""

    async def tell(world: World) -> None:
        await static_pool(world, 2)
        await asyncio.sleep(20)
        before = [node.name for node in await world.nodes()]
        await world.api.delete(kinds.NODE, before[0])
        await asyncio.sleep(60)
        after = [node.name for node in await world.nodes()]
        assert len(after) == 2
        assert before[0] not in after

    story(tell, settings=ON)


@pytest.mark.promise("API-4.20")
def test_the_node_limit_of_a_static_pool_is_never_passed() -> None:
    """Machines that are leaving still exist."""

    async def tell(world: World) -> None:
        await static_pool(world, 5, limit="3")
        highest = 0
        for _ in range(60):
            await asyncio.sleep(1)
            highest = max(highest, len(await claims(world)))
        assert highest == 3
        node = (await world.nodes())[0]
        await world.pod("busy", node.name, metadata={"annotations": {labels.DO_NOT_DISRUPT: "true"}})
        await asyncio.sleep(3)
        await world.api.delete(kinds.NODE, node.name)
        await asyncio.sleep(120)
        assert len(await claims(world)) == 3

    story(tell, settings=ON)


@pytest.mark.promise("API-4.20")
def test_a_restart_creates_nothing_twice() -> None:
    """The machines are counted before any is made."""

    async def tell(world: World) -> None:
        await static_pool(world, 3)
        await asyncio.sleep(5)
        for _ in range(5):
            await world.crash()
            await world.operator()
            await asyncio.sleep(3)
        await asyncio.sleep(60)
        assert len(await claims(world)) == 3

    story(tell, settings=ON)


def test_static_pools_wait_for_their_gate_and_their_readiness() -> None:
    """Both say that the pool may launch."""

    async def tell(world: World) -> None:
        await static_pool(world, 3)
        await asyncio.sleep(120)
        assert await claims(world) == []

    story(tell)

    async def tell_unready(world: World) -> None:
        await static_pool(world, 3)
        await world.api.patch(kinds.NODE_POOL, "pool", {"status": {"conditions": []}}, subresource="status")
        await asyncio.sleep(120)
        assert await claims(world) == []

    story(tell_unready, settings=ON)
