"""Disruption at work in a whole cluster on virtual time: what goes, what stays, and what happens when it fails."""

from __future__ import annotations

import asyncio

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import find_condition
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.core.disruption.back_off import ANNOTATION
from pykarpenter.kube.errors import ServerFault
from pykarpenter.runtime import logs
from pykarpenter.runtime.feature_gates import FeatureGates
from pykarpenter.runtime.settings import Settings
from pykarpenter.sim.api import Middleware, Request
from pykarpenter.sim.faults.api import ApiFaults
from tests.controllers.disruption_steps import (
    SMALL,
    begin,
    drift_all,
    half_full,
    hold,
    make_sick,
    nodes_left,
    one_node_each,
    tainted,
)
from tests.controllers.world import World, is_true, story


@pytest.mark.promise("DIS-7.2", "DIS-10.1")
def test_empty_nodes_go_after_their_pause_and_within_budget() -> None:
    """S4: at most one of four at a time."""

    async def main(world: World) -> None:
        await begin(world, budgets=[{"nodes": "1"}])
        await one_node_each(world, 4)
        await world.scale("web", 0)
        worst = 0
        for _ in range(1200):
            gone = [n for n in await world.nodes() if n.is_deleting or tainted(n)]
            worst = max(worst, len(gone))
            if not await world.nodes():
                break
            await asyncio.sleep(0.5)
        assert await world.nodes() == []
        assert worst == 1
        assert {e.message for e in await world.events("DisruptionTerminating")} == {
            "Disrupting Node: Empty",
            "Disrupting NodeClaim: Empty",
        }

    story(main)


@pytest.mark.promise("DIS-8.1", "DIS-11.2")
def test_l7_under_used_nodes_are_brought_together_and_no_pod_is_lost() -> None:
    """The bill goes down, the pods stay."""

    async def main(world: World) -> None:
        await begin(world)
        await half_full(world, 3)
        await nodes_left(world, 1, 900)
        await world.until_running("web", 3)
        # Steady load ends in silence (L5).
        (before,) = await world.nodes()
        await hold(world, 1800)
        assert [n.name for n in await world.nodes()] == [before.name]

    story(main)


@pytest.mark.promise("DIS-8.3", "DIS-11.2")
def test_s8_oversized_node_is_replaced_only_after_its_replacement_is_ready() -> None:
    """The pods have somewhere to go before they must."""

    async def main(world: World) -> None:
        await begin(world, requirements=SMALL)
        await world.deployment("web", 3, cpu="1")
        await world.until_running("web", 3)
        (old,) = await world.claims()
        await world.scale("web", 1)

        async def replaced() -> list[NodeClaim]:
            return [c for c in await world.claims() if c.name != old.name]

        (new,) = await world.until(replaced)

        async def old_is_going() -> bool:
            found = [c for c in await world.claims() if c.name == old.name]
            return not found or found[0].is_deleting

        await world.until(old_is_going)
        (new,) = [c for c in await world.claims() if c.name == new.name]
        assert is_true(new, "Initialized")
        await nodes_left(world, 1)
        await world.until_running("web", 1)
        assert (await world.nodes())[0].metadata.labels[labels.INSTANCE_TYPE] == "c-2x-amd64-linux"

    story(main)


@pytest.mark.promise("DIS-7.4", "DIS-11.1", "DIS-11.2")
def test_s4_s8_drift_replaces_nodes_one_budget_at_a_time_replacements_first() -> None:
    """Capacity never falls below what runs."""

    async def main(world: World) -> None:
        await begin(world, budgets=[{"nodes": "1"}], consolidateAfter="Never")
        old = {n.name for n in await one_node_each(world, 3)}
        await drift_all(world)
        most = 0
        for _ in range(2400):
            nodes = await world.nodes()
            most = max(most, sum(tainted(n) or n.is_deleting for n in nodes))
            serving = [n for n in nodes if not n.is_deleting and n.metadata.labels.get(labels.INITIALIZED) == "true"]
            assert len(serving) >= 3
            if not old & {n.name for n in nodes}:
                break
            await asyncio.sleep(0.5)
        await world.until_running("web", 3)
        assert not old & {n.name for n in await world.nodes()}
        assert most == 1
        assert all(n.metadata.labels["generation"] == "two" for n in await world.nodes())

    story(main)


