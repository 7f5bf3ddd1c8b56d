"""Launching a machine: every outcome, and never a second one for the same claim."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.cloud.errors import CloudError, CreateError, InsufficientCapacity, NodeClassNotReady
from pykarpenter.state.ledger import Promise
from tests.machines.cloud import cloud_world
from tests.machines.world import World, story

CAPACITY = "InsufficientCapacityError"


def fail_with(error: Exception) -> Any:
    def fault(_: Any) -> None:
        raise error

    return fault


@pytest.mark.promise("API-3.2.2")
@pytest.mark.promise("API-6.1")
def test_a_claim_that_no_cloud_can_serve_is_given_up_and_said_so() -> None:
    """Planning again, with the refusal known, beats waiting for capacity that is not there."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        cloud.faults["create"] = fail_with(InsufficientCapacity("no spot left in test-zone-a"))
        await world.begin()
        await world.claim()
        await world.gone()
        assert ("NodeClaim", "c1", "InsufficientCapacityError") in [e[:3] for e in world.recorded.events]
        assert world.recorded.counted("karpenter_nodeclaims_disrupted_total", reason="insufficient_capacity") == 1
        assert cloud.deletes == []

    story(tell)


@pytest.mark.promise("API-3.2.3")
def test_a_class_that_is_not_ready_gives_the_claim_up() -> None:
    """The pool turns unready at the same time; the pods are planned elsewhere."""

    async def tell(world: World) -> None:
        cloud_world(world).faults["create"] = fail_with(NodeClassNotReady("no subnet"))
        await world.begin()
        await world.claim()
        await world.gone()
        assert world.recorded.counted("karpenter_nodeclaims_disrupted_total", reason="nodeclass_not_ready") == 1

    story(tell)


@pytest.mark.promise("API-3.2.4")
@pytest.mark.parametrize(
    ("error", "reason"),
    [(CloudError("quota"), "LaunchFailed"), (CreateError("SubnetFull", "no addresses"), "SubnetFull")],
)
@pytest.mark.promise("API-6.1")
def test_other_launch_errors_are_shown_and_retried(error: Exception, reason: str) -> None:
    """A hiccup must not cost the claim, and its owner must be able to read what is wrong."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        cloud.faults["create"] = fail_with(error)
        await world.begin()
        await world.claim()
        await asyncio.sleep(5)
        assert await world.reason_of("Launched") == reason
        assert await world.status_of("Launched") == "Unknown"
        del cloud.faults["create"]
        await world.ready()

    story(tell)


@pytest.mark.promise("API-3.2.5")
def test_a_long_error_is_cut_to_1024_characters() -> None:
    """The API server refuses longer conditions, and then nothing would be shown at all."""

    async def tell(world: World) -> None:
        cloud_world(world).faults["create"] = fail_with(CloudError("x" * 3000))
        await world.begin()
        await world.claim()
        await asyncio.sleep(2)
        claim = await world.get_claim()
        assert claim is not None
        message = next(c.message for c in claim.status.conditions if c.type == "Launched")
        assert len(message) == 1024
        assert message.endswith("...")

    story(tell)


@pytest.mark.promise("API-3.2.13")
def test_a_claim_that_cannot_be_launched_runs_out_of_time() -> None:
    """Five minutes of errors are enough to plan anew."""

    async def tell(world: World) -> None:
        cloud_world(world).faults["create"] = fail_with(CloudError("quota"))
        await world.begin()
        await world.claim()
        taken = await world.gone(within_s=400)
        assert 300 <= taken < 365
        assert world.recorded.counted("karpenter_nodeclaims_disrupted_total", reason="launch_timeout") == 1

    story(tell)


@pytest.mark.promise("API-3.2.16")
def test_f2_a_crash_after_the_launch_buys_no_second_machine() -> None:
    """The status write never happened, so the new process launches again and must get the same machine."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        cloud.after["create"] = lambda _: world.die()
        await world.begin()
        claim = await world.claim()
        await asyncio.sleep(5)
        assert cloud.launched == ["c1"]
        assert await world.status_of("Launched") == "Unknown"
        del cloud.after["create"]
        await world.crash()
        await world.operator()
        await world.ready()
        assert cloud.launched == ["c1"]
        assert list(cloud.instances) == [f"fake://{claim.uid}"]

    story(tell)


