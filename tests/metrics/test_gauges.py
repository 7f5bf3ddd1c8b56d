"""Gauges of nodes, pools, pods and conditions follow the cluster, with Karpenter's names and labels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pykarpenter.api import kinds, labels
from pykarpenter.controllers.operator import Operator
from pykarpenter.runtime.feature_gates import FeatureGates
from pykarpenter.runtime.metric_catalog import CATALOG
from pykarpenter.runtime.metrics import MetricsRegistry
from pykarpenter.runtime.observer import observing
from pykarpenter.runtime.plugins import load_plugin
from pykarpenter.runtime.settings import Settings
from tests.controllers.world import World, story

Samples = dict[str, list[tuple[dict[str, str], float]]]


def scraped(metrics: MetricsRegistry) -> Samples:
    """What a Prometheus would read, by the real parser."""
    found: Samples = {}
    for family in text_string_to_metric_families(metrics.expose().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def watched(main: Callable[[World, MetricsRegistry], Awaitable[None]], **settings: Any) -> None:
    """A story with an operator whose metrics are shown, as `pykarpenter run` shows them."""
    chosen = Settings(**settings)

    async def run(world: World) -> None:
        await world.begin(operator=False)
        metrics = MetricsRegistry(world.clock)
        built = await load_plugin("kwok").build(world.operator_api, world.clock, {})
        with observing(metrics):
            operator = Operator(
                world.operator_api,
                built.provider,
                world.clock,
                chosen,
                identity="metered",
                background=built.background,
                metrics=metrics,
                observer=metrics,
                tables=metrics,
            )
        task = asyncio.create_task(operator.run())
        try:
            await main(world, metrics)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    story(run, settings=chosen)


async def provisioned(world: World) -> None:
    on_demand = {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}
    await world.pool(limits={"cpu": "100"}, requirements=[on_demand])
    await world.deployment("web", 3, cpu="500m")
    await world.until_running("web", 3)
    await asyncio.sleep(15)


def test_every_node_shows_its_room_and_what_is_asked_of_it() -> None:
    """Dashboards divide the one by the other."""

    async def main(world: World, metrics: MetricsRegistry) -> None:
        await provisioned(world)
        found = scraped(metrics)
        (node,) = await world.nodes()
        asked = {key["resource_type"]: value for key, value in found["karpenter_nodes_total_pod_requests"]}
        assert asked["cpu"] == 1.5 and asked["pods"] == 3
        room = {key["resource_type"]: (key, value) for key, value in found["karpenter_nodes_allocatable"]}
        shown, cpu = room["cpu"]
        assert cpu == float(node.status.allocatable["cpu"].removesuffix("m")) / 1000
        assert shown.items() >= {"node_name": node.name, "nodepool": "default", "managed": "true"}.items()
        assert shown["capacity_type"] == "on-demand" and shown["zone"] == node.metadata.labels[labels.ZONE]
        assert {"region", "instance_type", "arch", "os", "windows_build", "phase", "instance_size"} <= set(shown)
        overhead = {key["resource_type"]: value for key, value in found["karpenter_nodes_system_overhead"]}
        assert overhead["cpu"] == pytest.approx(0.1)
        ((_, age),) = found["karpenter_nodes_current_lifetime_seconds"]
        assert 15 <= age < 120
        used = {key["resource_type"]: value for key, value in found["karpenter_cluster_utilization_percent"]}
        assert used["cpu"] == pytest.approx(100 * 1.5 / cpu)

    watched(main)


def test_pools_show_limits_usage_and_price() -> None:
    """What the pool costs an hour is the question of the month."""

    async def main(world: World, metrics: MetricsRegistry) -> None:
        await provisioned(world)
        found = scraped(metrics)
        assert ({"resource_type": "cpu", "nodepool": "default"}, 100.0) in found["karpenter_nodepools_limit"]
        usage = {key["resource_type"]: value for key, value in found["karpenter_nodepools_usage"]}
        (node,) = await world.nodes()
        assert usage["cpu"] == float(node.status.capacity["cpu"]) and usage["nodes"] == 1
        ((_, cost),) = found["karpenter_nodepools_cost_total"]
        assert cost == pytest.approx(float(node.metadata.labels["eks-node-viewer/instance-price"]), abs=1e-5)
        await world.api.delete(kinds.NODE_POOL, "default")
        await world.scale("web", 0)
        await asyncio.sleep(120)
        assert "karpenter_nodepools_cost_total" not in scraped(metrics)

    watched(main)


def test_f38_gauges_of_a_pool_that_is_gone_are_shown_no_more() -> None:
    """Pools come and go for months; budgets and ages of gone ones mislead, and each would stay in memory."""

    async def main(world: World, metrics: MetricsRegistry) -> None:
        await provisioned(world)
        await world.pool("stays")
        await asyncio.sleep(60)
        assert {"default", "stays"} <= set(pools_in_gauges(metrics))
        await world.api.delete(kinds.NODE_POOL, "default")
        await world.scale("web", 0)
        await asyncio.sleep(300)
        shown = pools_in_gauges(metrics)
        assert "default" not in shown, shown["default"]
        assert "stays" in shown

    gates = FeatureGates(pod_deletion_cost_management=True)
    watched(main, feature_gates=gates)


def pools_in_gauges(metrics: MetricsRegistry) -> dict[str, list[str]]:
    """Pools that gauges have a label for, and which gauges these are."""
    found: dict[str, list[str]] = {}
    for family in text_string_to_metric_families(metrics.expose().decode()):
        for sample in family.samples if family.type == "gauge" else ():
            if sample.labels.get("nodepool"):
                found.setdefault(sample.labels["nodepool"], []).append(family.name)
    return found


def test_pods_show_where_they_are_and_how_long_they_wait() -> None:
    """A pod that waits is found by its name; one that runs no longer counts as waiting."""

    async def main(world: World, metrics: MetricsRegistry) -> None:
        await provisioned(world)
        await world.deployment("huge", 1, cpu="9999")
        await asyncio.sleep(30)
        found = scraped(metrics)
        states = {key["name"]: key for key, _ in found["karpenter_pods_state"]}
        running = next(key for name, key in states.items() if name.startswith("web"))
        assert running.items() >= {"phase": "Running", "ready": "true", "scheduled": "true", "managed": "true"}.items()
        assert running["owner"].startswith("ReplicaSet/web") and running["nodepool"] == "default"
        ((waiting, seconds),) = found["karpenter_pods_unbound_time_seconds"]
        assert waiting["name"].startswith("huge") and waiting["dynamic_resources"] == "false" and seconds >= 29
        for family in ("unstarted", "provisioning_unstarted", "provisioning_unbound"):
            assert len(found[f"karpenter_pods_{family}_time_seconds"]) == 1
        # It was decided: nowhere.
        assert "karpenter_pods_provisioning_scheduling_undecided_time_seconds" not in found
        for family in ("bound", "provisioning_bound", "provisioning_startup", "startup"):
            (count,) = (value for _, value in found[f"karpenter_pods_{family}_duration_seconds_count"])
            assert count == 3
        zones = {key["zone"]: value for key, value in found["karpenter_scheduler_pending_pods_by_effective_zone_count"]}
        assert zones["flexible"] == 1 and zones["none"] == 0 and "test-zone-a" in zones
        await world.scale("huge", 0)
        await asyncio.sleep(10)
        assert "karpenter_pods_unbound_time_seconds" not in scraped(metrics)

    watched(main)


def test_conditions_are_counted_timed_and_told() -> None:
    """One query finds every object that is stuck, and since when."""

    async def main(world: World, metrics: MetricsRegistry) -> None:
        await provisioned(world)
        found = scraped(metrics)
        (claim,) = await world.claims()
        shown = [key for key, _ in found["operator_nodeclaim_status_condition_count"] if key["type"] == "Initialized"]
        expected = {"name": claim.name, "status": "True", "karpenter_sh_nodepool": "default"}
        assert shown[0].items() >= {**expected, "karpenter_kwok_sh_kwoknodeclass": "default"}.items()
        old = [key for key, _ in found["operator_status_condition_count"] if key["type"] == "Initialized"]
        assert old[0].items() >= {"group": "karpenter.sh", "kind": "NodeClaim", "name": claim.name}.items()
        nodes = [key for key, _ in found["operator_node_status_condition_count"] if key["type"] == "Ready"]
        assert nodes[0]["karpenter_sh_initialized"] == "true"
        (of_class,) = found["operator_kwoknodeclass_status_condition_count"]
        assert of_class[0].items() >= {"name": "default", "type": "Ready", "status": "True"}.items()
        ages = [
            value
            for key, value in found["operator_nodeclaim_status_condition_current_status_seconds"]
            if key["type"] == "Initialized"
        ]
        assert 10 <= ages[0] < 120
        moved = found["operator_nodeclaim_status_condition_transition_seconds_count"]
        left = {"type": "Initialized", "status": "Unknown", "to_status": "True"}
        assert any(key.items() >= left.items() and value == 1 for key, value in moved)
        (event,) = await world.events("Initialized")
        assert "Status: Unknown -> True" in event.message and event.involved_object.kind == "NodeClaim"
        await world.scale("web", 0)
        await world.api.delete(kinds.NODE_CLAIM, claim.name)
        await asyncio.sleep(60)
        found = scraped(metrics)
        assert "operator_nodeclaim_status_condition_count" not in found
        assert [value for _, value in found["operator_nodeclaim_termination_duration_seconds_count"]] == [1]
        assert {event.involved_object.kind for event in await world.events("Finalized")} == {"NodeClaim", "Node"}

    watched(main)


def test_provider_calls_are_measured_with_the_controller_that_made_them() -> None:
    """A slow cloud shows in one graph."""

    async def main(world: World, metrics: MetricsRegistry) -> None:
        await provisioned(world)
        calls = {
            (key["controller"], key["method"])
            for key, _ in scraped(metrics)["karpenter_cloudprovider_duration_seconds_count"]
        }
        assert ("nodeclaim.lifecycle", "Create") in calls and ("provisioner", "GetInstanceTypes") in calls
        (claim,) = await world.claims()
        await world.scale("web", 0)
        await world.api.delete(kinds.NODE_CLAIM, claim.name)
        await asyncio.sleep(60)
        errors = scraped(metrics)["karpenter_cloudprovider_errors_total"]
        assert all(key["error"] == "NodeClaimNotFoundError" for key, _ in errors)

    watched(main)


def test_observability_can_be_switched_off() -> None:
    """At great scale some want counters and histograms only."""

    async def main(world: World, metrics: MetricsRegistry) -> None:
        await provisioned(world)
        found = scraped(metrics)
        gone = ("karpenter_pods_state", "karpenter_nodes_allocatable", "karpenter_nodepools_usage")
        assert not set(gone) & set(found) and not any(name.startswith("operator_") for name in found)
        assert "karpenter_nodeclaims_created_total" in found
        assert await world.events("Initialized") == []

    watched(main, disable_cluster_state_observability=True)


def test_every_exposed_name_is_in_the_catalogue() -> None:
    """With everything on, nothing comes out that the documentation does not know."""

    async def main(world: World, metrics: MetricsRegistry) -> None:
        await provisioned(world)
        families = {family.name for family in text_string_to_metric_families(metrics.expose().decode())}
        known = set(CATALOG) | {name.removesuffix("_total") for name in CATALOG}
        assert {name for name in families - known if not name.startswith("process_")} == set()

    watched(main, feature_gates=FeatureGates(capacity_buffer=True, node_overlay=True))
