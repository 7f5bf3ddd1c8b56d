"""L5 is judged once the load is steady, however long that took, and flapping is noticed then as ever."""

from __future__ import annotations

import asyncio

import pytest

from pykarpenter.api import kinds
from pykarpenter.sim.faults import world as worlds
from pykarpenter.sim.faults.stories import Step, Story

CALM = Story(
    14,
    (
        Step(1.0, "pool", {"name": "general", "limit": 0}),
        Step(3.0, "deploy", {"name": "web", "replicas": 2, "cpu": "1", "memory": "1Gi"}),
    ),
    busy_s=60.0,
)


def broken_after_a_wait(monkeypatch: pytest.MonkeyPatch, *, flapping: bool) -> set[str]:
    """What is broken in a world whose last pods waited out a back-off, so that the load is steady later than usual."""
    keep: list[asyncio.Task[None]] = []
    waited: list[float] = []

    async def flap(world: worlds.World) -> None:
        while True:
            await asyncio.sleep(500)
            for claim in world.all(kinds.NODE_CLAIM):
                await world.user.delete(kinds.NODE_CLAIM, claim.name)

    settle = worlds._settle

    async def settle_flapping(world, report):
        if flapping:
            keep.append(asyncio.create_task(flap(world)))
        await settle(world, report)
        for task in keep:
            task.cancel()
        await asyncio.gather(*keep, return_exceptions=True)

    def named_waits(cluster, report):
        waited.append(asyncio.get_running_loop().time() + 120)
        return waited[0]

    monkeypatch.setattr(worlds, "_settle", settle_flapping)
    monkeypatch.setattr(worlds, "named_waits", named_waits)
    monkeypatch.setattr(worlds, "waiting", lambda cluster: ["a pod"])
    outcome = worlds.run_story(CALM)
    assert waited
    return {v.invariant for v in outcome.violations}


def test_l5_flapping_is_noticed_although_pods_waited_out_a_back_off(monkeypatch: pytest.MonkeyPatch):
    """Seed 316: what came for the last pods may be consolidated once; whoever goes on after that is noticed."""
    assert broken_after_a_wait(monkeypatch, flapping=False) == set()
    assert "L5" in broken_after_a_wait(monkeypatch, flapping=True)
