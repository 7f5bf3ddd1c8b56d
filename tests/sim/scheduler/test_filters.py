"""Where a pod may go: each default filter of kube-scheduler and its words."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.scheduler.worlds import engine_with, message, node, place, pod, spread

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def test_refusal_counts_nodes_by_their_first_reason():
    """The message users know from kubectl describe, reasons sorted as text."""
    engine = engine_with(
        node("full", cpu="1"),
        node("tainted", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}]),
        node("cordoned", unschedulable=True),
    )
    assert message(place(engine, pod("p", cpu="2"))) == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable."
    )


def test_every_short_resource_of_a_node_is_named():
    """NodeResourcesFit reports all resources that are short, not only the first."""
    engine = engine_with(node("n", cpu="1", memory="1Gi"))
    refusal = message(place(engine, pod("p", cpu="2", memory="2Gi")))
    assert refusal == "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."


def test_a_node_too_small_is_not_also_blamed_for_the_spread():
    """Filters after the one that failed do not see the node, so nobody is told to loosen a spread that is fine."""
    engine = engine_with(node("n", cpu="1"))
    refusal = message(place(engine, pod("p", cpu="2", topologySpreadConstraints=[spread("rack")])))
    assert refusal == "0/1 nodes are available: 1 Insufficient cpu."


def test_no_nodes_has_its_own_message():
    assert message(place(engine_with(), pod("p"))) == "no nodes available to schedule pods"


def test_pods_limit_is_called_too_many_pods():
    engine = engine_with(node("n", allocatable={"pods": "1"}))
    assert place(engine, pod("one")) == "n"
    assert "1 Too many pods" in message(place(engine, pod("two")))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"key": "size", "operator": "In", "values": ["4"]}, "big"),
        ({"key": "size", "operator": "NotIn", "values": ["2", "4"]}, "bare"),
        ({"key": "size", "operator": "Gt", "values": ["3"]}, "big"),
        ({"key": "size", "operator": "Lt", "values": ["3"]}, "small"),
        ({"key": "size", "operator": "DoesNotExist"}, "bare"),
    ],
)
def test_node_affinity_operators(expression, expected):
    engine = engine_with(node("big", labels={"size": "4"}), node("small", labels={"size": "2"}), node("bare"))
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert place(engine, pod("p", affinity=affinity)) == expected


def test_daemon_pods_are_pinned_by_node_name():
    """DaemonSet pods choose their node by the field metadata.name, not by a label."""
    engine = engine_with(node("a"), node("b"))
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
    required = {"nodeSelectorTerms": [field]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert place(engine, pod("p", affinity=affinity)) == "b"


def test_cordoned_node_takes_pods_that_tolerate_it():
    engine = engine_with(node("n", unschedulable=True))
    tolerations = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]
    assert place(engine, pod("p", tolerations=tolerations)) == "n"


def test_host_ports_clash_on_the_same_address_only():
    engine = engine_with(node("n"))
    assert place(engine, pod("one", ports=[{"hostPort": 80, "hostIP": "10.0.0.1"}])) == "n"
    assert place(engine, pod("two", ports=[{"hostPort": 80, "hostIP": "10.0.0.2"}])) == "n"
    refusal = message(place(engine, pod("three", ports=[{"hostPort": 80}])))
    assert "didn't have free ports" in refusal


def test_hard_spread_keeps_zones_within_skew():
    """Ten pods over three zones never differ by more than one."""
    engine = engine_with(*(node(f"n{i}", cpu="32", zone="abc"[i % 3]) for i in range(6)))
    zones = Counter()
    for i in range(10):
        found = place(engine, pod(f"p{i}", labels={"app": "web"}, topologySpreadConstraints=[spread(ZONE)]))
        zones["abc"[int(found[1:]) % 3]] += 1
        assert max(zones[z] for z in "abc") - min(zones[z] for z in "abc") <= 1


def test_spread_waits_for_the_smallest_zone():
    engine = engine_with(node("a", cpu="8", zone="a"), node("b", cpu="1", zone="b"))
    constraint = [spread(ZONE)]
    pods = [pod(f"p{i}", labels={"app": "web"}, topologySpreadConstraints=constraint) for i in range(4)]
    assert {place(engine, pods[0]), place(engine, pods[1])} == {"a", "b"}
    assert place(engine, pods[2]) == "a"
    assert "didn't match pod topology spread constraints" in message(place(engine, pods[3]))


def test_min_domains_counts_missing_zones_as_empty():
    engine = engine_with(node("a", cpu="8", zone="a"))
    constraint = [spread(ZONE, minDomains=2)]
    assert place(engine, pod("p0", labels={"app": "web"}, topologySpreadConstraints=constraint)) == "a"
    refusal = message(place(engine, pod("p1", labels={"app": "web"}, topologySpreadConstraints=constraint)))
    assert "didn't match pod topology spread constraints" in refusal


def test_match_label_keys_spread_each_revision_alone():
    """Pods of an older template do not count against the new ones."""
    engine = engine_with(node("a", zone="a"), node("b", zone="b"))
    constraint = [spread(ZONE, matchLabelKeys=["rev"])]
    for i in range(2):
        old = pod(f"old{i}", labels={"app": "web", "rev": "1"}, nodeSelector={HOST: "a"})
        assert place(engine, old) == "a"
    found = {
        place(engine, pod(f"new{i}", labels={"app": "web", "rev": "2"}, topologySpreadConstraints=constraint))
        for i in range(2)
    }
    assert found == {"a", "b"}


def test_leaving_pods_do_not_count_for_spread():
    engine = engine_with(node("a", zone="a"), node("b", cpu="0", zone="b"))
    leaving = pod("old", labels={"app": "web"}, deleting=True, nodeName="a")
    engine.set_bound_pod(leaving)
    assert place(engine, pod("new", labels={"app": "web"}, topologySpreadConstraints=[spread(ZONE)])) == "a"


def _affinity(kind: str, key: str, app: str = "web") -> dict:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_anti_affinity_holds_in_both_directions():
    """A pod without rules may not join one that refuses its company."""
    engine = engine_with(node("a"), node("b"))
    loner = pod("loner", labels={"app": "db"}, affinity=_affinity("podAntiAffinity", HOST))
    assert place(engine, pod("w", labels={"app": "web"}, nodeSelector={HOST: "a"})) == "a"
    assert place(engine, loner) == "b"
    refusal = message(place(engine, pod("w2", labels={"app": "web"}, nodeSelector={HOST: "b"})))
    assert "didn't satisfy existing pods anti-affinity rules" in refusal


def test_first_pod_of_a_self_affine_group_goes_anywhere_and_the_rest_follow():
    engine = engine_with(node("a", zone="a"), node("b", zone="b"), node("b2", zone="b"))
    rules = _affinity("podAffinity", ZONE)
    first = place(engine, pod("p0", labels={"app": "web"}, affinity=rules))
    zone = "a" if first == "a" else "b"
    for i in range(1, 4):
        found = place(engine, pod(f"p{i}", labels={"app": "web"}, affinity=rules))
        assert ("a" if found == "a" else "b") == zone


def test_affinity_to_nobody_is_refused():
    engine = engine_with(node("a"))
    rules = _affinity("podAffinity", ZONE, app="cache")
    assert "didn't match pod affinity rules" in message(place(engine, pod("p", labels={"app": "w"}, affinity=rules)))


def test_a_refused_shape_is_tried_again_only_when_supply_changes():
    """Ten thousand equal pods must cost one attempt; a node that appears must end the wait."""
    engine = engine_with(node("n", cpu="1"))
    assert "Insufficient cpu" in message(place(engine, pod("p", cpu="2")))
    calls = []
    engine.passing = lambda *_: calls.append(1)  # type: ignore[method-assign]
    assert "Insufficient cpu" in message(place(engine, pod("q", cpu="2")))
    assert not calls
    del engine.passing
    engine.set_node(node("big", cpu="8"))
    assert place(engine, pod("q", cpu="2")) == "big"


def test_removed_node_leaves_no_trace_in_a_reused_slot():
    engine = engine_with(node("old", cpu="2", labels={"x": "1"}))
    bound = pod("p", cpu="2", labels={"app": "web"}, nodeName="old")
    engine.set_bound_pod(bound)
    engine.remove_node("old")
    engine.set_node(node("new", cpu="2"))
    assert place(engine, pod("q", cpu="2", labels={"app": "web"}, topologySpreadConstraints=[spread(HOST)])) == "new"
