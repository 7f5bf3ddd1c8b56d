"""What is noted on a claim while its machine works: drift, quiet, size, age."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.timestamps import parse_timestamp
from tests.machines.cloud import cloud_world
from tests.machines.world import CLASS_LABEL, CLASS_REF, World, story

HASH = {labels.NODEPOOL_HASH: "1", labels.NODEPOOL_HASH_VERSION: "v3"}


async def pool(world: World, **spec: Any) -> None:
    annotations = spec.pop("annotations", {})
    body = {
        "metadata": {"name": "pool", "annotations": annotations},
        "spec": {
            "template": {"spec": {"nodeClassRef": CLASS_REF, "requirements": spec.pop("requirements", [])}},
            **spec,
        },
    }
    await world.api.create(kinds.NODE_POOL, body)


@pytest.mark.promise("API-3.5.1")
@pytest.mark.promise("DIS-14.1")
def test_a_claim_expires_at_its_age() -> None:
    """Old machines go whatever runs on them; budgets are for choices."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.claim(expireAfter="30m")
        await world.claim("c2", expireAfter="Never")
        await asyncio.sleep(1795)
        assert await world.get_claim() is not None
        await world.gone(within_s=30)
        assert world.recorded.counted("karpenter_nodeclaims_disrupted_total", reason="expired") == 1
        await asyncio.sleep(2 * 86400)
        assert await world.get_claim("c2") is not None

    story(tell)


@pytest.mark.promise("API-3.5.5")
@pytest.mark.promise("DIS-4.1", "DIS-17.2")
def test_pods_that_come_and_go_are_noted_and_restarts_are_not() -> None:
    """consolidateAfter counts from real events; a restart of ours is none."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.claim()
        await world.ready()
        node = (await world.node()).name

        async def noted() -> float | None:
            claim = await world.get_claim()
            assert claim is not None
            text = claim.status.last_pod_event_time
            return parse_timestamp(text) if text else None

        assert await noted() is None
        await asyncio.sleep(100)
        await world.pod("web", node)
        await asyncio.sleep(2)
        first = await noted()
        assert first is not None
        assert world.clock.now() - first <= 3
        await world.pod("web-2", node)
        await asyncio.sleep(2)
        assert await noted() == first, "at most every 10 s"
        await asyncio.sleep(60)
        await world.crash()
        await world.operator()
        await asyncio.sleep(30)
        assert await noted() == first, "pods found at start are not news"
        await world.api.delete(kinds.POD, "web", "default")
        await asyncio.sleep(2)
        assert (await noted() or 0) > first

    story(tell)


@pytest.mark.promise("API-3.5.7")
@pytest.mark.promise("DIS-4.2")
def test_a_quiet_machine_becomes_consolidatable() -> None:
    """The wait starts anew with each pod event."""

    async def tell(world: World) -> None:
        await world.begin()
        await pool(world, disruption={"consolidateAfter": "10m"})
        await world.claim()
        await world.ready()
        await asyncio.sleep(500)
        assert await world.status_of("Consolidatable") == "Unknown"
        await asyncio.sleep(120)
        assert await world.status_of("Consolidatable") == "True"
        await world.pod("web", (await world.node()).name)
        await asyncio.sleep(5)
        assert await world.status_of("Consolidatable") == "Unknown"
        await asyncio.sleep(610)
        assert await world.status_of("Consolidatable") == "True"
        await world.api.patch(kinds.NODE_POOL, "pool", {"spec": {"disruption": {"consolidateAfter": "Never"}}})
        await asyncio.sleep(5)
        assert await world.status_of("Consolidatable") == "Unknown"

    story(tell)


@pytest.mark.promise("API-3.5.8")
@pytest.mark.promise("DIS-13.1")
def test_drift_follows_hash_requirements_catalogue_and_provider_in_that_order() -> None:
    """The first reason found is the one shown, and a cured claim loses it."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        await world.begin()
        await pool(world, annotations=HASH)
        await world.claim(annotations=HASH)
        await world.ready()
        await asyncio.sleep(5)
        assert await world.reason_of("Drifted") == ""
        cloud.drift = "ImageDrift"
        await asyncio.sleep(301)
        assert await world.reason_of("Drifted") == "ImageDrift"
        arm = [{"key": labels.ARCH, "operator": "In", "values": ["arm64"]}]
        await world.api.patch(kinds.NODE_POOL, "pool", {"spec": {"template": {"spec": {"requirements": arm}}}})
        await asyncio.sleep(2)
        assert await world.reason_of("Drifted") == "RequirementsDrifted"
        await world.api.patch(kinds.NODE_POOL, "pool", {"metadata": {"annotations": {labels.NODEPOOL_HASH: "2"}}})
        await asyncio.sleep(2)
        assert await world.reason_of("Drifted") == "NodePoolDrifted"
        await world.api.patch(
            kinds.NODE_POOL,
            "pool",
            {
                "metadata": {"annotations": {labels.NODEPOOL_HASH_VERSION: "v4"}},
                "spec": {"template": {"spec": {"requirements": []}}},
            },
        )
        cloud.drift = ""
        await asyncio.sleep(301)
        assert await world.reason_of("Drifted") == ""

    story(tell)


