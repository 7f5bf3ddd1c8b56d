"""Registration and initialization, with every way in which they can be held up."""

from __future__ import annotations

import asyncio

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.cloud.provider import HookResult
from tests.machines.cloud import cloud_world
from tests.machines.world import World, story


@pytest.mark.promise("API-3.2.7", "API-3.2.13")
def test_f9_a_machine_that_never_registers_is_given_up_after_15_minutes() -> None:
    """A broken image must not be paid for any longer."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        cloud.registers = False
        await world.begin()
        await world.claim()
        await asyncio.sleep(10)
        assert await world.reason_of("Registered") == "NodeNotFound"
        taken = await world.gone(within_s=1000)
        assert 880 <= taken < 900
        assert cloud.instances == {}
        assert world.recorded.counted("karpenter_nodeclaims_disrupted_total", reason="registration_timeout") == 1

    story(tell)


@pytest.mark.promise("API-3.2.7")
def test_f47_two_nodes_with_one_provider_id_are_never_registered() -> None:
    """Which of them is the machine cannot be known, so neither gets workload."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        cloud.registers = False
        await world.begin()
        claim = await world.claim()
        await cloud.register(claim, "node-1")
        await cloud.register(claim, "node-2")
        await asyncio.sleep(10)
        assert await world.reason_of("Registered") == "MultipleNodesFound"
        assert await world.status_of("Registered") == "False"
        for node in await world.nodes():
            assert labels.REGISTERED not in node.metadata.labels
            assert node.metadata.finalizers == []

    story(tell)


class Gate:
    name = "licence"

    def __init__(self) -> None:
        self.open = False
        self.broken = False

    async def registered(self, claim: NodeClaim) -> HookResult:
        if self.broken:
            raise RuntimeError("licence server down")
        return HookResult(passed=self.open, requeue_after_s=7.0)


@pytest.mark.promise("API-3.2.11")
def test_pending_hooks_keep_workload_away_and_are_asked_again() -> None:
    """A provider may need its own word before pods may run."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        gate = Gate()
        cloud.hooks = [gate]
        await world.begin()
        await world.claim()
        await asyncio.sleep(3)
        assert await world.reason_of("Registered") == "RegistrationHookPending"
        node = await world.node()
        assert labels.UNREGISTERED_TAINT in [taint.key for taint in node.spec.taints]
        assert node.metadata.finalizers == [labels.TERMINATION_FINALIZER]
        gate.broken = True
        await asyncio.sleep(20)
        assert await world.reason_of("Registered") == "RegistrationHookPending"
        gate.broken, gate.open = False, True
        await world.ready()
        assert labels.UNREGISTERED_TAINT not in [taint.key for taint in (await world.node()).spec.taints]

    story(tell)


@pytest.mark.promise("API-3.2.10")
def test_a_node_without_the_unregistered_taint_is_registered_with_a_warning() -> None:
    """The taint must come with the machine; pods may already have slipped in."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        cloud.registers = False
        await world.begin()
        claim = await world.claim()
        await cloud.register(claim, tainted=False)
        await world.ready()
        assert "UnregisteredTaintMissing" in world.recorded.reasons("NodeClaim")

    story(tell)


@pytest.mark.promise("API-3.2.12")
def test_startup_taints_hold_initialization_until_somebody_removes_them() -> None:
    """An agent that must run first takes its taint off when it has."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.claim(startupTaints=[{"key": "agent", "effect": "NoExecute"}])
        await asyncio.sleep(10)
        assert await world.reason_of("Initialized") == "StartupTaintsExist"
        node = await world.node()
        assert labels.INITIALIZED not in node.metadata.labels
        await world.api.patch(kinds.NODE, node.name, {"spec": {"taints": []}})
        await world.ready()

    story(tell)


def test_f47_a_node_that_belongs_to_another_claim_is_not_taken_over() -> None:
    """A providerID edited by hand must not move a machine from one claim to another (B35)."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        await world.begin()
        await world.claim("c1")
        await world.ready("c1")
        cloud.registers = False
        await world.claim("c2")
        await asyncio.sleep(5)
        first = await world.get_claim("c1")
        assert first is not None
        body = {"status": {"providerID": first.status.provider_id}}
        await world.api.patch(kinds.NODE_CLAIM, "c2", body, subresource="status")
        await asyncio.sleep(5)
        assert await world.status_of("pykarpenter.sh/IdentityConflict", "c2") == "True"
        assert await world.status_of("Registered", "c2") == "Unknown"
        node = next(n for n in await world.nodes() if n.spec.provider_id == first.status.provider_id)
        assert [owner.name for owner in node.metadata.owner_references] == ["c1"]

    story(tell)


