"""A limit is shared by many machines: one small pod must not use it up by being allowed on the largest machine."""

import pytest

from pykarpenter.api import labels
from pykarpenter.cloud.catalog import kwok_catalog
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.packing import pack
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.snapshot import ClusterSnapshot
from tests.core.packing.support import allowed, plan_of
from tests.support.builders import make_offering, make_pod, make_pods, make_pool, make_type


def snapshot(limits: dict[str, str], pods: int, cpu: str) -> ClusterSnapshot:
    pool = make_pool(limits=limits)
    wanted = tuple(make_pods(pods, "web", cpu=cpu, memory="256Mi"))
    return ClusterSnapshot(now=0.0, pods=wanted, node_pools=(pool,), instance_types={pool.name: kwok_catalog()})


@pytest.mark.promise("SCH-12.1")
def test_pods_that_fit_the_limit_are_placed_in_one_round():
    """With Karpenter's charge of the largest candidate 20 small pods under a limit of 200 cpu take many rounds."""
    plan = pack(snapshot({"cpu": "200"}, 120, "1"), PackingSettings(effort="off"))
    assert not plan.unschedulable
    assert sum(claim.max_capacity["cpu"] for claim in plan.claims) <= 200_000


@pytest.mark.promise("SCH-12.1")
def test_a_pod_that_needs_most_of_the_limit_still_gets_its_machine():
    """Modesty must not refuse what the limit allows."""
    plan = pack(snapshot({"cpu": "64"}, 1, "60"), PackingSettings(effort="off"))
    assert [claim.choice.instance_type.split("-")[1] for claim in plan.claims] == ["64x"]


@pytest.mark.promise("SCH-12.1")
def test_a_limit_on_nodes_is_spent_on_large_machines():
    """When machines are scarce, small ones would strand pods."""
    plan = pack(snapshot({"nodes": "2", "cpu": "1000"}, 100, "1"), PackingSettings(effort="off"))
    assert not plan.unschedulable
    assert len(plan.claims) <= 2


def types_of_two_sizes() -> list[InstanceType]:
    """One type with half its memory when bought as spot, and one that has 32Gi either way."""
    half = make_offering("zone-a", "spot", 2.1, capacity_override={"memory": 32 * 2**30})
    return [
        make_type("even", memory="32Gi", price=2.0, zones=["zone-a"]),
        make_type("uneven", memory="64Gi", offerings=[make_offering("zone-a", "on-demand", 3.0), half]),
    ]


@pytest.mark.promise("SCH-12.1")
@pytest.mark.parametrize("effort", ["off", "normal"])
def test_a_type_that_one_of_its_offerings_makes_too_large_for_the_limit_is_left_out(effort: str):
    """A claim names types: with on-demand allowed for another type, the provider could buy the large machine."""
    pool = make_pool(limits={"memory": "48Gi"})
    pod = make_pod(memory="20Gi")
    plan = plan_of([pod], PackingSettings(effort=effort), pools=[pool], types=types_of_two_sizes())
    assert [claim.instance_types for claim in plan.claims] == [("even",)]
    assert plan.claims[0].max_capacity["memory"] <= 48 * 2**30


@pytest.mark.promise("SCH-12.1")
def test_a_pod_that_asks_for_the_small_offering_gets_the_type_within_the_limit():
    """A machine counts against a limit as its offering makes it."""
    pool = make_pool(limits={"memory": "48Gi"})
    pod = make_pod(memory="20Gi", node_selector={labels.CAPACITY_TYPE: "spot"})
    plan = plan_of([pod], PackingSettings(effort="off"), pools=[pool], types=types_of_two_sizes())
    assert [claim.instance_types for claim in plan.claims] == [("even", "uneven")]
    assert allowed(plan, 0, labels.CAPACITY_TYPE) == ["spot"]
