"""Which of several possible nodes is taken: the default scores of kube-scheduler."""

from __future__ import annotations

from collections import Counter

from pykarpenter.api.meta import LabelSelector
from tests.sim.scheduler.worlds import engine_with, node, place, pod, spread

ZONE = "topology.kubernetes.io/zone"


def test_least_allocated_node_wins():
    engine = engine_with(node("a"), node("b"))
    engine.set_bound_pod(pod("old", cpu="2", memory="8Gi", nodeName="a"))
    assert place(engine, pod("p")) == "b"


def test_soft_taint_outweighs_free_room():
    """PreferNoSchedule is a wish, but the heaviest one."""
    engine = engine_with(
        node("tainted", cpu="64", taints=[{"key": "k", "value": "", "effect": "PreferNoSchedule"}]), node("plain")
    )
    assert place(engine, pod("p")) == "plain"


def test_preferred_node_affinity_outweighs_free_room():
    engine = engine_with(node("big", cpu="64"), node("liked", labels={"disk": "ssd"}))
    wish = {
        "weight": 100,
        "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
    }
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    assert place(engine, pod("p", affinity=affinity)) == "liked"


def test_soft_spread_evens_out_zones():
    engine = engine_with(*(node(f"n{i}", cpu="64", zone="ab"[i % 2]) for i in range(4)))
    constraint = [spread(ZONE, when="ScheduleAnyway")]
    found = Counter(
        "ab"[int(place(engine, pod(f"p{i}", labels={"app": "web"}, topologySpreadConstraints=constraint))[1:]) % 2]
        for i in range(8)
    )
    assert found == {"a": 4, "b": 4}


def test_pods_without_constraints_spread_by_their_owner():
    """kube-scheduler's built-in preference: replicas of one set land on different nodes."""
    engine = engine_with(*(node(f"n{i}", cpu="64") for i in range(4)))
    engine.set_bound_pod(pod("big", cpu="16", memory="4Gi", nodeName="n3"))
    selector = LabelSelector(match_labels={"app": "web"})
    nodes = []
    for i in range(4):
        item = pod(f"p{i}", cpu="100m", labels={"app": "web"})
        found = engine.place(item, engine.shape_of(item, lambda _: selector))
        engine.assume(item, found)
        nodes.append(found)
    assert sorted(nodes) == ["n0", "n1", "n2", "n3"]


def test_preferred_anti_affinity_keeps_apart_when_it_can():
    engine = engine_with(node("a", cpu="4"), node("b", cpu="64"))
    engine.set_bound_pod(pod("db", labels={"app": "db"}, nodeName="b"))
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
    wish = {"weight": 100, "podAffinityTerm": term}
    affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    assert place(engine, pod("p", affinity=affinity)) == "a"


def test_s15_ties_follow_the_seed():
    """Two schedulers with one seed choose alike; another seed may choose otherwise."""

    def run(seed: int) -> list[str]:
        engine = engine_with(*(node(f"n{i}", cpu="64") for i in range(8)), seed=seed)
        return [place(engine, pod(f"p{i}", cpu="100m")) for i in range(20)]

    assert run(1) == run(1)
    assert any(run(1) != run(seed) for seed in range(2, 6))