@pytest.mark.promise("DIS-11.3", "DIS-7.5", "DIS-18.7")
def test_acceptance_7_lost_replacement_puts_the_node_back_and_the_pool_waits() -> None:
    """No taint, no condition, no mark; the next attempt comes after the back-off."""

    async def main(world: World) -> None:
        await begin(world, consolidateAfter="Never")
        # Machines take a while to appear, so that the replacement can be caught.
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "60s"}})
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        (node,), (old,) = await world.nodes(), await world.claims()
        await drift_all(world)

        async def replacement() -> list[NodeClaim]:
            return [c for c in await world.claims() if c.name != old.name and is_true(c, "Launched")]

        (new,) = await world.until(replacement)
        assert tainted((await world.nodes())[0])
        await world.api.delete(kinds.NODE_CLAIM, new.name)

        async def back() -> bool:
            nodes = [n for n in await world.nodes() if n.name == node.name]
            return bool(nodes) and not tainted(nodes[0])

        await world.until(back, 30)
        claim = await world.api.get(kinds.NODE_CLAIM, old.name)
        assert not claim.is_deleting
        assert find_condition(claim.status.conditions, "DisruptionReason") is None
        pool = await world.api.get(kinds.NODE_POOL, "default")
        assert pool.metadata.annotations[ANNOTATION].startswith("1/")
        await hold(world, 20)
        assert len([c for c in await world.claims() if not c.is_deleting]) == 1
        # After the back-off it is tried again, and this time it works.
        await world.until(replacement, 120)

        async def done() -> bool:
            return old.name not in {c.name for c in await world.claims()}

        await world.until(done, 300)
        pool = await world.api.get(kinds.NODE_POOL, "default")
        assert ANNOTATION not in pool.metadata.annotations

    story(main)


@pytest.mark.promise("DIS-2.4")
def test_l4_crash_after_the_taint_leaves_no_node_out_of_service() -> None:
    """The next process finds no command behind the taint and removes it."""
    faults = ApiFaults()

    async def main(world: World) -> None:
        await begin(world, consolidateAfter="Never")
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        (old,) = await world.claims()
        crashed = asyncio.Event()

        def creates_replacement(request: Request) -> bool:
            return request.verb == "create" and request.kind is kinds.NODE_CLAIM

        faults.crash_when("launch", creates_replacement, lambda _: crashed.set())
        await drift_all(world)
        await asyncio.wait_for(crashed.wait(), 120)
        assert tainted((await world.nodes())[0])
        await world.crash()
        # Nothing may be disrupted any more when the successor starts: what is left is the taint alone.
        frozen = {"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}}
        await world.api.patch(kinds.NODE_POOL, "default", frozen)
        world.start_operator()

        async def healed() -> bool:
            claim = await world.api.get(kinds.NODE_CLAIM, old.name)
            marked = find_condition(claim.status.conditions, "DisruptionReason")
            return not tainted((await world.nodes())[0]) and marked is None

        await world.until(healed, 120)
        assert await world.running("web") == 1

    story(main, faults=(faults,))


def test_f11_f13_pod_that_lands_while_the_watch_lags_keeps_its_node() -> None:
    """S7: the live read decides, not the cache."""
    faults = ApiFaults()

    async def main(world: World) -> None:
        await begin(world)
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        (node,) = await world.nodes()
        await world.scale("web", 0)
        await hold(world, 8)
        # From now on the operator learns about pods a minute late.
        faults.lag_s["pods"] = 60.0
        await world.scale("web", 1)
        await world.until_running("web", 1)
        for _ in range(100):
            (found,) = [n for n in await world.nodes() if n.name == node.name]
            assert not found.is_deleting
            await asyncio.sleep(0.5)
        assert await world.running("web") == 1

    story(main, faults=(faults,))


def test_f12_s5_protection_added_during_the_pause_keeps_the_pod() -> None:
    """Even when nobody has told the operator yet."""
    faults = ApiFaults()

    async def main(world: World) -> None:
        await begin(world)
        await half_full(world, 2)
        faults.lag_s["pods"] = 60.0
        for pod in await world.pods("web"):
            patch = {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: "true"}}}
            await world.api.patch(kinds.POD, pod.name, patch, pod.namespace)
        kept = {pod.uid for pod in await world.pods("web") if not pod.is_deleting}
        await hold(world, 120)
        assert kept <= {pod.uid for pod in await world.pods("web")}

    story(main, faults=(faults,))


