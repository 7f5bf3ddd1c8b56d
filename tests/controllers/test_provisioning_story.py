"""From pending pods to running ones, in one process: the whole path, and what interrupts it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool_hash import nodepool_hash
from pykarpenter.kube.errors import ServerFault
from pykarpenter.runtime.settings import Settings
from pykarpenter.sim.api import Middleware, Request

from .world import World, is_initialized, is_true, story


@pytest.mark.promise("SCH-1.5", "SCH-13.1")
def test_deployment_gets_machines_and_runs() -> None:
    async def main(world: World) -> None:
        await world.begin()
        await world.pool()
        await world.deployment("web", 5, cpu="2")
        await world.until_running("web", 5)
        claims, nodes = await world.claims(), await world.nodes()
        assert claims and len(claims) == len(nodes)
        assert all(is_true(claim, "Initialized") for claim in claims) and all(map(is_initialized, nodes))
        assert {pod.spec.node_name for pod in await world.pods("web")} == {node.name for node in nodes}

    story(main)


@pytest.mark.promise("API-3.1.1", "API-3.1.2", "API-3.1.3")
def test_claim_carries_what_its_life_needs() -> None:
    async def main(world: World) -> None:
        await world.begin()
        taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
        startup = [{"key": "example.com/agent", "effect": "NoExecute"}]
        await world.pool(
            template={
                "taints": taints,
                "startupTaints": startup,
                "expireAfter": "24h",
                "terminationGracePeriod": "1h",
            },
            requirements=[{"key": "tier", "operator": "In", "values": ["gold"]}],
        )
        toleration = {"key": "team", "operator": "Exists"}
        await world.deployment("web", 1, tolerations=[toleration], nodeSelector={labels.CAPACITY_TYPE: "spot"})
        (claim,) = await world.until(world.claims)
        pool = await world.api.get(kinds.NODE_POOL, "default")
        meta, spec = claim.metadata, claim.spec
        assert meta.generate_name == "default-" and meta.name.startswith("default-")
        (owner,) = meta.owner_references
        assert (owner.kind, owner.name, owner.uid) == ("NodePool", "default", pool.uid) and owner.block_owner_deletion
        assert meta.labels.items() >= {labels.NODEPOOL: "default", "karpenter.kwok.sh/kwoknodeclass": "default"}.items()
        assert meta.labels["tier"] == "gold"
        assert meta.annotations[labels.NODEPOOL_HASH] == nodepool_hash(pool)
        assert meta.annotations[labels.NODEPOOL_HASH_VERSION] == "v3"
        assert meta.annotations[labels.MIN_VALUES_RELAXED] == "false"
        assert len(meta.annotations[labels.PLAN_ID]) == 16
        assert json.loads(meta.annotations[labels.PROMISED_CAPACITY])["nodes"] == "1"
        assert [taint.key for taint in spec.taints] == ["team"]
        assert [taint.key for taint in spec.startup_taints] == ["example.com/agent"]
        assert (spec.expire_after, spec.termination_grace_period) == ("24h", "1h")
        by_key = {item.key: item for item in spec.requirements}
        assert by_key[labels.INSTANCE_TYPE].operator == "In" and len(by_key[labels.INSTANCE_TYPE].values) > 1
        assert by_key[labels.CAPACITY_TYPE].values == ["spot"]
        assert labels.HOSTNAME not in by_key and labels.REGISTERED not in by_key
        assert spec.resources.requests["cpu"] == "1" and spec.resources.requests["pods"] == "1"

    story(main)


@pytest.mark.promise("SCH-18.1", "SCH-18.2")
def test_pods_hear_where_they_will_go_or_why_not() -> None:
    async def main(world: World) -> None:
        await world.begin()
        await world.pool()
        await world.deployment("web", 1)
        await world.deployment("huge", 1, cpu="1000")
        await world.until_running("web", 1)
        await asyncio.sleep(30.0)
        (claim,) = await world.claims()
        (nominated,) = await world.events("Nominated")
        assert nominated.message == f"Pod should schedule on: nodeclaim/{claim.name}"
        (failed,) = [event for event in await world.events("FailedScheduling") if event.source.component == "karpenter"]
        assert failed.message.startswith("Failed to schedule pod, ") and failed.type == "Warning"
        assert failed.involved_object.name.startswith("huge")
        assert failed.count == 1, "said once in five minutes, though planned every ten seconds"

    story(main)


@pytest.mark.promise("SCH-18.3")
def test_pool_that_allows_no_type_says_so() -> None:
    async def main(world: World) -> None:
        await world.begin()
        await world.pool(requirements=[{"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["unknown"]}])
        await world.deployment("web", 1)
        (event,) = await world.until(lambda: world.events("NoCompatibleInstanceTypes"))
        assert (event.involved_object.kind, event.involved_object.name) == ("NodePool", "default")

    story(main)


def test_f10_burst_near_the_limit_never_passes_it() -> None:
    """S1: at every moment, promises included."""

    async def main(world: World) -> None:
        await world.begin()
        await world.pool(limits={"cpu": "40", "nodes": "4"})
        await world.deployment("web", 100, cpu="1")
        for _ in range(600):
            claims = await world.claims()
            assert len(claims) <= 4
            used = sum(int(claim.status.capacity.get("cpu", 0)) for claim in claims)
            assert used <= 40
            await asyncio.sleep(0.1)
        assert await world.running("web") > 0
        (reason, *_) = await world.events("FailedScheduling")
        assert reason

    story(main)


class LosesAnswers(Middleware):
    """The first answers to creating NodeClaims are lost, though the server did create them."""

    def __init__(self, times: int) -> None:
        self.left = times

    async def after(self, request: Request, error: Any) -> None:
        if request.verb == "create" and request.kind is kinds.NODE_CLAIM and self.left:
            self.left -= 1
            raise ServerFault("connection reset")


def test_lost_answer_to_a_create_makes_no_second_claim() -> None:
    async def main(world: World) -> None:
        await world.begin()
        await world.pool()
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        assert len(await world.claims()) == 1

    story(main, faults=(LosesAnswers(2),))


def test_answers_that_never_come_leave_the_claim_found_and_the_promise_settled() -> None:
    """Five lost answers exhaust the retries; the claim exists all the same and is adopted, not doubled."""

    async def main(world: World) -> None:
        await world.begin()
        await world.pool(limits={"nodes": "1"})
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        assert len(await world.claims()) == 1
        assert world.operator is not None
        await asyncio.sleep(60.0)
        assert world.operator.state.ledger.open_promises() == []

    story(main, faults=(LosesAnswers(5),))


class RefusesClaims(Middleware):
    """Creating NodeClaims never reaches the server."""

    def __init__(self) -> None:
        self.active = True

    async def before(self, request: Request) -> None:
        if self.active and request.verb == "create" and request.kind is kinds.NODE_CLAIM:
            raise ServerFault("connection refused")


def test_promise_of_a_claim_that_was_never_made_is_given_back() -> None:
    fault = RefusesClaims()

    async def main(world: World) -> None:
        await world.begin()
        await world.pool(limits={"nodes": "1"})
        await world.deployment("web", 1)
        await asyncio.sleep(20.0)
        assert world.operator is not None and world.operator.state.ledger.open_promises()
        fault.active = False
        await world.until_running("web", 1, timeout_s=200.0)
        assert len(await world.claims()) == 1

    story(main, faults=(fault,))


@pytest.mark.parametrize("after_s", [1.3, 1.6, 2.0, 2.4, 3.0, 4.0, 6.0])
def test_l4_restart_in_the_middle_loses_and_doubles_nothing(after_s: float) -> None:
    async def main(world: World) -> None:
        await world.begin()
        await world.pool()
        await world.deployment("web", 3, cpu="3")
        await asyncio.sleep(after_s)
        await world.crash()
        world.start_operator()
        await world.until_running("web", 3, timeout_s=180.0)
        await asyncio.sleep(60.0)
        claims, nodes = await world.claims(), await world.nodes()
        assert len(claims) == len(nodes)
        assert {node.name for node in nodes} == {pod.spec.node_name for pod in await world.pods("web")}

    story(main)


def test_scale_down_and_claim_deletion_leave_nothing_behind() -> None:
    async def main(world: World) -> None:
        await world.begin()
        await world.pool()
        await world.deployment("web", 4)
        await world.until_running("web", 4)
        await world.scale("web", 0)
        for claim in await world.claims():
            await world.api.delete(kinds.NODE_CLAIM, claim.name)

        async def empty() -> bool:
            return not (await world.claims() or await world.nodes() or await world.pods())

        await world.until(empty)
        assert world.operator is not None and world.operator.state.views() == ()

    story(main)


def test_pods_of_a_node_that_is_being_removed_get_a_new_one() -> None:
    async def main(world: World) -> None:
        await world.begin()
        await world.pool()
        await world.deployment("web", 2)
        await world.until_running("web", 2)
        (first,) = await world.claims()
        await world.api.delete(kinds.NODE_CLAIM, first.name)

        async def moved() -> bool:
            return first.name not in {claim.name for claim in await world.claims()} and await world.running("web") == 2

        await world.until(moved)
        assert len(await world.claims()) == 1

    story(main)


def test_planning_goes_on_while_a_claim_cannot_be_launched() -> None:
    """One claim that hangs in launch holds nobody up, and its pods do not buy a second machine."""

    async def main(world: World) -> None:
        await world.begin()
        await world.pool()
        assert world.operator is not None
        inner = world.operator.context.provider._inner  # type: ignore[attr-defined]
        launch = inner.create

        async def hangs(claim: Any) -> Any:
            if not hangs.hung:  # type: ignore[attr-defined]
                hangs.hung = claim.name  # type: ignore[attr-defined]
            if claim.name == hangs.hung:  # type: ignore[attr-defined]
                await asyncio.sleep(90.0)
            return await launch(claim)

        hangs.hung = ""  # type: ignore[attr-defined]
        inner.create = hangs
        await world.deployment("slow", 1, nodeSelector={labels.ZONE: "test-zone-a"})
        await world.until(world.claims)
        await world.deployment("quick", 1, nodeSelector={labels.ZONE: "test-zone-b"})
        await world.until_running("quick", 1, timeout_s=30.0)
        assert len(await world.claims()) == 2
        await world.until_running("slow", 1, timeout_s=180.0)
        assert len(await world.claims()) == 2

    story(main)


def test_batching_follows_the_settings() -> None:
    async def main(world: World) -> None:
        await world.begin()
        await world.pool()
        await asyncio.sleep(5.0)
        started = world.clock.monotonic()
        await world.deployment("web", 1)
        await world.until(world.claims)
        assert 4.0 <= world.clock.monotonic() - started <= 5.5

    story(main, settings=Settings(batch_idle_duration=4.0))


def test_spread_holds_across_plans_while_machines_are_still_being_launched() -> None:
    """Pods that wait for machines which do not exist yet count in their zones, or later plans would crowd one."""

    async def main(world: World) -> None:
        await world.begin()
        await world.pool(disruption={"consolidateAfter": "Never"})
        assert world.operator is not None
        inner = world.operator.context.provider._inner  # type: ignore[attr-defined]
        launch = inner.create

        async def slow(claim: Any) -> Any:
            await asyncio.sleep(60.0)
            return await launch(claim)

        inner.create = slow
        spread = {
            "maxSkew": 1,
            "topologyKey": labels.ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
        await world.deployment("web", 1, topologySpreadConstraints=[spread])
        for replicas in (2, 3, 4, 6, 8):
            await asyncio.sleep(3.0)
            await world.scale("web", replicas)
        await world.until_running("web", 8, timeout_s=300.0)
        claims = await world.claims()
        zones = {node.name: node.metadata.labels[labels.ZONE] for node in await world.nodes()}
        placed = [zones[pod.spec.node_name] for pod in await world.pods("web")]
        assert sorted(placed.count(zone) for zone in set(placed)) == [2, 2, 2, 2]
        assert len(claims) <= 8

    story(main)


def test_the_price_of_a_plan_stands_beside_its_lower_bound() -> None:
    """An operator sees how far from the optimum the last purchase was."""

    async def main(world: World) -> None:
        await world.begin()
        await world.pool()
        await world.deployment("web", 5, cpu="2")
        await world.until_running("web", 5)
        price = world.metrics.gauges["pykarpenter_plan_price_per_hour"]
        bound = world.metrics.gauges["pykarpenter_plan_lower_bound_per_hour"]
        assert 0 < bound <= price

    story(main)
