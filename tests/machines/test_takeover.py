"""Objects that Karpenter made: taken over without a word, and given back by `release`."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.nodepool_hash import nodepool_hash
from pykarpenter.api.timestamps import format_micro_timestamp
from pykarpenter.controllers.release import Released, StillLed, release
from pykarpenter.sim.api import Middleware, Request
from tests.machines.cloud import Cloud, cloud_world
from tests.machines.world import CLASS_LABEL, CLASS_REF, World, story

STAMP = "2026-01-01T00:00:00Z"


class Writes(Middleware):
    """What the operator changed."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def before(self, request: Request) -> None:
        if request.verb in ("create", "patch", "delete", "evict") and request.kind is not kinds.EVENT:
            self.seen.append(f"{request.verb} {request.kind.kind} {request.name} {request.subresource}".strip())


def condition(kind: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True",
        "reason": kind,
        "message": "",
        "lastTransitionTime": STAMP,
        "observedGeneration": 1,
    }


async def inherit(world: World, cloud: Cloud, version: str) -> None:
    """A pool, a claim and a Node as Karpenter leaves them, pods included."""
    template = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "nodeClassRef": CLASS_REF,
            "requirements": [{"key": labels.ARCH, "operator": "In", "values": ["amd64"]}],
            "expireAfter": "720h",
        },
    }
    pool_spec = {"template": template, "disruption": {"consolidateAfter": "0s"}}
    digest = nodepool_hash(msgspec.convert({"metadata": {"name": "pool"}, "spec": pool_spec}, NodePool))
    hashes = {labels.NODEPOOL_HASH: digest, labels.NODEPOOL_HASH_VERSION: "v3"}
    await world.api.create(kinds.NODE_POOL, {"metadata": {"name": "pool", "annotations": hashes}, "spec": pool_spec})
    known = {
        "team": "a",
        labels.NODEPOOL: "pool",
        labels.INSTANCE_TYPE: "c-4x-amd64-linux",
        labels.ZONE: "test-zone-a",
        labels.CAPACITY_TYPE: "spot",
        labels.ARCH: "amd64",
        labels.OS: "linux",
        CLASS_LABEL: "default",
    }
    size = {"cpu": "4", "memory": "8Gi", "pods": "64"}
    claim = await world.api.create(
        kinds.NODE_CLAIM,
        {
            "metadata": {
                "name": "pool-x7k2p",
                "labels": known,
                "annotations": hashes,
                "finalizers": [labels.TERMINATION_FINALIZER],
            },
            "spec": {
                "nodeClassRef": CLASS_REF,
                "requirements": [{"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["c-4x-amd64-linux"]}],
                "resources": {"requests": {"cpu": "1"}},
                "expireAfter": "720h",
            },
        },
    )
    dependents = [condition(kind) for kind in ("Launched", "Registered", "Initialized", "ConsistentStateFound")]
    if version == "1.15":
        dependents.append(condition("Consolidatable"))
    provider_id = f"fake://{claim.uid}"
    status = {
        "providerID": provider_id,
        "nodeName": "ip-10-0-0-1",
        "capacity": size,
        "allocatable": size,
        "conditions": [*dependents, condition("Ready")],
    }
    await world.api.patch(kinds.NODE_CLAIM, claim.name, {"status": status}, subresource="status")
    owner = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "name": claim.name,
        "uid": claim.uid,
        "blockOwnerDeletion": True,
    }
    await world.api.create(
        kinds.NODE,
        {
            "metadata": {
                "name": "ip-10-0-0-1",
                "labels": {**known, labels.REGISTERED: "true", labels.INITIALIZED: "true"},
                "annotations": hashes,
                "finalizers": [labels.TERMINATION_FINALIZER],
                "ownerReferences": [owner],
            },
            "spec": {"providerID": provider_id},
            "status": {
                "capacity": size,
                "allocatable": size,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": STAMP}],
            },
        },
    )
    cloud.instances[provider_id] = msgspec.structs.replace(
        await world.api.get(kinds.NODE_CLAIM, claim.name), spec=claim.spec
    )
    await world.pod("web", "ip-10-0-0-1")


@pytest.mark.promise("API-3.8.2")
@pytest.mark.parametrize("version", ["1.14", "1.15"])
def test_machines_of_karpenter_are_taken_over_untouched(version: str) -> None:
    """An upgrade that drifts, taints or deletes a fleet is the worst there is (F35)."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        writes = Writes()
        await world.api.create(kinds.KWOK_NODE_CLASS, {"metadata": {"name": "default"}})
        await inherit(world, cloud, version)
        world.operator_api.middleware.append(writes)
        await world.operator()
        await asyncio.sleep(7200)
        node = await world.node()
        assert node.spec.taints == []
        assert not node.is_deleting
        assert await world.status_of("Ready", "pool-x7k2p") == "True"
        assert await world.reason_of("Drifted", "pool-x7k2p") == ""
        assert await world.pods() == ["web"]
        expected = {"1.14": ["patch NodeClaim pool-x7k2p status"], "1.15": []}
        assert writes.seen == expected[version], "1.14 may lack Consolidatable; nothing else is written"

    story(tell)


async def lead(world: World, held: bool) -> None:
    renewed = world.clock.now() - (5 if held else 60)
    spec = {"holderIdentity": "host_1", "leaseDurationSeconds": 15, "renewTime": format_micro_timestamp(renewed)}
    await world.api.create(kinds.LEASE, {"metadata": {"name": "lead"}, "spec": spec}, "kube-system")


async def let_go(world: World, **how: Any) -> Released:
    return await release(world.api, world.clock, lease_name="lead", lease_namespace="kube-system", **how)


@pytest.mark.promise("API-3.8.1")
def test_release_leaves_machines_and_pods_and_nothing_of_ours_on_them() -> None:
    """Pools, claims and CRDs can then be deleted without touching a machine."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        await world.begin()
        await world.claim()
        await world.ready()
        node = await world.node()
        await world.pod("web", node.name)
        await asyncio.sleep(3)
        await world.crash()
        await lead(world, held=False)
        assert (await let_go(world, dry_run=True)).released == [f"Node/{node.name}", "NodeClaim/c1"]
        assert (await world.node()).metadata.finalizers == [labels.TERMINATION_FINALIZER]
        assert (await let_go(world)).released == [f"Node/{node.name}", "NodeClaim/c1"]
        assert (await let_go(world)).released == []
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await asyncio.sleep(60)
        after = await world.node()
        assert after.uid == node.uid
        assert not after.is_deleting
        assert await world.pods() == ["web"]
        assert len(cloud.instances) == 1

    story(tell)


@pytest.mark.promise("API-3.8.1")
def test_release_refuses_while_a_controller_leads() -> None:
    """It would put every finalizer back."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.claim()
        await world.ready()
        await lead(world, held=True)
        with pytest.raises(StillLed, match="held by host_1"):
            await let_go(world)
        assert (await world.node()).metadata.finalizers == [labels.TERMINATION_FINALIZER]

    story(tell)


@pytest.mark.promise("API-3.8.1")
def test_release_finds_the_lease_wherever_the_controller_was_installed() -> None:
    """Nobody has to know the namespace for the command to be safe."""

    async def tell(world: World) -> None:
        await lead(world, held=True)
        with pytest.raises(StillLed, match="lease kube-system/lead is held by host_1"):
            await release(world.api, world.clock, lease_name="lead", lease_namespace="")
        elsewhere = await release(world.api, world.clock, lease_name="lead", lease_namespace="default")
        assert elsewhere.released == []

    story(tell)


@pytest.mark.promise("API-3.8.1")
def test_release_does_not_abandon_what_is_being_deleted() -> None:
    """A deleting claim without its finalizer would leave its machine to nobody."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.claim()
        await world.ready()
        await world.crash()
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        result = await let_go(world)
        assert result.deleting == ["NodeClaim/c1"]
        claim = await world.get_claim()
        assert claim is not None
        assert claim.metadata.finalizers == [labels.TERMINATION_FINALIZER]

    story(tell)
