"""Pods that already have a machine coming are not planned twice, and are planned again when that machine fails them."""

from __future__ import annotations

import pytest

from pykarpenter.state.cluster import ClusterState

from .world import claim, cluster, delete, node, observe, pod, pool, promise


def waiting_cluster(*pods: str, cpu: str = "1") -> ClusterState:
    """A claim `c1` was created for the pods; it is not launched."""
    state = cluster(pool(), *(pod(name, cpu=cpu) for name in pods))
    state.reserve(promise("c1", cpu=4000), [pod(name, cpu=cpu) for name in pods])
    state.insert_claim(claim("c1", requests={"cpu": "4", "pods": "10"}))
    return state


def pending(state: ClusterState, now: float = 0.0) -> list[str]:
    return [found.name for found in state.snapshot(now).pods]


def on_machine(state: ClusterState, claim_name: str = "c1") -> list[str]:
    view = state.view_of_claim(claim_name)
    assert view is not None
    return [found.name for found in view.pods]


@pytest.mark.promise("API-5.12")
def test_planning_goes_on_while_claims_are_not_launched_and_buys_nothing_twice() -> None:
    """Karpenter pauses until every claim is launched; here the pods simply wait on their machine."""
    state = waiting_cluster("a", "b")
    observe(state, pod("c"))
    assert pending(state) == ["c"]
    assert on_machine(state) == ["a", "b"]


def test_bound_pod_no_longer_waits() -> None:
    state = waiting_cluster("a", "b")
    observe(state, node("elsewhere"), pod("a", "elsewhere"))
    assert on_machine(state) == ["b"] and state.expected_claim("default/a") is None


def test_pod_recreated_under_its_name_is_planned_anew() -> None:
    """A StatefulSet's pod keeps its name; the promise was made to another UID."""
    state = waiting_cluster("a")
    observe(state, pod("a", uid="second"))
    assert pending(state) == ["a"] and on_machine(state) == []


def test_pod_that_is_going_no_longer_waits() -> None:
    state = waiting_cluster("a", "b")
    observe(state, pod("a", deletionTimestamp="2026-01-01T00:00:00Z"))
    delete(state, pod("b"))
    assert on_machine(state) == []


@pytest.mark.parametrize("how", ["deleting", "deleted"])
def test_pods_of_a_claim_that_goes_are_planned_again(how: str) -> None:
    state = waiting_cluster("a")
    observe(state, claim("c1", deleting=True)) if how == "deleting" else delete(state, claim("c1"))
    assert pending(state) == ["a"]


def test_machine_smaller_than_planned_gives_pods_back() -> None:
    state = waiting_cluster("a", "b", "c", cpu="2")
    observe(state, claim("c1", provider_id="kwok://n1", capacity={"cpu": "4", "pods": "110"}))
    assert on_machine(state) == ["a", "b"] and pending(state) == ["c"]


def test_machine_filled_by_others_gives_pods_back() -> None:
    state = waiting_cluster("a", cpu="3")
    observe(state, claim("c1", provider_id="kwok://n1"), node("n1", pool="pool", stage="registered"))
    assert pending(state) == []
    observe(state, pod("intruder", "n1", cpu="2"))
    assert pending(state) == ["a"]


def test_scheduler_gets_a_while_after_the_machine_is_ready_then_pods_are_planned_again() -> None:
    state = waiting_cluster("a")
    observe(state, claim("c1", provider_id="kwok://n1"), node("n1", pool="pool"))
    assert pending(state, 100.0) == []
    assert pending(state, 109.0) == []
    assert pending(state, 110.0) == ["a"] and on_machine(state) == []


def test_pod_on_a_leaving_node_waits_for_its_replacement_without_being_counted_twice() -> None:
    """Until it is evicted it runs on the old node; its place on the new one is taken."""
    state = cluster(pool(), node("old", pool="pool"), claim("gone", provider_id="kwok://old"), pod("a", "old"))
    state.mark_for_deletion("kwok://old")
    state.reserve(promise("c1", cpu=4000), [pod("a", "old")])
    state.insert_claim(claim("c1"))
    assert [(view.name, [p.name for p in view.pods]) for view in state.snapshot(0.0).nodes] == [
        ("c1", ["a"]),
        ("old", []),
    ]
    observe(state, pod("a", "old", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert on_machine(state) == [], "its successor, a new pod, takes the place"


def test_disruption_that_is_called_off_leaves_pods_where_they_are() -> None:
    state = cluster(pool(), node("old", pool="pool"), claim("kept", provider_id="kwok://old"), pod("a", "old"))
    state.mark_for_deletion("kwok://old")
    state.reserve(promise("c1", cpu=4000), [pod("a", "old")])
    state.insert_claim(claim("c1"))
    state.unmark_for_deletion("kwok://old")
    assert [p.name for p in state.view_of_node("old").pods] == ["a"]  # type: ignore[union-attr]
    assert pending(state) == [] and on_machine(state) == []


def test_newer_plan_wins() -> None:
    state = waiting_cluster("a", "b")
    state.reserve(promise("c2", cpu=1000), [pod("a")])
    state.insert_claim(claim("c2"))
    assert on_machine(state) == ["b"] and on_machine(state, "c2") == ["a"]
