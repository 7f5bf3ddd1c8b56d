"""A day in the life of a fleet: calm under steady load, and close to the bill that the search itself would reach."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.runtime.settings import Settings
from tests.controllers.world import World, story
from tests.support.perfect import bill, consolidated

LINUX = [
    {"key": labels.OS, "operator": "In", "values": ["linux"]},
    {"key": labels.ARCH, "operator": "In", "values": ["amd64"]},
    {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]},
]
HOURS = 24


async def begin(world: World) -> None:
    await world.begin()
    disruption = {"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}
    await world.pool(requirements=LINUX, disruption=disruption)


def test_l5_steady_load_ends_in_silence_within_half_an_hour() -> None:
    """Whatever the fleet looked like, disruption comes to an end."""

    async def main(world: World) -> None:
        await begin(world)
        for index, cpu in enumerate(("250m", "1", "1500m", "3")):
            await world.deployment(f"app-{index}", 6, cpu=cpu)
        for index in range(4):
            await world.until_running(f"app-{index}", 6, 300)
        await world.scale("app-3", 1)
        await world.scale("app-1", 2)
        await asyncio.sleep(1800)
        before = {node.name for node in await world.nodes()}
        await asyncio.sleep(3600)
        assert {node.name for node in await world.nodes()} == before

    story(main)


async def job(world: World, name: str) -> None:
    container = {"name": "main", "image": "work", "resources": {"requests": {"cpu": "1"}}}
    template = {
        "metadata": {"annotations": {f"{labels.OWN_GROUP}/completes-after": "90s"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    body = {"metadata": {"name": name}, "spec": {"parallelism": 3, "completions": 3, "template": template}}
    await world.api.create(kinds.JOB, body, "default")
    await asyncio.sleep(200)
    await world.api.delete(kinds.JOB, name, "default")


async def restart(world: World, app: str, hour: int) -> None:
    patch = {"spec": {"template": {"metadata": {"annotations": {"example.com/restarted": str(hour)}}}}}
    await world.api.patch(kinds.DEPLOYMENT, app, patch, "default")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_s13_a_day_with_jobs_and_restarts_stays_close_to_the_searchs_own_end() -> None:
    """At each full hour the bill is within 5 % of the same search run to its end on the same pods."""

    async def main(world: World) -> None:
        await begin(world)
        for index, cpu in enumerate(("500m", "1", "2")):
            await world.deployment(f"app-{index}", 5, cpu=cpu)
        for index in range(3):
            await world.until_running(f"app-{index}", 5, 300)
        hourly: list[float] = []
        async with asyncio.TaskGroup() as group:
            for hour in range(HOURS):
                for part in range(12):
                    group.create_task(job(world, f"job-{hour}-{part}"))
                    if part == 6:
                        await restart(world, f"app-{hour % 3}", hour)
                    await asyncio.sleep(300)
                hourly.append(ratio(world))
        assert len(hourly) == HOURS
        assert max(hourly) <= 1.05, [round(value, 3) for value in hourly]

    story(main, settings=Settings())


def ratio(world: World) -> float:
    assert world.operator is not None
    ctx = world.operator.context
    settings = ctx.settings.disruption(ctx.provider.traits)
    snapshot = ctx.state.snapshot(world.clock.now())
    # The yardstick asks for no pay-back and knows nothing but Karpenter's own search.
    compatible = dataclasses.replace(settings, eviction_price=0.0, min_saving=0.0, best_sets=False)
    ideal, _ = consolidated(snapshot, ctx.settings.packing(ctx.provider.traits), compatible)
    return bill(snapshot, settings) / bill(ideal, settings)