def test_s6_blocking_pdb_and_do_not_disrupt_hold_and_say_so() -> None:
    """Nothing is tainted, and the events name what is in the way."""

    async def main(world: World) -> None:
        await begin(world)
        await one_node_each(world, 2)
        pdb = {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 0}
        await world.api.create(kinds.PDB, {"metadata": {"name": "web"}, "spec": pdb}, "default")
        await drift_all(world)
        before = {n.name for n in await world.nodes()}
        for _ in range(120):
            assert not any(tainted(n) for n in await world.nodes())
            await asyncio.sleep(1)
        assert {n.name for n in await world.nodes()} == before
        assert any("PDB prevents pod evictions" in e.message for e in await world.events("DisruptionBlocked"))

    story(main)


def test_f41_window_of_zero_holds_and_then_opens() -> None:
    """A freeze computed from now."""

    async def main(world: World) -> None:
        minute = int(world.clock.now() // 60) % 60
        freeze = {"nodes": "0", "schedule": f"{minute} * * * *", "duration": "10m"}
        await begin(world, budgets=[{"nodes": "100%"}, freeze])
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        await world.scale("web", 0)
        await hold(world, 8 * 60)
        assert len(await world.nodes()) == 1
        await nodes_left(world, 0, 300)

    story(main)


class Writes(Middleware):
    """Remembers every write that is sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def before(self, request: Request) -> None:
        if request.verb not in ("get", "list", "watch"):
            self.sent.append(f"{request.verb} {request.kind.kind} {request.name}")


def test_dry_run_decides_and_reports_but_sends_no_write() -> None:
    """No taint, no condition, no claim, no event, no lease."""
    writes = Writes()
    lines: list[str] = []

    async def main(world: World) -> None:
        await begin(world)
        await world.pool("other")
        await one_node_each(world, 2)
        await world.crash()
        world.settings = Settings(dry_run=True)
        writes.sent.clear()
        logs.configure("info", clock=world.clock, write=lines.append)
        world.start_operator()
        await world.scale("web", 0)
        await world.deployment("more", 9, cpu="3", nodeSelector={labels.NODEPOOL: "other"})
        await hold(world, 300)
        assert writes.sent == []
        assert len(await world.nodes()) == 2

    try:
        story(main, faults=(writes,))
    finally:
        logs.silence()
    assert any("would disrupt node(s), but this is a dry run" in line for line in lines)
    assert any("would create nodeclaim, but this is a dry run" in line for line in lines)


@pytest.mark.promise("DIS-7.1.6", "DIS-11.4", "DIS-4.3")
def test_unhealthy_node_is_repaired_replacement_first_with_its_bound() -> None:
    """S8 for broken machines too; the stamp comes before the deletion."""
    gates = FeatureGates(node_repair=True)

    async def main(world: World) -> None:
        await begin(world, consolidateAfter="Never")
        await one_node_each(world, 5)
        sick = (await world.nodes())[0]
        await make_sick(world, sick.name, "KWOKUnhealthy", world.clock.now())
        at_deletion: list[NodeClaim] = []
        for _ in range(600):
            for claim in await world.claims():
                if claim.status.node_name == sick.name and claim.is_deleting:
                    at_deletion.append(claim)
            if sick.name not in {n.name for n in await world.nodes()}:
                break
            serving = [n for n in await world.nodes() if n.metadata.labels.get(labels.INITIALIZED) == "true"]
            if at_deletion:
                assert len(serving) >= 5
            await asyncio.sleep(0.5)
        assert labels.TERMINATION_TIMESTAMP in at_deletion[0].metadata.annotations
        assert find_condition(at_deletion[0].status.conditions, "DisruptionReason").reason == "Unhealthy"
        await world.until_running("web", 5)

    story(main, settings=Settings(feature_gates=gates))


@pytest.mark.promise("DIS-7.1.3")
def test_f28_breaker_freezes_repair_above_a_fifth() -> None:
    """Two of five broken at once: somebody must look."""
    gates = FeatureGates(node_repair=True)

    async def main(world: World) -> None:
        await begin(world, consolidateAfter="Never")
        nodes = await one_node_each(world, 5)
        for node in nodes[:2]:
            await make_sick(world, node.name, "KWOKUnhealthy", world.clock.now())
        await hold(world, 300)
        assert {n.name for n in await world.nodes()} == {n.name for n in nodes}
        assert {e.involved_object.kind for e in await world.events("NodeRepairBlocked")} == {
            "Node",
            "NodeClaim",
            "NodePool",
        }

    story(main, settings=Settings(feature_gates=gates))


@pytest.mark.promise("DIS-15.1.1", "DIS-17.16")
def test_deletion_costs_steer_a_replica_set_and_are_cleaned_up_when_the_gate_goes_off() -> None:
    """The pods of the node that goes next get the lowest cost; users' own values stay."""

    async def main(world: World) -> None:
        await begin(world, budgets=[{"nodes": "1"}], consolidateAfter="1h")
        await one_node_each(world, 3)
        own = (await world.pods("web"))[0]
        patch = {"metadata": {"annotations": {labels.POD_DELETION_COST: "7"}}}
        await world.api.patch(kinds.POD, own.name, patch, own.namespace)

        async def costs() -> dict[str, str]:
            found = {p.name: p.metadata.annotations.get(labels.POD_DELETION_COST) for p in await world.pods("web")}
            return {name: value for name, value in found.items() if value is not None}

        async def ranked() -> bool:
            return len(await costs()) == 2

        await world.until(ranked, 120)
        assert (await costs())[own.name] == "7"
        await world.crash()
        world.settings = Settings()
        world.start_operator()

        async def clean() -> bool:
            return await costs() == {own.name: "7"}

        await world.until(clean, 200)

    story(main, settings=Settings(feature_gates=FeatureGates(pod_deletion_cost_management=True)))


@pytest.mark.promise("DIS-11.5")
def test_f27_replacement_that_never_comes_is_given_up_after_ten_minutes() -> None:
    """The old node serves on, untainted, long before the claim's own registration time-out."""

    async def main(world: World) -> None:
        await begin(world, consolidateAfter="Never")
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        (node,) = await world.nodes()
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "2h"}})
        started = world.clock.now()
        await drift_all(world)

        async def is_tainted() -> bool:
            return tainted(await world.api.get(kinds.NODE, node.name))

        async def is_back() -> bool:
            return not await is_tainted()

        await world.until(is_tainted, 60)
        await world.until(is_back, 900)
        assert 600 <= world.clock.now() - started <= 640
        assert await world.running("web") == 1

    story(main)


class DeleteFails(Middleware):
    """The second deletion of a claim fails once."""

    def __init__(self) -> None:
        self.deletes = 0

    async def before(self, request: Request) -> None:
        if request.verb == "delete" and request.kind is kinds.NODE_CLAIM:
            self.deletes += 1
            if self.deletes == 2:
                raise ServerFault("etcdserver: request timed out")


@pytest.mark.promise("DIS-11.6", "DIS-17.15")
def test_deletion_that_is_retried_is_counted_once() -> None:
    """Q15: the counters tell how many machines went, not how many requests were sent."""
    fails = DeleteFails()

    async def main(world: World) -> None:
        await begin(world)
        await one_node_each(world, 3)
        await world.scale("web", 0)
        await nodes_left(world, 0)
        counted = [
            amount
            for name, labels_, amount in world.metrics.counts
            if name == "karpenter_nodeclaims_disrupted_total" and labels_["reason"] == "empty"
        ]
        assert sum(counted) == 3
        assert fails.deletes >= 4

    story(main, faults=(fails,))
