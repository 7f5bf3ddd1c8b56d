"""Deletion costs steer ReplicaSets to the nodes that would go next."""

from __future__ import annotations

import pytest

from pykarpenter.api import labels
from pykarpenter.core.disruption.deletion_costs import GOING, WRITTEN, clean_up, plan_costs, rank_nodes
from tests.support.fleet import NOON, Fleet, pod


def written(name: str, value: int, **options):
    return pod(name, annotations={labels.POD_DELETION_COST: str(value), WRITTEN: str(value)}, **options)


def fleet_of(**pool) -> Fleet:
    fleet = Fleet()
    fleet.type("m", price=1.0)
    fleet.pool(**({"budgets": ["100%"]} | pool))
    return fleet


def values(fleet: Fleet) -> dict[str, int | None]:
    return {write.name: write.value for write in plan_costs(fleet.world()).writes}


@pytest.mark.promise("DIS-15.1.1", "DIS-15.1.2")
def test_going_first_then_drifted_then_cheap_to_move():
    """The lower the cost, the sooner a ReplicaSet gives the pod up."""
    fleet = fleet_of()
    fleet.node("going", marked_for_deletion=True, pods=[pod("g")])
    fleet.node("crowded", pods=[pod("c1"), pod("c2")])
    fleet.node("light", pods=[pod("l")])
    fleet.node("drifted", drifted=NOON - 60, pods=[pod("d")])
    found = values(fleet)
    assert found["g"] == GOING
    assert found["d"] < found["l"] < found["c1"] == found["c2"] < 0


@pytest.mark.promise("DIS-15.1.1", "DIS-15.1.3")
def test_nodes_that_cannot_go_get_no_rank():
    """Steering pods off them would gain nothing."""
    fleet = fleet_of()
    fleet.node("bare", pods=[pod("b1"), pod("b2", owner="")])
    fleet.node("protected", pods=[pod("p1"), pod("p2", annotations={labels.DO_NOT_DISRUPT: "true"})])
    fleet.node("unknown", type="gone", pods=[pod("u1")])
    assert values(fleet) == {}
    going, ranked, staying = rank_nodes(fleet.world())
    assert [v.name for v in staying] == ["bare", "protected", "unknown"]
    assert (going, ranked) == ([], [])


@pytest.mark.promise("DIS-15.1.1")
def test_static_pools_and_never_are_not_ranked():
    """Q16."""
    fleet = fleet_of(replicas=1)
    fleet.pool("never", after="Never")
    fleet.node("s", pods=[pod("s1")])
    fleet.node("n", pool="never", pods=[pod("n1")])
    assert values(fleet) == {}


@pytest.mark.promise("DIS-15.1.1", "DIS-15.1.2")
def test_budget_cuts_the_ranking():
    """What cannot go now needs no steering."""
    fleet = fleet_of(budgets=["1"])
    fleet.node("a", pods=[pod("a1")])
    fleet.node("b", pods=[pod("b1")])
    assert list(values(fleet)) == ["a1"]


@pytest.mark.promise("DIS-15.1.1", "DIS-17.16")
def test_users_own_values_are_never_touched():
    """Q16: own only what was written."""
    fleet = fleet_of()
    fleet.node("a", pods=[pod("mine", annotations={labels.POD_DELETION_COST: "7"}), pod("free")])
    fleet.node("stays", annotations={labels.DO_NOT_DISRUPT: "true"}, pods=[written("old", -5), pod("m2")])
    assert values(fleet) == {"free": -1000, "old": None}


@pytest.mark.promise("DIS-15.1.1", "DIS-17.16")
def test_one_node_more_does_not_rewrite_all_ranks():
    """Q16: ranks are sparse."""
    fleet = fleet_of()
    fleet.node("a", pods=[written("a1", -2000)])
    fleet.node("b", pods=[written("b1", -1000)])
    assert values(fleet) == {}
    fleet.node("ab", pods=[pod("new")])
    assert values(fleet) == {"new": -1001} or set(values(fleet)) == {"new"}


@pytest.mark.promise("DIS-15.1.1", "DIS-15.1.4", "DIS-17.16")
def test_pass_is_capped_and_says_what_waits():
    """Q16: the rest goes on next minute."""
    fleet = fleet_of()
    for index in range(55):
        fleet.node(f"n{index:02d}", pods=[pod(f"p{index:02d}")])
    plan = plan_costs(fleet.world())
    assert len(plan.writes) == 50
    assert plan.waiting == (("default", 5),)


@pytest.mark.promise("DIS-15.1.1", "DIS-17.16")
def test_gate_off_removes_only_our_values():
    """Q16: clean up."""
    fleet = fleet_of()
    user = pod("mine", annotations={labels.POD_DELETION_COST: "7"})
    fleet.node("a", pods=[written("old", -5), user])
    assert [(w.name, w.value) for w in clean_up(fleet.world().nodes)] == [("old", None)]