def test_f2_a_claim_deleted_right_after_that_crash_takes_its_machine_along() -> None:
    """The claim knows no providerID, but the cloud knows the claim."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        cloud.registers = False
        cloud.after["create"] = lambda _: world.die()
        await world.begin()
        await world.claim()
        await asyncio.sleep(5)
        assert len(cloud.instances) == 1
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        del cloud.after["create"]
        await world.crash()
        await world.operator()
        await world.gone()
        assert cloud.instances == {}

    story(tell)


@pytest.mark.promise("API-3.2.16")
def test_f3_a_lost_launch_reply_buys_no_second_machine() -> None:
    """The cloud did launch, only its answer did not arrive."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        answers = 0

        def lose_first(_: Any) -> None:
            nonlocal answers
            answers += 1
            if answers <= 2:
                raise TimeoutError("no answer")

        cloud.after["create"] = lose_first
        await world.begin()
        await world.claim()
        await world.ready()
        assert answers == 3
        assert cloud.launched == ["c1"]

    story(tell)


def test_a_standalone_claim_gets_its_machine_without_any_pool() -> None:
    """NodeClaims can be written by hand."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.claim(pool="")
        await world.ready()
        assert labels.NODEPOOL not in (await world.node()).metadata.labels
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await world.gone()
        assert await world.nodes() == []

    story(tell)


def test_claims_of_other_providers_are_left_alone() -> None:
    """Two autoscalers may share a cluster."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.claim(nodeClassRef={"group": "other.example", "kind": "Class", "name": "x"})
        await asyncio.sleep(600)
        claim = await world.get_claim()
        assert claim is not None
        assert claim.metadata.finalizers == []
        assert claim.status.conditions == []
        assert await world.nodes() == []

    story(tell)


@pytest.mark.promise("API-3.2.13")
def test_a_launch_that_fails_with_other_words_each_time_runs_out_of_time_too() -> None:
    """Clouds put request IDs into their errors; each new text is a write of the claim, and none may buy it time."""

    async def tell(world: World) -> None:
        attempts: list[str] = []

        def fail(claim: NodeClaim) -> None:
            attempts.append(claim.name)
            assert len(attempts) < 100, "tried again without a pause"
            raise CloudError(f"quota (request {len(attempts)})")

        cloud_world(world).faults["create"] = fail
        await world.begin()
        await world.claim()
        taken = await world.gone(within_s=500)
        assert 300 <= taken < 365
        assert world.recorded.counted("karpenter_nodeclaims_disrupted_total", reason="launch_timeout") == 1
        assert len(attempts) < 15, "what is written about an error must not set off the next try"

    story(tell)


@pytest.mark.promise("API-3.2.13")
def test_a_node_that_joined_while_nobody_looked_is_registered_and_not_given_up() -> None:
    """After half an hour without a controller, what came up meanwhile is used, whatever the timeouts say."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        cloud.registers = False
        await world.begin()
        claim = await world.claim()
        await asyncio.sleep(10)
        assert await world.status_of("Launched") == "True"
        await world.crash()
        await cloud.register(claim)
        await asyncio.sleep(1800)
        await world.operator()
        await world.ready()

    story(tell)


@pytest.mark.promise("API-3.2.14")
def test_pods_that_wait_for_a_refused_claim_hear_of_it() -> None:
    """Whoever looks at a pending pod sees why its machine did not come; a pod that is going does not care."""

    async def tell(world: World) -> None:
        cloud_world(world).faults["create"] = fail_with(InsufficientCapacity("no spot in zone a"))
        await world.begin()
        await world.api.create(kinds.NODE_POOL, {"metadata": {"name": "pool"}, "spec": {}})
        held = {"finalizers": ["example.com/hold"]}
        for name in ("web", "going"):
            await world.pod(name, "", metadata=held if name == "going" else {})
        await world.api.delete(kinds.POD, "going", "default")
        await asyncio.sleep(1)
        assert world.context is not None
        state = world.context.state
        pods = [pod for name in ("web", "going") if (pod := state.pod(f"default/{name}")) is not None]
        assert state.reserve(Promise("c1", "pool", {"nodes": 1}), pods) is None
        await world.claim()
        await world.gone()
        told = [(kind, name) for kind, name, reason, _ in world.recorded.events if reason == CAPACITY]
        assert told == [("NodeClaim", "c1"), ("Pod", "web")]

    story(tell)
