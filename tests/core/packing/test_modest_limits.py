"""A limit is shared by many machines: one small pod must not use it up by being allowed on the largest machine."""

import pytest

from pykarpenter.cloud.catalog import kwok_catalog
from pykarpenter.core.packing import pack
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.snapshot import ClusterSnapshot
from tests.support.builders import make_pods, make_pool


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
