"""Somebody works against the program while consolidation is on: the fleet stays small all the same.

The bound: a pod may cost two machines that come to nothing before it waits (F1), so at no time are there more than
three times the machines that the same pods need. Machines that served and were then deleted are bought again, once
for each time they take to come; there is never a row of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodes import Node
from pykarpenter.kube.errors import ApiError
from tests.controllers.disruption_steps import begin
from tests.controllers.world import World, story

PODS = 10
# Ten pods of one cpu on machines of four, a part of which the system keeps.
NEEDED = 4
QUARTER = 900
BOOT_S = 30
Act = Callable[[World, Node], Awaitable[None]]


async def taint(world: World, node: Node) -> None:
    """A policy that lets nothing run on new machines."""
    old = [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.spec.taints]
    new = {"key": "policy.example.com/quarantine", "effect": "NoExecute"}
    await world.api.patch(kinds.NODE, node.name, {"spec": {"taints": [*old, new]}})


async def delete_node(world: World, node: Node) -> None:
    await world.api.delete(kinds.NODE, node.name)


async def delete_claim(world: World, node: Node) -> None:
    for claim in await world.claims():
        if claim.status.node_name == node.name:
            await world.api.delete(kinds.NODE_CLAIM, claim.name)


async def interfere(world: World, act: Act, until: float) -> None:
    """Do it to each node once, as soon as it is there."""
    seen: set[str] = set()
    while world.clock.now() < until:
        for node in await world.nodes():
            if node.uid not in seen and not node.is_deleting and labels.INITIALIZED in node.metadata.labels:
                seen.add(node.uid)
                try:
                    await act(world, node)
                except ApiError:
                    seen.discard(node.uid)
        await asyncio.sleep(3)


class Count:
    """The most machines at one time, and every claim that ever was."""

    def __init__(self) -> None:
        self.most = 0
        self.claims: set[str] = set()

    async def watch(self, world: World, until: float) -> None:
        while world.clock.now() < until:
            claims = await world.claims()
            self.claims.update(claim.uid for claim in claims)
            self.most = max(self.most, len(claims))
            await asyncio.sleep(3)


async def spoiled_for_a_quarter(world: World, act: Act) -> Count:
    """What was bought while somebody spoils every new machine for a quarter of an hour."""
    count, until = Count(), world.clock.now() + QUARTER
    async with asyncio.TaskGroup() as group:
        group.create_task(interfere(world, act, until))
        group.create_task(count.watch(world, until))
    return count


@pytest.mark.slow
@pytest.mark.parametrize("act", [taint, delete_node, delete_claim])
def test_f1_l5_fleet_stays_bounded_while_somebody_spoils_every_new_machine(act: Act) -> None:
    """A quarter of an hour of it; afterwards every pod runs and the fleet is what the pods need."""

    async def main(world: World) -> None:
        await begin(world)
        delay = {"spec": {"nodeRegistrationDelay": f"{BOOT_S}s"}}
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", delay)
        await world.deployment("web", PODS, cpu="1")
        count = await spoiled_for_a_quarter(world, act)
        bought = len(count.claims)
        assert count.most <= 3 * NEEDED
        # Tainted machines stay and make their pods wait; deleted ones are replaced, each after its start.
        assert bought <= (3 * NEEDED if act is taint else NEEDED * (QUARTER // BOOT_S + 1))
        for node in await world.nodes():
            kept = [t for t in node.spec.taints if t.key != "policy.example.com/quarantine"]
            body = [{"key": t.key, "value": t.value, "effect": t.effect} for t in kept]
            await world.api.patch(kinds.NODE, node.name, {"spec": {"taints": body}})
        for _ in range(720):
            if await world.running("web") == PODS:
                break
            await asyncio.sleep(10)
        await asyncio.sleep(900)
        assert len([n for n in await world.nodes() if not n.is_deleting]) <= NEEDED
        assert await world.running("web") == PODS

    story(main)


@pytest.mark.slow
def test_l5_l7_fleet_stays_bounded_while_somebody_deletes_pods_all_the_time() -> None:
    """Evictions of others are no reason to buy: the pods fit where they were."""

    async def main(world: World) -> None:
        await begin(world)
        await world.deployment("web", PODS, cpu="1")
        await world.until_running("web", PODS)
        count = Count()
        until = world.clock.now() + QUARTER
        watching = asyncio.create_task(count.watch(world, until))
        while world.clock.now() < until:
            pods = sorted(await world.pods("web"), key=lambda pod: pod.name)
            running = [pod for pod in pods if not pod.is_deleting]
            if running:
                await world.api.delete(kinds.POD, running[0].name, "default")
            await asyncio.sleep(7)
        await watching
        assert count.most <= NEEDED + 1
        await world.until_running("web", PODS)

    story(main)


@pytest.mark.slow
@pytest.mark.parametrize("act", [delete_node, delete_claim])
def test_f1_purchases_slow_down_while_somebody_deletes_every_new_machine(act: Act) -> None:
    """Machines that come at once and serve for seconds are bought ever less often, and all is well a minute later."""

    async def main(world: World) -> None:
        await begin(world)
        await world.deployment("web", PODS, cpu="1")
        count = await spoiled_for_a_quarter(world, act)
        assert count.most <= 3 * NEEDED
        # A minute of it costs nothing; after that there is about one round of machines in each minute.
        assert len(count.claims) <= NEEDED * 60
        await world.until_running("web", PODS, 90)

    story(main)
