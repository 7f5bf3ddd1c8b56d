"""What the operator keeps in memory goes with what it was kept for."""

from __future__ import annotations

import asyncio

from pykarpenter.api import kinds
from pykarpenter.cloud.guarded import GuardedProvider

from .world import World, story


def test_the_types_of_a_deleted_pool_are_forgotten() -> None:
    """Pools that come and go for months must not fill the memory with their catalogues."""

    async def main(world: World) -> None:
        await world.begin()
        for name in ("stays", "goes"):
            await world.pool(name)
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        assert world.operator is not None
        provider = world.operator.context.provider
        assert isinstance(provider, GuardedProvider)
        stays = await world.api.get(kinds.NODE_POOL, "stays")
        goes = await world.api.get(kinds.NODE_POOL, "goes")
        assert set(provider._known) == {stays.uid, goes.uid}
        used = (await world.claims())[0].pool_name
        gone, left = (stays, goes) if used == "goes" else (goes, stays)
        await world.api.delete(kinds.NODE_POOL, gone.name)
        await asyncio.sleep(1.0)
        assert set(provider._known) == {left.uid}

    story(main)
