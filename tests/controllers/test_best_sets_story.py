"""The search over sets at work in a whole cluster: several replacements first, and back as one when one is lost."""

from __future__ import annotations

import asyncio

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import find_condition
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.runtime.settings import Settings
from tests.controllers.disruption_steps import begin, nodes_left, tainted
from tests.controllers.world import World, is_true, story

BEST = Settings(consolidation_search="best")
MANY = Settings(consolidation_search="best", consolidation_replacements="many")
LARGE_OR_SMALL = [
    {"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["c-16x-amd64-linux", "c-2x-amd64-linux"]},
    {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]},
]


async def oversized(world: World) -> NodeClaim:
    """One large machine with three pods that need a small machine each; the pods it was bought for are gone."""
    await begin(world, requirements=LARGE_OR_SMALL)
    await world.deployment("large", 1, cpu="10")
    await world.until_running("large", 1)
    await world.deployment("web", 3, cpu="1500m")
    await world.until_running("web", 3)
    (claim,) = await world.claims()
    return claim


async def replacements(world: World, old: NodeClaim) -> list[NodeClaim]:
    return [c for c in await world.claims() if c.name != old.name]


@pytest.mark.promise("DIS-11.2")
def test_s8_one_large_machine_goes_for_three_small_ones_once_all_are_ready() -> None:
    """M to N: all replacements first, then the machine, and no pod is lost."""

    async def main(world: World) -> None:
        old = await oversized(world)
        await world.scale("large", 0)

        async def going() -> bool:
            return all(c.name != old.name or c.is_deleting for c in await world.claims())

        await world.until(going, 300)
        new = await replacements(world, old)
        assert len(new) == 3 and all(is_true(c, "Initialized") for c in new)
        await nodes_left(world, 3)
        await world.until_running("web", 3)
        assert {n.metadata.labels[labels.INSTANCE_TYPE] for n in await world.nodes()} == {"c-2x-amd64-linux"}

    story(main, settings=MANY)


def test_by_default_no_command_has_two_replacements() -> None:
    """Compatibility mode: what needs more than one new machine stays."""

    async def main(world: World) -> None:
        old = await oversized(world)
        await world.scale("large", 0)
        await asyncio.sleep(900)
        assert [c.name for c in await world.claims()] == [old.name]

    story(main, settings=BEST)


@pytest.mark.promise("DIS-11.3")
def test_a_lost_replacement_of_several_rolls_the_whole_command_back() -> None:
    """The machine serves on; replacements that came stay as capacity."""

    async def main(world: World) -> None:
        old = await oversized(world)
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "60s"}})
        await world.scale("large", 0)

        async def launched() -> list[NodeClaim]:
            found = [c for c in await replacements(world, old) if is_true(c, "Launched")]
            return found if len(found) == 3 else []

        new = await world.until(launched, 300)
        assert all(tainted(n) for n in await world.nodes())
        await world.api.delete(kinds.NODE_CLAIM, new[1].name)

        async def back() -> bool:
            return not any(tainted(n) for n in await world.nodes())

        await world.until(back, 30)
        claim = await world.api.get(kinds.NODE_CLAIM, old.name)
        assert not claim.is_deleting
        assert find_condition(claim.status.conditions, "DisruptionReason") is None
        assert await world.running("web") == 3

    story(main, settings=MANY)
