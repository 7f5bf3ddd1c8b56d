"""Definitions that vanish or are newer than this program (F33), and pools that are replaced (F36)."""

from __future__ import annotations

import asyncio

from pykarpenter.api import crds, kinds, labels
from pykarpenter.kube.errors import NotFound
from pykarpenter.sim.api import Middleware, Request
from pykarpenter.sim.views import whole

from .world import World, story

_WRITES = ("create", "delete", "evict")


class Unserved(Middleware):
    """While on, the API server knows nothing of NodePools; notes what the operator did to machines and pods."""

    def __init__(self) -> None:
        self.on = False
        self.writes: list[str] = []

    async def before(self, request: Request) -> None:
        if self.on and request.kind.kind == "NodePool":
            raise NotFound("the server could not find the requested resource")
        if self.on and request.verb in _WRITES and request.kind not in (kinds.EVENT, kinds.LEASE):
            self.writes.append(f"{request.verb} {request.kind.kind} {request.name}")


def test_f33_a_kind_that_is_no_longer_served_makes_the_program_only_look_on() -> None:
    """No answer about pools is no answer that there are none: nothing is bought or removed until they are back."""
    line = Unserved()

    async def tell(world: World) -> None:
        await world.begin()
        await world.pool(disruption={"consolidateAfter": "0s"})
        await world.deployment("web", 2)
        await world.until_running("web", 2)
        before = [claim.name for claim in await world.claims()]
        line.on = True
        for watch in list(world.store.table(kinds.NODE_POOL.group, kinds.NODE_POOL.plural).watches.values()):
            watch.close()
        await asyncio.sleep(700)
        assert world.operator is not None
        assert world.operator.watches.unserved() == ["karpenter.sh/NodePool"]
        await world.deployment("more", 3, cpu="3")
        await world.scale("web", 0)
        await asyncio.sleep(300)
        assert line.writes == []
        assert [claim.name for claim in await world.claims()] == before
        line.on = False
        await world.until_running("more", 3, timeout_s=300)
        assert world.operator.watches.unserved() == []

    story(tell, faults=(line,))


def test_f33_fields_of_a_newer_definition_are_kept() -> None:
    """During an upgrade the cluster may know more than this process; what it does not know it must not drop."""

    async def tell(world: World) -> None:
        await world.begin(operator=False)
        for plural in ("nodepools", "nodeclaims"):
            (body,) = (m for m in crds.crds() if m["spec"]["names"]["plural"] == plural)
            schema = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            schema["properties"]["spec"]["x-kubernetes-preserve-unknown-fields"] = True
            await world.api.patch(kinds.CRD, body["metadata"]["name"], {"spec": body["spec"]})
        await world.pool(novelty={"depth": 3})
        world.start_operator()
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        (claim,) = await world.claims()
        await world.api.patch(kinds.NODE_CLAIM, claim.name, {"metadata": {"annotations": {"example.com/new": "kept"}}})
        await asyncio.sleep(30)
        pool = await world.api.get(whole(kinds.NODE_POOL), "default")
        assert pool.spec["novelty"] == {"depth": 3}
        assert labels.NODEPOOL_HASH in pool.metadata.annotations, "the program did write to it"
        (claim,) = await world.claims()
        assert claim.metadata.annotations["example.com/new"] == "kept"

    story(tell)


class Pods(Middleware):
    """How the operator touched pods."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.evicted: list[str] = []

    async def before(self, request: Request) -> None:
        if request.kind is kinds.POD and request.verb == "delete":
            self.deleted.append(request.name)
        if request.kind is kinds.POD and request.verb == "evict":
            self.evicted.append(request.name)


def test_f36_a_pool_deleted_and_created_again_drains_the_old_machines_and_serves_the_same_pods() -> None:
    """A `replace` is a delete and a create: pods leave by eviction only, and are running on new machines in the end."""
    line = Pods()

    async def tell(world: World) -> None:
        await world.begin()
        await world.pool()
        await world.deployment("web", 3)
        await world.until_running("web", 3)
        budget = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": budget}
        await world.api.create(kinds.PDB, body, "default")
        await asyncio.sleep(5)
        old = {claim.uid for claim in await world.claims()}
        await world.api.delete(kinds.NODE_POOL, "default")
        await asyncio.sleep(3)
        await world.pool()
        fewest = 3

        async def moved() -> bool:
            nonlocal fewest
            fewest = min(fewest, await world.running("web"))
            claims = await world.claims()
            return bool(claims) and not old & {c.uid for c in claims} and await world.running("web") == 3

        await world.until(moved, 600, what="the pods run on machines of the new pool")
        assert fewest >= 2, "the budget held"
        assert line.evicted and not line.deleted
        assert len(await world.nodes()) == len(await world.claims())
        told = await world.events("NodePoolDeleted")
        assert told and "NodeClaim(s)" in told[0].message

    story(tell, faults=(line,))