def test_b36_a_node_without_provider_id_is_left_alone_with_an_event() -> None:
    """It could be anybody's machine."""

    async def tell(world: World) -> None:
        await world.begin()
        body = {"metadata": {"name": "stray", "labels": {labels.NODEPOOL: "pool"}}, "spec": {}}
        await world.api.create(kinds.NODE, body)
        await asyncio.sleep(60)
        stray = await world.node()
        assert stray.metadata.finalizers == []
        assert stray.metadata.labels == {labels.NODEPOOL: "pool"}
        assert ("Node", "stray", "InvalidProviderID") in [e[:3] for e in world.recorded.events]

    story(tell)


def test_b35_a_ready_claim_says_that_another_claims_its_machine_until_that_is_corrected() -> None:
    """The one in service is just as much in doubt as the newcomer; nothing is deleted meanwhile."""
    conflict = "pykarpenter.sh/IdentityConflict"

    async def tell(world: World) -> None:
        await world.begin()
        await world.claim("c1")
        await world.claim("c2")
        await world.ready("c1")
        await world.ready("c2")
        first, second = await world.get_claim("c1"), await world.get_claim("c2")
        assert first is not None and second is not None
        wrong = {"status": {"providerID": first.status.provider_id}}
        await world.api.patch(kinds.NODE_CLAIM, "c2", wrong, subresource="status")
        await asyncio.sleep(5)
        assert await world.status_of(conflict, "c1") == await world.status_of(conflict, "c2") == "True"
        assert world.recorded.counted("pykarpenter_identity_conflicts_total") == 2
        assert await world.status_of("Ready", "c1") == "True"
        right = {"status": {"providerID": second.status.provider_id}}
        await world.api.patch(kinds.NODE_CLAIM, "c2", right, subresource="status")
        await asyncio.sleep(5)
        assert await world.reason_of(conflict, "c1") == await world.reason_of(conflict, "c2") == ""
        assert len(await world.nodes()) == 2

    story(tell)


class Labeller:
    """A hook that knows something about the machine."""

    name = "labeller"

    async def registered(self, claim: NodeClaim) -> HookResult:
        claim.metadata.labels["example.com/rack"] = "r7"
        claim.metadata.annotations["example.com/serial"] = "42"
        return HookResult(passed=True)


@pytest.mark.promise("API-6.5")
def test_what_a_hook_adds_to_the_claim_stays_on_it_and_reaches_the_node() -> None:
    """Labels that only the provider can know are there before the first pod is."""

    async def tell(world: World) -> None:
        cloud_world(world).hooks = [Labeller()]
        await world.begin()
        await world.claim()
        await world.ready()
        claim, node = await world.get_claim(), await world.node()
        assert claim is not None
        for meta in (claim.metadata, node.metadata):
            assert meta.labels["example.com/rack"] == "r7"
            assert meta.annotations["example.com/serial"] == "42"

    story(tell)


@pytest.mark.promise("API-3.3.4")
def test_a_claim_that_never_registered_takes_its_instance_and_leaves_nodes_to_the_cluster() -> None:
    """Nothing was drained, so nothing is deleted by us but the machine; the Node goes with its owner."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        cloud.hooks = [Gate()]
        await world.begin()
        await world.claim()
        await asyncio.sleep(5)
        order: list[str] = []
        cloud.after["delete"] = lambda _: order.append("instance")
        node = await world.node()
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await asyncio.sleep(1)
        assert order == ["instance"]
        assert (await world.api.get(kinds.NODE, node.name)).uid == node.uid
        await world.gone()

    story(tell)
