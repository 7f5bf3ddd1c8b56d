"""Nothing is bought for ever because of one pod."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykarpenter.api import kinds
from pykarpenter.api.meta import condition_status
from pykarpenter.cloud.errors import InsufficientCapacity
from pykarpenter.controllers.provisioning.purchases import Purchases
from pykarpenter.core.reasons import Why
from pykarpenter.sim.api import Middleware, Request
from tests.state.world import pod

from .world import World, story


def test_refused_launches_wait_longer_and_longer() -> None:
    purchases, waiting = Purchases(), pod("a")
    for attempt in range(5):
        purchases.planned(f"c{attempt}", [waiting])
        assert purchases.gone(f"c{attempt}", 100.0) == ["default/a"]
        assert purchases.hold(waiting, 100.0) is None, "the first refusals cost nothing: other offerings are tried"
    waits = []
    for attempt in range(5, 13):
        purchases.planned(f"c{attempt}", [waiting])
        purchases.gone(f"c{attempt}", 100.0)
        waits.append(next(wait for wait in range(100) if purchases.hold(waiting, 100.0 + wait) is None))
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]


def test_pod_that_two_machines_did_not_take_waits() -> None:
    purchases, waiting = Purchases(), pod("a")
    for name in ("c1", "c2"):
        assert purchases.hold(waiting, 0.0) is None
        purchases.planned(name, [waiting])
        purchases.launched(name, 0.0)
        purchases.launched(name, 5.0)
    held = purchases.hold(waiting, 60.0)
    assert held is not None and held.why is Why.MISFIT
    assert "nodeclaim/c1, nodeclaim/c2" in held.message and "1740s" in held.message
    assert purchases.hold(waiting, 1800.0) is None
    assert purchases.hold(pod("a", uid="successor"), 60.0) is None
    purchases.forget(waiting)
    assert purchases.hold(waiting, 60.0) is None


def test_claim_that_was_never_created_counts_for_nothing() -> None:
    purchases, waiting = Purchases(), pod("a")
    for attempt in range(20):
        purchases.planned(f"c{attempt}", [waiting])
        purchases.withdrawn(f"c{attempt}")
        assert purchases.gone(f"c{attempt}", 0.0) == []
    assert purchases.hold(waiting, 0.0) is None


def test_f8_capacity_error_storm_keeps_claims_few_and_ends_with_the_storm() -> None:
    """K#3198: 2,700 claims in 90 minutes."""
    names: set[str] = set()

    class Counts(Middleware):
        async def after(self, request: Request, error: Any) -> None:
            if request.verb == "create" and request.kind is kinds.NODE_CLAIM:
                names.add(request.name)

    async def main(world: World) -> None:
        await world.begin()
        await world.pool()
        assert world.operator is not None
        inner = world.operator.context.provider._inner  # type: ignore[attr-defined]
        launch = inner.create

        async def refuses(claim: Any) -> Any:
            raise InsufficientCapacity("nothing left")

        inner.create = refuses
        await world.deployment("web", 3)
        await asyncio.sleep(5400.0)
        assert 10 <= len(names) <= 110
        inner.create = launch
        await world.until_running("web", 3, timeout_s=90.0)

    story(main, faults=(Counts(),))


def test_f9_instances_that_never_register_are_not_bought_for_ever() -> None:
    """Each is given up after 15 minutes; after the second nothing more is bought for a while, and the pool says so."""

    async def main(world: World) -> None:
        await world.begin()
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "1000h"}})
        await world.pool(limits={"nodes": "3"})
        await world.deployment("web", 1)
        bought: set[str] = set()
        for _ in range(180):
            claims = await world.claims()
            bought |= {claim.name for claim in claims if claim.status.provider_id}
            assert len(claims) <= 3
            await asyncio.sleep(20.0)
        assert len(bought) == 2
        pool = await world.api.get(kinds.NODE_POOL, "default")
        assert condition_status(pool.status.conditions, "NodeRegistrationHealthy") == "False"

    story(main)


@pytest.mark.parametrize("every_s", [0.05, 0.5, 5.0])
def test_f1_nodes_fenced_by_a_third_party_are_bought_at_most_twice_per_pod(every_s: float) -> None:
    """Quick, the pod never gets there; slow, it is driven out and its successor asks again."""

    async def main(world: World) -> None:
        await world.begin()
        await world.pool(disruption={"consolidateAfter": "Never"})
        await world.deployment("web", 1)
        taint = {"key": "third-party.example.com/fence", "effect": "NoExecute"}
        for _ in range(int(600 / every_s)):
            for node in await world.nodes():
                if all(found.key != taint["key"] for found in node.spec.taints):
                    kept = [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.spec.taints]
                    await world.api.patch(kinds.NODE, node.name, {"spec": {"taints": [*kept, taint]}})
            await asyncio.sleep(every_s)
        assert len(await world.claims()) == 2
        messages = [e.message for e in await world.events("FailedScheduling") if e.source.component == "karpenter"]
        assert any("machines were launched for it and did not" in message for message in messages)

    story(main)


def test_a_pod_whose_machine_went_to_a_sibling_starts_afresh() -> None:
    """The machine works; the pod only came too late for its room, and must not wait an hour for that."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    late, first = (pod(name, ownerReferences=[owner]) for name in ("late", "first"))
    stranger = pod("stranger")
    purchases = Purchases()
    for name in ("c1", "c2"):
        purchases.planned(name, [late])
        purchases.launched(name, 0.0)
    assert purchases.hold(late, 100.0) is not None
    purchases.planned("c3", [late])
    purchases.launched("c3", 2000.0)
    purchases.kept(stranger, "c3")
    assert purchases.hold(late, 2100.0) is not None, "what took another workload may still not take this one"
    purchases.kept(first, "c3")
    purchases.launched("c3", 2050.0)
    assert purchases.hold(late, 2100.0) is None
