"""F21 and F22: a controller that dies after any write, and writes that are refused at any point.

A story is told once undisturbed to count its writes (to the API server and to the cloud), then once for each of them
with a crash right after it, or with a conflict instead of it. Every telling must end as the first did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.kube.errors import ApiError, Conflict, ServerFault
from pykarpenter.sim.api import Middleware, Request
from tests.machines.cloud import Cloud, cloud_world
from tests.machines.world import World, story

WRITES = frozenset({"create", "patch", "delete", "evict"})


class Disturbance(Middleware):
    """Counts the operator's writes and does something to the n-th."""

    def __init__(self, world: World, at: int, how: str) -> None:
        self.world = world
        self.at = at
        self.how = how
        self.writes = 0
        self.fired = False
        self.dead = False

    def attach(self, cloud: Cloud) -> None:
        self.world.operator_api.middleware.append(self)
        for call in ("create", "delete"):
            cloud.after[call] = self._cloud_written

    async def before(self, request: Request) -> None:
        if self.dead:
            # Nothing leaves a dead process, not even what its tasks still try while they are torn down.
            raise asyncio.CancelledError
        if request.verb in WRITES and self.how == "conflict" and self._is_it():
            raise Conflict("the object has been modified")

    async def after(self, request: Request, error: ApiError | None) -> None:
        if request.verb not in WRITES or error is not None:
            return
        if self.how == "crash" and self._is_it():
            self._crash()
        if self.how == "lost" and self._is_it():
            raise ServerFault("connection reset")

    def _cloud_written(self, _: Any) -> None:
        if self.how == "crash" and self._is_it():
            self._crash()

    def _is_it(self) -> bool:
        self.writes += 1
        hit = self.writes == self.at
        self.fired = self.fired or hit
        return hit

    def _crash(self) -> None:
        self.dead = True
        self.world.die()

    async def revive(self) -> None:
        if self.dead:
            await self.world.crash()
            self.dead = False
            await self.world.operator()


async def come_and_go(world: World, cloud: Cloud, disturbance: Disturbance) -> None:
    """One claim from creation to nothing, with a pod on it and a startup taint on the way."""
    await world.begin()
    await world.claim(startupTaints=[{"key": "agent", "effect": "NoSchedule"}])

    async def wait_for(what: Callable[[], Awaitable[bool]]) -> None:
        for _ in range(400):
            await disturbance.revive()
            if await what():
                return
            await asyncio.sleep(1)
        raise AssertionError("did not converge")

    async def registered() -> bool:
        return await world.status_of("Registered") == "True"

    async def ready() -> bool:
        return await world.status_of("Ready") == "True"

    async def gone() -> bool:
        return await world.get_claim() is None

    await wait_for(registered)
    node = await world.node()
    await world.api.patch(kinds.NODE, node.name, {"spec": {"taints": []}})
    await wait_for(ready)
    assert len(cloud.instances) == 1
    node = await world.node()
    assert node.metadata.labels[labels.INITIALIZED] == "true"
    assert node.spec.taints == [], "a removed startup taint must not come back"
    await world.pod("web", node.name)
    await asyncio.sleep(3)
    await world.api.delete(kinds.NODE_CLAIM, "c1")
    await wait_for(gone)
    await disturbance.revive()
    await asyncio.sleep(60)
    assert await world.nodes() == []
    assert await world.pods() == []
    assert cloud.instances == {}
    assert cloud.launched == ["c1"], "S2: one launch per claim, whatever happens"


def tell(at: int, how: str) -> Disturbance:
    async def telling(world: World) -> Disturbance:
        cloud = cloud_world(world)
        disturbance = Disturbance(world, at, how)
        disturbance.attach(cloud)
        await come_and_go(world, cloud, disturbance)
        return disturbance

    return story(telling)


@pytest.mark.parametrize("how", ["crash", "conflict", "lost"])
def test_f21_f22_every_write_of_a_machines_life_may_be_the_last_or_refused(how: str) -> None:
    """Restart at any step, and the world converges to the state reached without it (L4, S2, S11)."""
    writes = tell(0, how).writes
    assert writes >= 15, "launch, registration, initialization, drain and release are all in the story"
    for at in range(1, writes + 1):
        disturbance = tell(at, how)
        assert disturbance.fired, f"write {at} of {writes} was never reached"


def test_f21_kwok_finds_its_node_again_after_a_crash_at_any_write() -> None:
    """The Node is the instance: its name derives from the claim's UID, so a repeat meets the first."""

    def one(at: int) -> Disturbance:
        async def telling(world: World) -> Disturbance:
            disturbance = Disturbance(world, at, "crash")
            world.operator_api.middleware.append(disturbance)
            await world.begin()
            await world.claim()
            for _ in range(60):
                await disturbance.revive()
                await asyncio.sleep(1)
                if await world.status_of("Ready") == "True":
                    break
            await world.node()
            await world.api.delete(kinds.NODE_CLAIM, "c1")
            for _ in range(60):
                await disturbance.revive()
                await asyncio.sleep(1)
            assert await world.get_claim() is None
            assert await world.nodes() == []
            return disturbance

        return story(telling)

    writes = one(0).writes
    assert writes >= 10
    for at in range(1, writes + 1):
        assert one(at).fired


def test_a_delayed_registration_survives_a_crash() -> None:
    """The machine was launched; that its Node waits is in nobody's memory but the class."""

    async def telling(world: World) -> None:
        await world.begin()
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "60s"}})
        await world.claim()
        await asyncio.sleep(10)
        assert await world.status_of("Launched") == "True"
        assert await world.nodes() == []
        await world.crash()
        await world.operator()
        await asyncio.sleep(45)
        assert await world.nodes() == []
        await world.ready()
        assert len(await world.nodes()) == 1

    story(telling)


def test_a_claim_deleted_during_a_delayed_registration_leaves_no_node() -> None:
    """A Node that appears after its claim went would belong to nobody."""

    async def telling(world: World) -> None:
        await world.begin()
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "60s"}})
        await world.claim()
        await asyncio.sleep(10)
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await world.gone()
        await asyncio.sleep(120)
        assert await world.nodes() == []

    story(telling)


class Webhook(Middleware):
    """Somebody's admission webhook that fails every write of the operator while it is broken."""

    broken = True

    async def before(self, request: Request) -> None:
        if self.broken and request.verb in WRITES:
            raise ServerFault('failed calling webhook "policy.example.com": connection refused')


def test_f32_while_every_write_is_refused_nothing_breaks_and_all_goes_on_afterwards() -> None:
    """L3, L6: one machine is on its way, one is going; neither is lost, doubled or killed by the pause."""

    async def telling(world: World) -> None:
        cloud = cloud_world(world)
        webhook = Webhook()
        webhook.broken = False
        world.operator_api.middleware.append(webhook)
        await world.begin()
        await world.claim()
        await world.ready()
        node = await world.node()
        await world.pod("web", node.name)
        await asyncio.sleep(2)
        webhook.broken = True
        await world.claim("c2")
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await asyncio.sleep(120)
        assert await world.pods() == ["web"]
        assert len(cloud.instances) <= 2
        webhook.broken = False
        await world.gone(within_s=120)
        await world.ready("c2")
        assert cloud.launched == ["c1", "c2"]
        assert list(cloud.instances) == [c.status.provider_id for c in [await world.get_claim("c2")] if c]

    story(telling)
