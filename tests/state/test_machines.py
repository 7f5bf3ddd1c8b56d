"""How a Node and its NodeClaim become one machine, and what scheduling sees of it at each stage."""

from __future__ import annotations

import pytest

from pykarpenter.api import labels

from .world import claim, cluster, delete, node, observe, pod

STARTUP = {"key": "example.com/agent", "effect": "NoSchedule"}
USER = {"key": "team", "value": "a", "effect": "NoSchedule"}
EPHEMERAL = [
    {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
    {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
    {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
    {"key": "readiness.k8s.io/network", "effect": "NoSchedule"},
]


def taint_keys(view: object) -> list[str]:
    return [taint.key for taint in view.taints]  # type: ignore[attr-defined]


@pytest.mark.promise("API-5.1")
def test_node_and_claim_of_one_provider_id_are_one_machine() -> None:
    state = cluster(claim("c1", provider_id="kwok://n1"), node("n1", pool="pool"), node("other"))
    assert [(view.name, view.claim is not None, view.managed) for view in state.views()] == [
        ("n1", True, True),
        ("other", False, False),
    ]


@pytest.mark.promise("API-5.1")
@pytest.mark.parametrize("node_first", [True, False])
def test_the_order_in_which_node_and_claim_are_seen_does_not_matter(node_first: bool) -> None:
    """F24: events of different kinds come in any order."""
    objects = [node("n1", pool="pool"), claim("c1", provider_id="kwok://n1")]
    state = cluster(*(objects if node_first else objects[::-1]))
    (view,) = state.views()
    assert view.node is not None and view.claim is not None


@pytest.mark.promise("API-5.2")
def test_unmanaged_node_without_provider_id_is_known_by_its_name() -> None:
    (view,) = cluster(node("bare", provider_id="")).views()
    assert (view.name, view.managed, view.initialized) == ("bare", False, True)


@pytest.mark.promise("API-5.2")
def test_pool_node_without_provider_id_or_type_is_not_counted_yet() -> None:
    """It does not say what it is; its claim stands for it."""
    nameless = node("n1", pool="pool", provider_id="", stage="registered")
    assert cluster(nameless).views() == ()
    unlabelled = node("n1", pool="pool", stage="registered")
    del unlabelled.metadata.labels[labels.INSTANCE_TYPE]
    (view,) = cluster(claim("c1", provider_id="kwok://n1"), unlabelled).views()
    assert (view.name, view.node) == ("c1", None)


@pytest.mark.promise("API-5.3")
def test_before_registration_the_claim_describes_the_machine() -> None:
    made = claim("c1", provider_id="kwok://n1", taints=[USER], startupTaints=[STARTUP])
    made.metadata.labels["from"] = "claim"
    (view,) = cluster(made, node("n1", pool="pool", stage="joined", taints=EPHEMERAL)).views()
    assert (view.labels["from"], view.registered, view.initialized) == ("claim", False, False)
    assert taint_keys(view) == ["team"]


@pytest.mark.promise("API-5.3")
def test_before_initialization_startup_and_ephemeral_taints_are_hidden() -> None:
    made = claim("c1", provider_id="kwok://n1", startupTaints=[STARTUP])
    (view,) = cluster(made, node("n1", pool="pool", stage="registered", taints=[*EPHEMERAL, STARTUP, USER])).views()
    assert (view.registered, view.initialized, taint_keys(view)) == (True, False, ["team"])
    assert labels.ZONE in view.labels


@pytest.mark.promise("API-5.3")
def test_once_initialized_every_taint_counts() -> None:
    made = claim("c1", provider_id="kwok://n1", startupTaints=[STARTUP])
    (view,) = cluster(made, node("n1", pool="pool", taints=[EPHEMERAL[0], STARTUP, USER])).views()
    assert taint_keys(view) == [EPHEMERAL[0]["key"], STARTUP["key"], "team"]


@pytest.mark.promise("API-5.4")
def test_rebooting_machine_is_returning_capacity() -> None:
    """Pods displaced by a reboot must not buy nodes."""
    taints = [{"key": labels.REBOOTING_TAINT, "effect": "NoSchedule"}, EPHEMERAL[0], USER]
    made = claim("c1", provider_id="kwok://n1", conditions={"Rebooting": "True"})
    (view,) = cluster(made, node("n1", pool="pool", taints=taints)).views()
    assert (view.rebooting, taint_keys(view), view.marked_for_deletion) == (True, ["team"], False)


@pytest.mark.promise("API-5.3")
def test_before_initialization_gaps_in_allocatable_come_from_the_claim() -> None:
    made = claim("c1", provider_id="kwok://n1", capacity={"cpu": "4", "memory": "8Gi", "example.com/gpu": "2"})
    early = node("n1", pool="pool", stage="registered", cpu="3900m", memory="0", **{"example.com/gpu": "0"})
    state = cluster(made, early)
    assert state.views()[0].allocatable == {"cpu": 3900, "memory": 8 * 2**30, "example.com/gpu": 2}
    observe(state, node("n1", pool="pool", cpu="3900m", memory="0"))
    assert state.views()[0].allocatable == {"cpu": 3900, "memory": 0}


@pytest.mark.promise("API-5.5")
def test_unlaunched_claim_offers_what_it_was_asked_for_and_counts_for_the_most_it_may_be() -> None:
    made = claim(
        "c1",
        requests={"cpu": "2", "pods": "3"},
        promised='{"cpu": "16", "memory": "32Gi", "nodes": "1"}',
        requirements=[
            {"key": labels.ZONE, "operator": "In", "values": ["z1"]},
            {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]},
        ],
    )
    state = cluster(made)
    (view,) = state.views()
    assert view.allocatable == {"cpu": 2000, "pods": 3}
    assert state.usage("pool") == {"cpu": 16000, "memory": 32 * 2**30, "nodes": 1}
    assert state.pool_resources("pool") == {"nodes": 1}, "nothing that could be shown as in use yet"
    assert view.labels[labels.ZONE] == "z1" and labels.CAPACITY_TYPE not in view.labels


@pytest.mark.promise("API-5.6")
@pytest.mark.parametrize(
    "leaving",
    [
        [claim("c1", provider_id="kwok://n1", deleting=True), node("n1", pool="pool")],
        [claim("c1", provider_id="kwok://n1", conditions={"InstanceTerminating": "True"}), node("n1", pool="pool")],
        [node("n1", deleting=True)],
    ],
    ids=["claim-deleting", "instance-terminating", "node-deleting"],
)
def test_machine_that_is_leaving_is_marked_and_counts_for_nothing(leaving: list[object]) -> None:
    state = cluster(*leaving)
    assert state.views()[0].marked_for_deletion
    assert state.usage("pool") == {}


@pytest.mark.promise("API-5.6")
def test_explicit_mark_holds_until_it_is_taken_back() -> None:
    state = cluster(claim("c1", provider_id="kwok://n1"), node("n1", pool="pool"))
    state.mark_for_deletion("kwok://n1")
    state.mark_for_deletion("kwok://n1")
    assert state.views()[0].marked_for_deletion and state.pool_claims("pool").pending_disruption == {"c1"}
    state.unmark_for_deletion("kwok://n1")
    assert not state.views()[0].marked_for_deletion and state.pool_claims("pool").active == {"c1"}


def test_f47_two_nodes_of_one_provider_id_are_not_guessed_about() -> None:
    """Neither Node is taken for the claim's machine, and the claim offers no room of its own."""
    twins = [node("n1", pool="pool", provider_id="kwok://x"), node("n2", pool="pool", provider_id="kwok://x")]
    state = cluster(claim("c1", provider_id="kwok://x"), *twins)
    lone = state.view_of_claim("c1")
    assert lone is not None and lone.node is None and lone.allocatable == {}
    assert [view.name for view in state.views()] == ["c1", "n1", "n2"]
    delete(state, twins[1])
    assert [view.name for view in state.views()] == ["n1"]


def test_b35_claim_edited_to_anothers_provider_id_does_not_steal_its_node() -> None:
    state = cluster(claim("a", provider_id="kwok://n1"), node("n1", pool="pool"), claim("b", provider_id="kwok://n1"))
    assert [(view.name, view.claim.name) for view in state.views() if view.claim] == [("b", "b"), ("n1", "a")]
    assert state.view_of_claim("b").allocatable == {}  # type: ignore[union-attr]


def test_claims_of_another_provider_are_left_alone() -> None:
    """S10: their Nodes stay known, as nodes that nobody here manages."""
    foreign = claim("c1", provider_id="aws:///i-1", nodeClassRef={"group": "karpenter.k8s.aws", "kind": "EC2NodeClass"})
    theirs = node("n1", provider_id="aws:///i-1")
    (view,) = cluster(foreign, theirs).views()
    assert (view.name, view.claim, view.managed) == ("n1", None, False)


def test_pods_bound_before_their_node_is_seen_count_when_it_appears() -> None:
    """S12: a node is never taken for empty because it was seen late."""
    state = cluster(pod("p1", "n1"), pod("p2", "n1", phase="Succeeded"))
    observe(state, node("n1"))
    assert [found.name for found in state.views()[0].pods] == ["p1"]


@pytest.mark.promise("API-5.7")
def test_machine_about_which_nothing_changed_keeps_its_view() -> None:
    """Caches of the packing engine key on identity."""
    state = cluster(node("n1"), node("n2"), pod("p1", "n1"))
    before = {view.name: view for view in state.views()}
    observe(state, pod("p2", "n2"))
    after = {view.name: view for view in state.views()}
    assert after["n1"] is before["n1"] and after["n2"] is not before["n2"]


def test_node_that_goes_leaves_its_claim_behind() -> None:
    gone = node("n1", pool="pool")
    state = cluster(claim("c1", provider_id="kwok://n1"), gone)
    delete(state, gone)
    (view,) = state.views()
    assert (view.name, view.node, view.initialized) == ("c1", None, False)


def test_an_amount_that_cannot_be_read_is_no_room_and_stops_nobody() -> None:
    """A CRD's pattern accepts `1e1.5`; one such claim must not keep the others from being seen (L6)."""
    state = cluster(claim("odd", requests={"cpu": "1e1.5", "memory": "1Gi"}), claim("good", provider_id="kwok://n1"))
    odd, good = sorted(state.views(), key=lambda view: view.name, reverse=True)
    assert (odd.name, odd.allocatable) == ("odd", {"cpu": 0, "memory": 2**30})
    assert good.allocatable["cpu"] == 4000