@pytest.mark.promise("API-3.5.8")
@pytest.mark.promise("DIS-13.2")
def test_f45_an_empty_catalogue_is_no_drift_and_a_missing_type_is() -> None:
    """A provider that cannot list its types must not roll the whole fleet."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        await world.begin()
        await pool(world)
        await world.claim()
        await world.ready()
        types = cloud.catalog.types

        async def none(_: Any) -> list[Any]:
            return []

        cloud.instance_types = none  # type: ignore[method-assign]
        await asyncio.sleep(4000)
        assert await world.reason_of("Drifted") == ""

        async def others(_: Any) -> list[Any]:
            return [item for item in types if not item.name.startswith("c-")]

        cloud.instance_types = others  # type: ignore[method-assign]
        await asyncio.sleep(2400)
        assert await world.reason_of("Drifted") == "InstanceTypeNotFound"

    story(tell)


@pytest.mark.promise("API-3.5.4")
def test_a_machine_that_came_too_small_is_pointed_out() -> None:
    """Pods were planned by what the machine was said to have."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.claim()
        await world.ready()
        await asyncio.sleep(5)
        assert await world.status_of("ConsistentStateFound") == "True"
        small = {"status": {"capacity": {"cpu": "3"}}}
        await world.api.patch(kinds.NODE, (await world.node()).name, small, subresource="status")
        await asyncio.sleep(650)
        assert await world.reason_of("ConsistentStateFound") == "ConsistencyCheckFailed"
        assert "FailedConsistencyCheck" in world.recorded.reasons("NodeClaim")

    story(tell)


@pytest.mark.promise("API-3.5.6")
def test_objects_without_the_class_label_get_it() -> None:
    """The label marks what is ours; objects of older versions lack it."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.claim()
        await world.ready()
        await world.crash()
        node = (await world.node()).name
        bare = {"metadata": {"labels": {CLASS_LABEL: None}}}
        await world.api.patch(kinds.NODE_CLAIM, "c1", bare)
        await world.api.patch(kinds.NODE, node, bare)
        await world.operator()
        await asyncio.sleep(5)
        claim = await world.get_claim()
        assert claim is not None
        assert claim.metadata.labels[CLASS_LABEL] == "default"
        assert (await world.node()).metadata.labels[CLASS_LABEL] == "default"

    story(tell)


@pytest.mark.promise("API-3.5.8")
def test_a_changed_class_is_looked_at_at_once() -> None:
    """A new image in the class shows as drift now, not with the next regular look minutes later."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        await world.begin()
        await pool(world, annotations=HASH)
        await world.claim(annotations=HASH)
        await world.ready()
        await asyncio.sleep(5)
        cloud.drift = "ImageDrift"
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "1s"}})
        await asyncio.sleep(2)
        assert await world.reason_of("Drifted") == "ImageDrift"

    story(tell)
