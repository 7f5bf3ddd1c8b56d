"""Announced interruptions, and repair as Karpenter 1.14 did it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.cloud.errors import CloudError
from pykarpenter.cloud.provider import Interruption
from pykarpenter.runtime.feature_gates import FeatureGates
from pykarpenter.runtime.settings import Settings
from tests.machines.cloud import Cloud, cloud_world
from tests.machines.world import World, story


async def fleet(world: World, size: int) -> Cloud:
    cloud = cloud_world(world)
    await world.begin()
    for number in range(size):
        await world.claim(f"c{number}")
    for number in range(size):
        await world.ready(f"c{number}")
    return cloud


async def warn(world: World, cloud: Cloud, name: str, reason: str = "SpotInterruption", id: str = "") -> None:
    claim = await world.get_claim(name)
    assert claim is not None
    cloud.warned.append(Interruption(claim.status.provider_id, reason, None, id or f"m-{name}"))


@pytest.mark.promise("API-6.2.1")
def test_f29_a_spot_storm_gives_up_all_warned_machines_at_once() -> None:
    """Two minutes are not enough to wait for each other."""

    async def tell(world: World) -> None:
        cloud = await fleet(world, 8)
        for number in range(4):
            await world.pod(f"p{number}", f"node-c{number}", metadata={"annotations": {labels.DO_NOT_DISRUPT: "true"}})
        await asyncio.sleep(2)
        for number in range(4):
            await warn(world, cloud, f"c{number}")
        await asyncio.sleep(4)
        claims = [await world.get_claim(f"c{number}") for number in range(8)]
        assert [claim is not None and claim.is_deleting for claim in claims] == [True] * 4 + [False] * 4
        assert world.context is not None
        marked = [view.name for view in world.context.state.views() if view.marked_for_deletion]
        assert marked == [f"node-c{number}" for number in range(4)]
        assert world.recorded.counted("karpenter_nodeclaims_disrupted_total", reason="spot_interrupted") == 4
        assert "SpotInterrupted" in world.recorded.reasons("Node")

    story(tell)


@pytest.mark.promise("API-6.2.1")
def test_f30_repeated_foreign_and_unknown_messages_do_no_harm() -> None:
    """Queues repeat, and other clusters use the same account (B33, B34)."""

    async def tell(world: World) -> None:
        cloud = await fleet(world, 2)
        await warn(world, cloud, "c0")
        await warn(world, cloud, "c0", id="again")
        cloud.warned.append(Interruption("fake://another-cluster", "SpotInterruption", None, "m-foreign"))
        await warn(world, cloud, "c1", "SomethingNew")
        await warn(world, cloud, "c1", "RebalanceRecommendation", "m-rebalance")
        await world.gone("c0")
        await asyncio.sleep(600)
        assert await world.status_of("Ready", "c1") == "True"
        assert world.recorded.counted("karpenter_nodeclaims_disrupted_total", reason="spot_interrupted") == 1
        assert "SpotRebalanceRecommendation" in world.recorded.reasons("NodeClaim")

    story(tell)


@pytest.mark.promise("API-6.2.1")
def test_f30_a_queue_that_disappears_is_asked_again() -> None:
    """Messages that waited are handled once the queue is back."""

    async def tell(world: World) -> None:
        cloud = await fleet(world, 1)

        def gone(_: Any) -> None:
            raise CloudError("queue does not exist")

        cloud.faults["interruptions"] = gone
        await warn(world, cloud, "c0")
        await asyncio.sleep(300)
        assert await world.status_of("Ready", "c0") == "True"
        del cloud.faults["interruptions"]
        await world.gone("c0", within_s=120)

    story(tell)


@pytest.mark.promise("API-6.2.2")
def test_a_failed_status_check_leaves_no_time_for_pods() -> None:
    """The machine is broken already; its pods are better off elsewhere."""

    async def tell(world: World) -> None:
        cloud = await fleet(world, 1)
        await world.pod("busy", "node-c0", metadata={"annotations": {labels.DO_NOT_DISRUPT: "true"}})
        await asyncio.sleep(2)
        await warn(world, cloud, "c0", "InstanceStatusFailure")
        assert await world.gone("c0") < 30

    story(tell)


UNHEALTHY = "karpenter_nodeclaims_unhealthy_disrupted_total"
LEGACY = Settings(feature_gates=FeatureGates(node_repair=True), legacy_node_repair=True)


async def break_node(world: World, name: str) -> None:
    node = await world.api.get(kinds.NODE, name)
    kept = [{"type": c.type, "status": c.status} for c in node.status.conditions if c.type != "KWOKUnhealthy"]
    from pykarpenter.api.timestamps import format_timestamp

    fault = {
        "type": "KWOKUnhealthy",
        "status": "True",
        "reason": "Test",
        "lastTransitionTime": format_timestamp(world.clock.now()),
    }
    await world.api.patch(kinds.NODE, name, {"status": {"conditions": [*kept, fault]}}, subresource="status")


@pytest.mark.promise("API-3.5.9")
@pytest.mark.promise("DIS-14.2")
def test_legacy_repair_replaces_by_force_after_the_toleration() -> None:
    """As 1.14: no budget, no grace, no replacement first."""

    async def tell(world: World) -> None:
        await fleet(world, 5)
        await world.pod("busy", "node-c0", metadata={"annotations": {labels.DO_NOT_DISRUPT: "true"}})
        await asyncio.sleep(2)
        await break_node(world, "node-c0")
        await asyncio.sleep(25)
        assert await world.get_claim("c0") is not None
        await world.gone("c0")
        assert world.recorded.counted("karpenter_nodeclaims_unhealthy_disrupted_total", condition="kwok_unhealthy") == 1
        (metric,) = [found for name, found in world.recorded.counts if name == UNHEALTHY]
        assert metric["termination_mode"] == "forceful"
        assert await world.status_of("Ready", "c1") == "True"

    story(tell, settings=LEGACY)


@pytest.mark.promise("API-3.5.9")
@pytest.mark.promise("DIS-14.2")
def test_f28_legacy_repair_stops_when_more_than_a_fifth_is_unhealthy() -> None:
    """A broken network must not cost the whole fleet."""

    async def tell(world: World) -> None:
        await fleet(world, 5)
        for number in range(2):
            await break_node(world, f"node-c{number}")
        await asyncio.sleep(1200)
        for number in range(5):
            assert await world.get_claim(f"c{number}") is not None
        assert "NodeRepairBlocked" in world.recorded.reasons("Node")

    story(tell, settings=LEGACY)


def test_legacy_repair_runs_only_when_asked_for() -> None:
    """The gate alone means the disruption method of 1.15."""

    async def tell(world: World) -> None:
        await fleet(world, 5)
        await break_node(world, "node-c0")
        await asyncio.sleep(600)
        assert await world.get_claim("c0") is not None

    story(tell, settings=Settings(feature_gates=FeatureGates(node_repair=True)))
