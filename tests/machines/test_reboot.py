"""Reboots in place: committed on the claim, carried out once, and either back or given up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.cloud.errors import CloudError, NodeRebootNotImplemented
from pykarpenter.providers.kwok.kubelet_status import STAGE_LABEL, UNHEALTHY_STAGE
from tests.machines.cloud import Cloud, cloud_world
from tests.machines.test_crashes import Disturbance
from tests.machines.world import World, story


async def commit(world: World, grace: str | None = "0s", name: str = "c1") -> None:
    """What repair writes when it decides for a reboot."""
    if grace is not None:
        annotations = {labels.REBOOT_TERMINATION_GRACE_PERIOD: grace}
        await world.api.patch(kinds.NODE_CLAIM, name, {"metadata": {"annotations": annotations}})
    claim = await world.get_claim(name)
    assert claim is not None
    stamp = format_timestamp(world.clock.now())
    kept = [
        {
            "type": c.type,
            "status": c.status,
            "reason": c.reason,
            "message": c.message,
            "lastTransitionTime": c.last_transition_time,
            "observedGeneration": c.observed_generation,
        }
        for c in claim.status.conditions
        if c.type not in ("Rebooting", "DisruptionReason")
    ]
    added = [
        {
            "type": "Rebooting",
            "status": "True",
            "reason": "RebootRequested",
            "message": "rebooting for KWOKRebootRequired/Test",
            "lastTransitionTime": stamp,
        },
        {
            "type": "DisruptionReason",
            "status": "True",
            "reason": "Unhealthy",
            "message": "Unhealthy",
            "lastTransitionTime": stamp,
        },
    ]
    await world.api.patch(kinds.NODE_CLAIM, name, {"status": {"conditions": kept + added}}, subresource="status")


async def boots(world: World, boot_id: str) -> None:
    node = await world.node()
    body = {"status": {"nodeInfo": {"bootID": boot_id}}}
    await world.api.patch(kinds.NODE, node.name, body, subresource="status")


async def ready(world: World, cloud: bool = True) -> Cloud:
    made = cloud_world(world) if cloud else Cloud(world)
    await world.begin()
    await world.claim()
    await world.ready()
    await asyncio.sleep(30)
    return made


@pytest.mark.promise("API-3.7.1", "API-3.7.3")
def test_a_committed_reboot_on_kwok_ends_with_the_same_node_and_its_pods() -> None:
    """Grace period 0: nothing is drained, pods ride the reboot."""

    async def tell(world: World) -> None:
        await ready(world, cloud=False)
        node = await world.node()
        await world.pod("web", node.name)
        await asyncio.sleep(3)
        await commit(world, "0s")
        await asyncio.sleep(60)
        after = await world.node()
        assert after.uid == node.uid
        assert after.status.node_info.boot_id != node.status.node_info.boot_id
        assert after.spec.taints == []
        assert after.metadata.labels[labels.INITIALIZED] == "true"
        assert await world.pods() == ["web"]
        assert await world.reason_of("Rebooting") == "RebootSucceeded"
        assert await world.status_of("Ready") == "True"
        assert await world.reason_of("DisruptionReason") == ""
        claim = await world.get_claim()
        assert claim is not None
        assert labels.REBOOT_PRE_BOOT_ID not in claim.metadata.annotations
        assert claim.metadata.annotations[labels.REBOOT_TERMINATION_GRACE_PERIOD] == "0s"
        assert world.recorded.counted("karpenter_nodes_reboots_total", result="succeeded") == 1

    story(tell)


@pytest.mark.promise("API-3.7.2")
def test_a_bounded_drain_evicts_what_it_may_and_lets_the_rest_ride() -> None:
    """Eviction only: protected pods stay and go through the reboot."""

    async def tell(world: World) -> None:
        cloud = await ready(world)
        node = await world.node()
        await world.pod("web", node.name)
        await world.pod("busy", node.name, metadata={"annotations": {labels.DO_NOT_DISRUPT: "true"}})
        await asyncio.sleep(3)
        await commit(world, "2m")
        await asyncio.sleep(60)
        assert await world.pods() == ["busy"]
        assert cloud.reboots == []
        fenced = await world.node()
        assert [t.key for t in fenced.spec.taints] == [labels.REBOOTING_TAINT]
        assert labels.EXCLUDE_FROM_LOAD_BALANCERS not in fenced.metadata.labels
        await asyncio.sleep(75)
        assert len(cloud.reboots) == 1
        assert await world.reason_of("Initialized") == "Rebooting"
        assert labels.INITIALIZED not in (await world.node()).metadata.labels
        await boots(world, "boot-2")
        await world.ready()
        assert await world.pods() == ["busy"]
        assert "RebootObserved" in world.recorded.reasons("NodeClaim")

    story(tell)


@pytest.mark.promise("API-3.7.2")
def test_an_unbounded_drain_waits_and_an_empty_node_settles() -> None:
    """Without a grace period nobody is hurried; without pods five seconds are enough."""

    async def tell(world: World) -> None:
        cloud = await ready(world)
        node = await world.node()
        await world.pod("busy", node.name, metadata={"annotations": {labels.DO_NOT_DISRUPT: "true"}})
        await asyncio.sleep(3)
        await commit(world, None)
        await asyncio.sleep(3600)
        assert cloud.reboots == []
        await world.api.delete(kinds.POD, "busy", "default")
        await asyncio.sleep(10)
        assert len(cloud.reboots) == 1

    story(tell)


@pytest.mark.promise("API-3.7.1")
@pytest.mark.parametrize("grace", ["soon", "-5s"])
def test_an_unusable_grace_period_fails_the_reboot_and_keeps_the_claim(grace: str) -> None:
    """A malformed request must not cost a machine."""

    async def tell(world: World) -> None:
        cloud = await ready(world)
        await commit(world, grace)
        await asyncio.sleep(60)
        assert await world.reason_of("Rebooting") == "RebootFailed"
        assert await world.status_of("Ready") == "True"
        assert cloud.reboots == []
        assert "RebootFailed" in world.recorded.reasons("NodeClaim")
        assert world.recorded.counted("karpenter_nodes_reboots_total", result="invalid_request") == 1

    story(tell)


@pytest.mark.promise("API-3.7.4")
def test_a_provider_that_cannot_reboot_gives_the_claim_up_within_its_bound() -> None:
    """The fault is still there, so the machine goes; its pods get the reboot's grace."""

    async def tell(world: World) -> None:
        cloud = await ready(world)

        def refuse(_: Any) -> None:
            raise NodeRebootNotImplemented("no such call")

        cloud.faults["reboot"] = refuse
        node = await world.node()
        await world.pod("busy", node.name, metadata={"annotations": {labels.DO_NOT_DISRUPT: "true"}})
        await asyncio.sleep(3)
        await commit(world, "1m")
        taken = await world.gone(within_s=300)
        assert 90 <= taken <= 130
        assert await world.nodes() == []
        assert world.recorded.counted("karpenter_nodes_reboots_total", result="provider_error") == 1

    story(tell)


