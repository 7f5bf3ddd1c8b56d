"""Hash, counts, readiness, registration health and the warning at deletion."""

import asyncio

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool_hash import nodepool_hash
from pykarpenter.controllers.machines import machine_controllers
from pykarpenter.controllers.nodepool import nodepool_controllers
from pykarpenter.kube.errors import Conflict
from pykarpenter.runtime.virtual_loop import run_virtual
from pykarpenter.sim.api import Middleware
from tests.nodepool.world import PoolWorld, in_world

SETTLE_S = 3.0


@pytest.mark.promise("API-1.4.1")
def test_new_pool_becomes_ready():
    """The one thing that everybody waits for first."""

    async def story(world):
        await world.pool()
        await asyncio.sleep(SETTLE_S)
        pool = await world.seen()
        found = {c.type: (c.status, c.observed_generation) for c in pool.status.conditions}
        assert found == {
            "ValidationSucceeded": ("True", 1),
            "NodeClassReady": ("True", 1),
            "NodeRegistrationHealthy": ("Unknown", 1),
            "Ready": ("True", 1),
        }

    in_world(story)


@pytest.mark.promise("API-1.4.1")
def test_edited_pool_is_judged_anew():
    """Ready about the old spec proves nothing about the new one."""

    async def story(world):
        await world.pool()
        await asyncio.sleep(SETTLE_S)
        await world.api.patch(kinds.NODE_POOL, "p", {"spec": {"weight": 7}})
        await asyncio.sleep(SETTLE_S)
        pool = await world.seen()
        assert {c.observed_generation for c in pool.status.conditions} == {2}
        assert (await world.condition("Ready")).status == "True"

    in_world(story)


@pytest.mark.promise("API-1.4.3")
@pytest.mark.parametrize(
    ("ready", "expected"),
    [
        ({"status": "False", "reason": "NoSubnets", "message": "none found"}, ("NoSubnets", "none found")),
        ({"status": "Unknown", "reason": "Waiting", "message": ""}, ("NodeClassReadinessUnknown", None)),
    ],
)
def test_class_that_is_not_ready_passes_its_reason_on(ready, expected):
    """The remedy lies with the class; the pool must not hide it."""

    async def story(world):
        conditions = [{"type": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z", **ready}]
        await world.api.patch(
            kinds.KWOK_NODE_CLASS, "default", {"status": {"conditions": conditions}}, subresource="status"
        )
        await world.pool()
        await asyncio.sleep(SETTLE_S)
        condition = await world.condition("NodeClassReady")
        assert (condition.status, condition.reason) == ("False", expected[0])
        assert expected[1] is None or condition.message == expected[1]

    in_world(story)


@pytest.mark.promise("API-3.6.1")
def test_pool_carries_its_hash_and_follows_changes():
    """Nodes compare themselves with these annotations."""

    async def story(world):
        await world.pool()
        await asyncio.sleep(SETTLE_S)
        pool = await world.seen()
        first = pool.metadata.annotations
        assert first == {labels.NODEPOOL_HASH: nodepool_hash(pool), labels.NODEPOOL_HASH_VERSION: "v3"}
        await world.api.patch(kinds.NODE_POOL, "p", {"spec": {"template": {"spec": {"expireAfter": "24h"}}}})
        await asyncio.sleep(SETTLE_S)
        pool = await world.seen()
        assert pool.metadata.annotations[labels.NODEPOOL_HASH] == nodepool_hash(pool) != first[labels.NODEPOOL_HASH]

    in_world(story)


@pytest.mark.promise("API-3.6.5")
def test_f35_older_hash_version_is_migrated_without_drift():
    """An upgrade must not replace nodes; nodes that had drifted before must not be forgiven."""

    async def story(world):
        old = {labels.NODEPOOL_HASH: "1", labels.NODEPOOL_HASH_VERSION: "v2"}
        await world.claim("kept", pool="p", annotations=old)
        await world.claim("drifted", pool="p", annotations=old)
        await world.claim("other", pool="q", annotations=old)
        drifted = {"type": "Drifted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        await world.api.patch(kinds.NODE_CLAIM, "drifted", {"status": {"conditions": [drifted]}}, subresource="status")
        await world.pool()
        await world.api.patch(kinds.NODE_POOL, "p", {"metadata": {"annotations": old}})
        await asyncio.sleep(SETTLE_S)
        pool = await world.seen()
        written = pool.metadata.annotations
        assert written == {labels.NODEPOOL_HASH: nodepool_hash(pool), labels.NODEPOOL_HASH_VERSION: "v3"}
        claims = {
            name: (await world.api.get(kinds.NODE_CLAIM, name)).metadata.annotations for name in ("kept", "other")
        }
        assert claims == {"kept": written, "other": old}
        kept_hash = (await world.api.get(kinds.NODE_CLAIM, "drifted")).metadata.annotations
        assert kept_hash == {labels.NODEPOOL_HASH: "1", labels.NODEPOOL_HASH_VERSION: "v3"}

    in_world(story)


class MachineWorld(PoolWorld):
    """Pools and the machines that their claims become."""

    async def serve(self):
        await super().serve()
        self.controllers = lambda ctx: [*nodepool_controllers(ctx), *machine_controllers(ctx)]

    async def owned(self, name, pool):
        owner = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": pool.name, "uid": pool.uid}
        claim = await self.claim(name, pool=pool.name)
        await self.api.patch(kinds.NODE_CLAIM, name, {"metadata": {"ownerReferences": [owner]}})
        return claim


def with_machines(story, *, kubelets=True):
    async def main():
        world = MachineWorld()
        await world.serve()
        await world.begin(kubelets=kubelets)
        try:
            await story(world)
        finally:
            await world.end()

    run_virtual(main())


@pytest.mark.promise("API-4.1", "API-4.2")
def test_counts_follow_the_machines():
    """Zeros at first, the machines' sum later, nothing for those that leave."""

    async def story(world):
        await world.pool()
        await asyncio.sleep(SETTLE_S)
        empty = await world.seen()
        zeros = dict.fromkeys(("cpu", "memory", "pods", "ephemeral-storage", "nodes"), "0")
        assert (empty.status.resources, empty.status.nodes) == (zeros, 0)
        for name in ("a", "b"):
            await world.owned(name, empty)
        await asyncio.sleep(60)
        full = (await world.seen()).status
        assert (full.nodes, full.resources["nodes"], full.resources["cpu"]) == (2, "2", "8")
        await world.api.delete(kinds.NODE_CLAIM, "a")
        await asyncio.sleep(120)
        left = (await world.seen()).status
        assert (left.nodes, left.resources["cpu"]) == (1, "4")

    with_machines(story)


@pytest.mark.promise("API-4.3")
def test_registered_node_makes_registration_healthy():
    """The first machine that comes up proves the pool's template."""

    async def story(world):
        pool = await world.pool()
        await asyncio.sleep(SETTLE_S)
        await world.owned("a", pool)
        await asyncio.sleep(60)
        assert (await world.condition("NodeRegistrationHealthy")).status == "True"

    with_machines(story)


@pytest.mark.promise("API-4.3", "API-4.6", "API-4.7")
def test_registration_time_outs_make_it_unhealthy_until_the_pool_changes():
    """Two machines in a row that never join; claims of others do not count."""

    async def story(world):
        pool = await world.pool()
        await asyncio.sleep(SETTLE_S)
        await world.claim("foreign", pool="p")
        await world.owned("a", pool)
        await asyncio.sleep(1000)
        assert (await world.condition("NodeRegistrationHealthy")).status == "Unknown"
        await world.owned("b", pool)
        await asyncio.sleep(1000)
        condition = await world.condition("NodeRegistrationHealthy")
        assert (condition.status, condition.reason) == ("False", "RegistrationFailed")
        assert (await world.condition("Ready")).status == "True"
        await world.api.patch(kinds.NODE_POOL, "p", {"spec": {"weight": 3}})
        await asyncio.sleep(SETTLE_S)
        assert (await world.condition("NodeRegistrationHealthy")).status == "Unknown"

    with_machines_that_never_join(story)


def with_machines_that_never_join(story):
    async def delayed(world):
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "24h"}})
        await story(world)

    with_machines(delayed, kubelets=False)


