"""Pods go to machines that exist, then to planned ones, then to new ones, within resources, labels and taints."""

from __future__ import annotations

import pytest

from pykarpenter.api import labels
from pykarpenter.api.nodes import Taint
from pykarpenter.core.reasons import Why
from tests.core.packing.support import allowed, on_nodes, per_claim, plan_of
from tests.support.builders import (
    bound_pod,
    daemon_owner,
    expression,
    make_daemon_set,
    make_node,
    make_pod,
    make_pods,
    make_pool,
    make_type,
    tolerate,
)


def test_pods_share_one_machine_when_they_fit() -> None:
    """Three cores on a four-core machine are one machine."""
    plan = plan_of(make_pods(3))
    assert per_claim(plan) == [3]
    assert plan.claims[0].choice.instance_type == "small"
    assert plan.price_per_hour == pytest.approx(0.7)


@pytest.mark.promise("SCH-10.1")
def test_existing_nodes_come_before_new_machines() -> None:
    """Free room costs nothing."""
    plan = plan_of(make_pods(5), nodes=[make_node()])
    assert len(on_nodes(plan)["node-1"]) == 4
    assert per_claim(plan) == [1]


@pytest.mark.promise("SCH-10.1")
def test_initialized_nodes_come_first_then_names() -> None:
    """The order of machines is fixed."""
    nodes = [make_node("a", initialized=False), make_node("c"), make_node("b")]
    assert on_nodes(plan_of(make_pods(1), nodes=nodes)) == {"b": ["default/pod-0000"]}


def test_bound_pods_take_room() -> None:
    """What runs on a node is not free."""
    node = make_node(pods=[bound_pod("busy", "node-1", cpu="3500m")])
    assert on_nodes(plan_of([make_pod()], nodes=[node])) == {}


def test_nodes_marked_for_deletion_are_no_targets_and_their_pods_move() -> None:
    """Replacement capacity is planned before the old node is gone."""
    node = make_node(pods=[bound_pod("mover", "node-1")], marked_for_deletion=True)
    plan = plan_of([], nodes=[node])
    assert plan.claims[0].pods == ("default/mover",)


@pytest.mark.promise("SCH-3.1")
def test_heavier_pools_come_first_then_names_descending() -> None:
    """Weight is the user's order of preference."""
    pools = [make_pool("a"), make_pool("b"), make_pool("heavy", weight=10)]
    assert plan_of([make_pod()], pools=pools).claims[0].node_pool == "heavy"
    assert plan_of([make_pod()], pools=pools[:2]).claims[0].node_pool == "b"


@pytest.mark.promise("SCH-6.1")
def test_template_taints_must_be_tolerated() -> None:
    """A tainted pool is for those who ask for it."""
    pools = [make_pool(taints=[Taint(key="gpu", value="yes", effect="NoSchedule")])]
    plan = plan_of([make_pod("no"), make_pod("yes", tolerations=[tolerate("gpu")])], pools=pools)
    assert [claim.pods for claim in plan.claims] == [("default/yes",)]
    assert plan.unschedulable["default/no"].pools[0].why is Why.TAINT


def test_startup_taints_do_not_keep_pods_away() -> None:
    """They are gone by the time the node is ready."""
    pools = [make_pool(startup_taints=[Taint(key="boot", effect="NoSchedule")])]
    assert len(plan_of([make_pod()], pools=pools).claims) == 1


def test_node_selector_narrows_the_claim() -> None:
    """The claim says what its pods need."""
    plan = plan_of([make_pod(node_selector={labels.ZONE: "zone-b"})])
    assert plan.claims[0].choice.zone == "zone-b"
    assert allowed(plan, 0, labels.ZONE) == ["zone-b"]


@pytest.mark.promise("SCH-4.5")
def test_custom_labels_must_be_declared_by_the_pool() -> None:
    """Nothing is known of a label that no pool mentions."""
    pod = make_pod(node_selector={"team": "red"})
    refused = plan_of([pod]).unschedulable["default/pod"]
    assert refused.pools[0].why is Why.UNDEFINED_LABEL
    declared = plan_of([pod], pools=[make_pool(requirements=[expression("team", "Exists")])])
    assert declared.claims[0].labels["team"] == "red"


def test_daemon_sets_take_their_share_of_new_machines() -> None:
    """The machine must hold the daemons too."""
    daemons = (make_daemon_set(cpu="1500m"),)
    plan = plan_of(make_pods(4), daemon_sets=daemons)
    assert per_claim(plan) == [2, 2]
    assert plan.claims[0].requests["cpu"] == 3500


def test_daemons_not_yet_on_a_node_are_reckoned_with() -> None:
    """The rest of a node belongs to the daemons that will still come."""
    daemons = (make_daemon_set(cpu="3500m"),)
    assert on_nodes(plan_of([make_pod()], nodes=[make_node()], daemon_sets=daemons)) == {}
    there = make_node(cpu="8", pods=[bound_pod("agent-x", "node-1", cpu="3500m", owner=daemon_owner())])
    assert on_nodes(plan_of([make_pod()], nodes=[there], daemon_sets=daemons)) == {"node-1": ["default/pod"]}


@pytest.mark.promise("SCH-12.1")
def test_limits_leave_the_rest_pending() -> None:
    """A limit is never passed, and as many pods as fit under it get a place."""
    plan = plan_of(make_pods(12), pools=[make_pool(limits={"cpu": "8"})])
    assert per_claim(plan) == [4, 4]
    assert len(plan.unschedulable) == 4
    assert plan.unschedulable["default/pod-0011"].pools[0].why is Why.LIMITS


@pytest.mark.promise("SCH-20.1")
def test_node_limits_count_planned_machines() -> None:
    """Two machines allowed are two, however many pods wait."""
    plan = plan_of(make_pods(12), pools=[make_pool(limits={"nodes": "2"})])
    assert per_claim(plan) == [4, 4]


def test_every_fitting_type_is_listed_cheapest_first() -> None:
    """Flexibility is kept: the provider may launch any of them."""
    types = [make_type("dear", price=3), make_type("cheap", price=1), make_type("tiny", cpu="1", price=0.1)]
    plan = plan_of(make_pods(1, cpu="2"), types=types)
    assert plan.claims[0].instance_types == ("cheap", "dear")
    assert allowed(plan, 0, labels.INSTANCE_TYPE) == ["cheap", "dear"]


def test_equal_input_gives_an_equal_plan() -> None:
    """Order of input does not matter either."""
    pods = make_pods(40) + make_pods(30, "big", cpu="2")
    assert plan_of(pods) == plan_of(pods)
    assert plan_of(pods).claims == plan_of(list(reversed(pods))).claims


def test_pods_that_nobody_tried_yet_are_left_alone() -> None:
    """Only pods that the scheduler gave up on need machines."""
    pod = make_pod()
    gated = type(pod)(metadata=pod.metadata, spec=pod.spec)
    assert plan_of([gated]).claims == ()


def test_no_pools_is_a_reason_of_its_own() -> None:
    """The user must know that there is nothing to launch from."""
    plan = plan_of([make_pod()], pools=[])
    assert plan.unschedulable["default/pod"].why is Why.NO_NODE_POOLS
    assert "no dynamic nodepools found" in plan.unschedulable["default/pod"].text()
