"""Claims without machines and machines without claims: collected, but only when that is certain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.cloud.errors import CloudError
from tests.machines.cloud import Cloud, cloud_world, copy_of
from tests.machines.world import World, story

STAGE = {"metadata": {"labels": {"kwok.x-k8s.io/stage": "unhealthy"}}}


async def kubelet_dies(world: World, node: str) -> None:
    await world.api.patch(kinds.NODE, node, STAGE)
    dead = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    await world.api.patch(kinds.NODE, node, dead, subresource="status")


async def ready(world: World) -> Cloud:
    cloud = cloud_world(world)
    await world.begin()
    await world.claim()
    await world.ready()
    return cloud


@pytest.mark.promise("API-3.5.2")
def test_a_claim_whose_instance_is_gone_is_deleted() -> None:
    """Somebody terminated the machine in the console."""

    async def tell(world: World) -> None:
        cloud = await ready(world)
        claim, node = await world.get_claim(), await world.node()
        assert claim is not None
        cloud.lose(claim)
        await kubelet_dies(world, node.name)
        taken = await world.gone(within_s=180)
        assert taken >= 10
        assert world.recorded.counted("karpenter_nodeclaims_disrupted_total", reason="garbage_collected") == 1
        assert await world.nodes() == []

    story(tell)


@pytest.mark.promise("API-3.5.2")
def test_f6_a_listing_that_omits_a_live_machine_kills_nothing() -> None:
    """A dropped page is no proof; neither is a dead kubelet, as long as the cloud still knows the machine."""

    async def tell(world: World) -> None:
        cloud = await ready(world)
        cloud.hidden = set(cloud.instances)
        await kubelet_dies(world, (await world.node()).name)
        await asyncio.sleep(1800)
        assert await world.status_of("Ready") == "True"
        assert len(cloud.instances) == 1
        assert world.recorded.counted("pykarpenter_absence_unconfirmed_total") >= 1

    story(tell)


def test_f6_a_ready_kubelet_outweighs_a_cloud_that_denies_its_machine() -> None:
    """K#1100: a healthy node was reaped because its instance was missing from a list."""

    async def tell(world: World) -> None:
        cloud = await ready(world)
        claim = await world.get_claim()
        assert claim is not None
        cloud.lose(claim)
        await asyncio.sleep(1800)
        assert await world.status_of("Ready") == "True"

    story(tell)


def test_f6_a_failing_listing_changes_nothing() -> None:
    """Unknown is never absent."""

    async def tell(world: World) -> None:
        cloud = await ready(world)

        def fail(_: Any) -> None:
            raise CloudError("RequestLimitExceeded")

        cloud.faults["list"] = fail
        claim, node = await world.get_claim(), await world.node()
        assert claim is not None
        cloud.lose(claim)
        await kubelet_dies(world, node.name)
        await asyncio.sleep(1800)
        assert await world.get_claim() is not None
        del cloud.faults["list"]
        await world.gone(within_s=300)

    story(tell)


@pytest.mark.promise("API-3.5.3")
def test_an_instance_without_a_claim_is_deleted_after_two_sightings() -> None:
    """Orphans cost money; ten minutes are the limit."""

    async def tell(world: World) -> None:
        cloud = await ready(world)
        await asyncio.sleep(300)
        lost = cloud.orphan()
        started = world.clock.now()

        async def reaped() -> bool:
            return lost not in cloud.instances

        await world.until(reaped, within_s=200)
        assert world.clock.now() - started >= 10
        assert len(cloud.instances) == 1

    story(tell)


@pytest.mark.promise("API-3.5.3")
def test_a_young_instance_is_given_time_for_its_claim_to_show() -> None:
    """A launch whose note is still on its way must not be undone."""

    async def tell(world: World) -> None:
        cloud = await ready(world)
        lost = cloud.orphan(age_s=0.0)
        await asyncio.sleep(28)
        assert lost in cloud.instances
        await asyncio.sleep(30)
        assert lost not in cloud.instances

    story(tell)


@pytest.mark.promise("API-3.5.3")
def test_an_orphan_with_pods_is_drained_before_it_is_deleted() -> None:
    """Its claim was torn away by hand; its pods did nothing wrong."""

    async def tell(world: World) -> None:
        cloud = await ready(world)
        node = await world.node()
        await world.pod("busy", node.name, metadata={"annotations": {labels.DO_NOT_DISRUPT: "true"}})
        await world.crash()
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await world.api.patch(kinds.NODE_CLAIM, "c1", {"metadata": {"finalizers": None}})
        await world.operator()
        await asyncio.sleep(900)
        assert await world.pods() == ["busy"]
        assert len(cloud.instances) == 1
        await world.api.patch(
            kinds.POD, "busy", {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: None}}}, "default"
        )
        await asyncio.sleep(180)
        assert cloud.instances == {}
        assert await world.nodes() == []

    story(tell)


def test_f7_a_listing_that_still_shows_a_terminated_machine_does_no_harm() -> None:
    """The delete is answered NotFound, and that is that."""

    async def tell(world: World) -> None:
        cloud = await ready(world)
        ghost = next(iter(cloud.instances.values()))
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await world.gone()
        listed = cloud.list_instances

        async def stale() -> list[Any]:
            return [*await listed(), ghost]

        cloud.list_instances = stale  # type: ignore[method-assign]
        await asyncio.sleep(600)
        assert cloud.instances == {}
        await world.claim("c2")
        await world.ready("c2")
        assert cloud.launched == ["c1", "c2"]

    story(tell)


@pytest.mark.promise("API-3.5.3")
def test_f39_one_instance_that_cannot_be_deleted_holds_up_no_other() -> None:
    """L6: the first of many failing would leave all the rest to cost money."""

    async def tell(world: World) -> None:
        cloud = await ready(world)
        stuck, others = cloud.orphan("a-stuck"), [cloud.orphan(f"lost-{number}") for number in range(3)]

        def refuse(claim: NodeClaim) -> None:
            if claim.status.provider_id == stuck:
                raise CloudError("not authorized")

        cloud.faults["delete"] = refuse
        await asyncio.sleep(150)
        assert stuck in cloud.instances
        assert not set(others) & set(cloud.instances)

    story(tell)


@pytest.mark.promise("API-3.5.3")
def test_s12_an_instance_of_unknown_age_is_young_until_it_was_watched_for_long_enough() -> None:
    """A cloud that does not say when it launched a machine may have launched it just now."""

    async def tell(world: World) -> None:
        cloud = await ready(world)
        await asyncio.sleep(300)
        lost = cloud.orphan()
        ageless = copy_of(cloud.instances[lost].metadata, creation_timestamp=None)
        cloud.instances[lost] = copy_of(cloud.instances[lost], metadata=ageless)
        seen: list[float] = []
        cloud.faults["list"] = lambda _: seen.append(world.clock.now())

        async def reaped() -> bool:
            return lost not in cloud.instances

        await world.until(reaped, within_s=300)
        assert world.clock.now() - seen[0] >= 30

    story(tell)