@pytest.mark.promise("API-4.6")
def test_changed_class_starts_registration_health_anew():
    """Another image may heal what was broken."""

    async def story(world):
        pool = await world.pool()
        await asyncio.sleep(SETTLE_S)
        await world.owned("a", pool)
        await asyncio.sleep(60)
        assert (await world.condition("NodeRegistrationHealthy")).status == "True"
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "1s"}})
        await asyncio.sleep(SETTLE_S)
        assert (await world.condition("NodeRegistrationHealthy")).status == "Unknown"
        assert (await world.seen()).status.node_class_observed_generation == 2

    with_machines(story)


@pytest.mark.promise("API-4.9")
def test_deleted_pool_warns_what_happens_to_its_nodes():
    """kubectl delete nodepool is the largest lever there is."""

    async def story(world):
        await world.pool()
        await world.pool("unused")
        await world.claim("one", pool="p")
        await asyncio.sleep(SETTLE_S)
        for name in ("p", "unused"):
            await world.api.delete(kinds.NODE_POOL, name)
        await asyncio.sleep(SETTLE_S)
        (event,) = [event for event in world.recorded.events if event[2] == "NodePoolDeleted"]
        assert event[1] == "p" and "1 NodeClaim(s)" in event[3]

    in_world(story)


class FirstWritesCollide(Middleware):
    """Every status write meets somebody else's, twice."""

    def __init__(self):
        self.left = 2

    async def before(self, request):
        if request.verb == "patch" and request.subresource == "status" and self.left:
            self.left -= 1
            raise Conflict("the object has been modified")


def test_colliding_status_writes_are_decided_anew():
    """Five controllers write conditions of one pool; none may erase another's."""

    async def story(world):
        world.operator_api.middleware.append(FirstWritesCollide())
        await world.pool()
        await asyncio.sleep(SETTLE_S)
        assert (await world.condition("Ready")).status == "True"
        assert (await world.condition("NodeRegistrationHealthy")).status == "Unknown"

    in_world(story)


def test_idle_pool_is_not_written_again():
    """A controller that writes what is there already wakes itself for ever."""

    async def story(world):
        await world.pool()
        await asyncio.sleep(60)
        version = (await world.seen()).metadata.resource_version
        await asyncio.sleep(3600)
        assert (await world.seen()).metadata.resource_version == version

    in_world(story)