@pytest.mark.promise("API-3.7.4")
def test_other_errors_are_retried_for_five_minutes_also_across_a_restart() -> None:
    """The clock of the first call is on the claim, not in a process."""

    async def tell(world: World) -> None:
        cloud = await ready(world)

        def fail(_: Any) -> None:
            raise CloudError("throttled")

        cloud.faults["reboot"] = fail
        await commit(world, "0s")
        await asyncio.sleep(200)
        await world.crash()
        await world.operator()
        assert await world.get_claim() is not None
        taken = await world.gone(within_s=300)
        assert taken < 160

    story(tell)


@pytest.mark.promise("API-3.7.4")
def test_a_machine_that_does_not_come_back_is_given_up_after_twenty_minutes() -> None:
    """The count starts with the call, also for a machine that never was initialized."""

    async def tell(world: World) -> None:
        cloud = await ready(world)
        await commit(world, "0s")
        await asyncio.sleep(1190)
        assert len(cloud.reboots) == 1
        assert await world.get_claim() is not None
        await world.gone(within_s=60)
        assert world.recorded.counted("karpenter_nodes_reboots_total", result="recovery_timeout") == 1
        assert cloud.instances == {}

    story(tell)


@pytest.mark.promise("API-3.7.3")
def test_a_second_reboot_is_not_taken_for_the_first() -> None:
    """Each request has its own operation ID."""

    async def tell(world: World) -> None:
        cloud = await ready(world)
        for number in (1, 2):
            await commit(world, "0s")
            await asyncio.sleep(20)
            assert len(cloud.reboots) == number
            await boots(world, f"boot-{number + 1}")
            await world.ready()
            await asyncio.sleep(60)
        assert len(set(cloud.reboots)) == 2

    story(tell)


