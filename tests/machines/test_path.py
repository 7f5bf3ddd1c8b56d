"""The whole path of one machine: claim, launch, registration, initialization, deletion, nothing left."""

from __future__ import annotations

import asyncio

import pytest

from pykarpenter.api import kinds, labels
from tests.machines.world import World, story


@pytest.mark.promise("API-3.2.1", "API-3.2.6", "API-3.2.8")
def test_a_claim_becomes_a_ready_node() -> None:
    """The one thing everything else stands on."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.claim(taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
        await world.ready()
        claim, node = await world.get_claim(), await world.node()
        assert claim is not None
        assert claim.metadata.finalizers == [labels.TERMINATION_FINALIZER]
        assert claim.status.provider_id == node.spec.provider_id == f"kwok://{node.name}"
        assert claim.status.node_name == node.name
        assert claim.metadata.labels[labels.INSTANCE_TYPE] == "c-4x-amd64-linux"
        assert node.metadata.labels[labels.REGISTERED] == node.metadata.labels[labels.INITIALIZED] == "true"
        assert node.metadata.finalizers == [labels.TERMINATION_FINALIZER]
        assert [owner.uid for owner in node.metadata.owner_references] == [claim.uid]
        assert [taint.key for taint in node.spec.taints] == ["team"]

    story(tell)


@pytest.mark.promise("API-3.3.2", "API-3.3.3")
def test_deleting_a_claim_leaves_nothing_behind() -> None:
    """Claim, Node and pods go, in that order of consent: pods first, machine last."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.claim()
        await world.ready()
        await world.pod("web", (await world.node()).name)
        await asyncio.sleep(5)
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await world.gone()
        assert await world.nodes() == []
        assert await world.pods() == []
        assert world.recorded.counted("karpenter_nodeclaims_terminated_total") == 1
        assert world.recorded.counted("karpenter_nodes_terminated_total") == 1

    story(tell)


@pytest.mark.promise("API-3.4.1")
def test_deleting_a_node_takes_its_claim_along() -> None:
    """`kubectl delete node` must not leave a machine that nobody sees."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.claim()
        await world.ready()
        await world.api.delete(kinds.NODE, (await world.node()).name)
        await world.gone()
        assert await world.nodes() == []

    story(tell)
