"""What the operator keeps in memory goes with what it was kept for."""

from __future__ import annotations

import asyncio

from pykarpenter.api import kinds
from pykarpenter.api import labels as keys
from pykarpenter.cloud.guarded import GuardedProvider
from pykarpenter.controllers.disruption.back_off import PoolBackOff
from pykarpenter.controllers.metrics.nodepools import NodePoolGauges
from pykarpenter.runtime.gauge_tables import GaugeTable

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


def test_f38_a_pool_that_comes_again_under_the_name_of_a_gone_one_does_not_inherit_its_back_off() -> None:
    """What is kept by name is kept for one pool: memory apart, the new one has failed nothing."""

    async def main(world: World) -> None:
        await world.begin()
        await world.pool("rolls")
        await asyncio.sleep(5.0)
        assert world.operator is not None
        kept = PoolBackOff(world.operator.context)
        await kept.failed(["rolls"])
        assert set(kept.until()) == {"rolls"}
        await world.api.delete(kinds.NODE_POOL, "rolls")
        await asyncio.sleep(5.0)
        assert kept.until() == {} and kept._known == {}
        await world.pool("rolls")
        await asyncio.sleep(5.0)
        assert kept.until() == {}

    story(main)


def test_f38_machines_whose_price_was_unknown_are_forgotten_with_them() -> None:
    """Each was counted once as an error; its name serves nobody when it is gone."""

    async def main(world: World) -> None:
        await world.begin()
        await world.pool()
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        (node,) = await world.nodes()
        await world.api.patch(kinds.NODE, node.name, {"metadata": {"labels": {keys.INSTANCE_TYPE: "nobody-knows"}}})
        await asyncio.sleep(5.0)
        assert world.operator is not None
        gauges = NodePoolGauges(world.operator.context, GaugeTable(world.clock))
        gauges._look_again()
        assert list(gauges._unpriced) == [node.name]
        await world.scale("web", 0)
        await world.api.delete(kinds.NODE, node.name)
        await asyncio.sleep(120.0)
        assert node.name not in [left.name for left in await world.nodes()]
        gauges._look_again()
        assert gauges._unpriced == {}

    story(main)
