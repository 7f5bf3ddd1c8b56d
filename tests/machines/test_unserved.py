"""F33: while a kind that we live by is not served, nothing is bought and nothing is removed."""

from __future__ import annotations

import asyncio

from pykarpenter.api import kinds
from pykarpenter.runtime.feature_gates import FeatureGates
from pykarpenter.runtime.settings import Settings
from tests.machines.cloud import cloud_world
from tests.machines.test_interruption import LEGACY, break_node, fleet
from tests.machines.test_static import ON, claims, scale, static_pool
from tests.machines.world import World, story


def serve(world: World, served: bool) -> None:
    """As the watch of NodePools finds it when their definition is taken away, or is back."""
    assert world.context is not None
    world.context.caches.of(kinds.NODE_POOL).served = served


def test_f33_a_static_pool_neither_grows_nor_shrinks_while_pools_cannot_be_read() -> None:
    """What the pool wants is not known, only what it wanted."""

    async def tell(world: World) -> None:
        await static_pool(world, 2)
        await asyncio.sleep(20)
        serve(world, False)
        await scale(world, 4)
        await asyncio.sleep(90)
        assert len(await claims(world)) == 2
        await scale(world, 1)
        await asyncio.sleep(90)
        assert len(await claims(world)) == 2
        serve(world, True)
        await asyncio.sleep(60)
        assert len(await claims(world)) == 1

    story(tell, settings=ON)


def test_f33_nothing_expires_and_nothing_is_collected() -> None:
    """Absence of knowledge removes no machine."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        await world.begin()
        await world.claim(expireAfter="10m")
        await world.ready()
        serve(world, False)
        lost = cloud.orphan()
        await asyncio.sleep(900)
        assert await world.get_claim() is not None
        assert lost in cloud.instances
        serve(world, True)
        await world.gone(within_s=120)
        await asyncio.sleep(120)
        assert cloud.instances == {}

    story(tell)


def test_f33_a_claim_waits_with_its_launch_and_is_not_blamed_for_it() -> None:
    """No machine is bought, and the five minutes for a launch are not held against the claim."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        await world.begin()
        await asyncio.sleep(1)
        serve(world, False)
        await world.claim()
        await asyncio.sleep(600)
        assert cloud.launched == []
        assert await world.get_claim() is not None
        serve(world, True)
        await world.ready()

    story(tell, settings=Settings(feature_gates=FeatureGates()))


def test_f33_legacy_repair_waits() -> None:
    """A fifth of what, if pools are unknown."""

    async def tell(world: World) -> None:
        await fleet(world, 5)
        serve(world, False)
        await break_node(world, "node-c0")
        await asyncio.sleep(120)
        assert await world.get_claim("c0") is not None
        serve(world, True)
        await world.gone("c0")

    story(tell, settings=LEGACY)