def test_f21_a_crash_at_any_write_of_a_reboot_ends_in_the_same_state() -> None:
    """The same operation ID is used again, and a machine that came back is not called a second time."""

    def one(at: int) -> Disturbance:
        async def telling(world: World) -> Disturbance:
            cloud = await ready(world)
            disturbance = Disturbance(world, at, "crash")
            disturbance.attach(cloud)

            async def reboot(claim: Any, operation_id: str) -> None:
                cloud.reboots.append(operation_id)
                disturbance._cloud_written(None)

            cloud.reboot = reboot  # type: ignore[method-assign]
            await commit(world, "0s")
            for _ in range(40):
                await disturbance.revive()
                await asyncio.sleep(1)
            await boots(world, "boot-2")
            for _ in range(60):
                await disturbance.revive()
                await asyncio.sleep(1)
            assert await world.reason_of("Rebooting") == "RebootSucceeded"
            assert await world.status_of("Ready") == "True"
            assert len(set(cloud.reboots)) == 1
            assert (await world.node()).spec.taints == []
            return disturbance

        return story(telling)

    writes = one(0).writes
    assert writes >= 6
    for at in range(1, writes + 1):
        assert one(at).fired


def test_deleting_the_claim_ends_its_reboot() -> None:
    """Nothing is rebooted that is on its way out."""

    async def tell(world: World) -> None:
        cloud = await ready(world)
        node = await world.node()
        await world.pod("busy", node.name, metadata={"annotations": {labels.DO_NOT_DISRUPT: "true"}})
        await commit(world, "10m")
        await asyncio.sleep(30)
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await asyncio.sleep(900)
        assert cloud.reboots == []

    story(tell)


@pytest.mark.promise("API-3.7.3")
def test_a_rebooting_node_is_not_called_initialized_by_anybody() -> None:
    """Until it is back and ready, a label that somebody puts back is taken off again."""

    async def tell(world: World) -> None:
        await ready(world)
        await commit(world, "0s")
        await asyncio.sleep(5)
        node = await world.node()
        # The kubelet leaves its Ready alone.
        await world.api.patch(kinds.NODE, node.name, {"metadata": {"labels": {STAGE_LABEL: UNHEALTHY_STAGE}}})
        unready = [{"type": "Ready", "status": "False", "reason": "Booting"}]
        body = {"status": {"nodeInfo": {"bootID": "second"}, "conditions": unready}}
        await world.api.patch(kinds.NODE, node.name, body, subresource="status")
        await world.api.patch(kinds.NODE, node.name, {"metadata": {"labels": {labels.INITIALIZED: "true"}}})
        await asyncio.sleep(2)
        assert labels.INITIALIZED not in (await world.node()).metadata.labels
        assert (await world.node()).spec.taints == []

    story(tell)


@pytest.mark.promise("API-3.7.4")
def test_a_grace_period_spoilt_during_the_reboot_keeps_no_dead_machine() -> None:
    """The bound cannot be read any more, so there is none; the claim goes all the same."""

    async def tell(world: World) -> None:
        await ready(world)
        await commit(world, "0s")
        await asyncio.sleep(60)
        spoilt = {"metadata": {"annotations": {labels.REBOOT_TERMINATION_GRACE_PERIOD: "soon"}}}
        await world.api.patch(kinds.NODE_CLAIM, "c1", spoilt)
        await world.gone(within_s=1300)
        assert world.recorded.counted("karpenter_nodes_reboots_total", result="recovery_timeout") == 1

    story(tell)
