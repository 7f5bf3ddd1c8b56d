"""A simulated cluster lives for weeks of simulated time: its scheduler keeps what pods still ask for (F38)."""

from __future__ import annotations

from pykarpenter.sim.scheduler import engine as scheduling
from tests.sim.scheduler.worlds import engine_with, node, place, pod, spread

HOST = "kubernetes.io/hostname"


def test_f38_shapes_and_terms_of_jobs_that_are_gone_are_let_go(monkeypatch):
    """Each Job brings labels and rules of its own, and none of them comes again."""
    monkeypatch.setattr(scheduling, "_KEPT_SHAPES", 20)
    engine = engine_with(*(node(f"n{index}") for index in range(3)))
    for number in range(200):
        own = f"job-{number}"
        apart = {"labelSelector": {"matchLabels": {"app": own}}, "topologyKey": HOST}
        job = pod(
            own,
            labels={"app": own},
            topologySpreadConstraints=[spread(HOST, app=own)],
            affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        )
        assert isinstance(place(engine, job), str)
        engine.remove_pod(job)
        occupancy = engine.occupancy
        assert len(engine._shapes) <= 40
        assert len(occupancy._counts) + len(occupancy._held) + len(occupancy._matching) <= 150


def test_f38_rules_of_pods_that_stay_are_kept_however_many_come_and_go(monkeypatch):
    """A database that keeps its like away does so after weeks, too."""
    monkeypatch.setattr(scheduling, "_KEPT_SHAPES", 5)
    engine = engine_with(node("n0"), node("n1"))
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": HOST}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    first = place(engine, pod("db-0", labels={"app": "db"}, affinity=rule))
    for number in range(50):
        job = pod(f"job-{number}", labels={"job": str(number)})
        assert isinstance(place(engine, job), str)
        engine.remove_pod(job)
    assert place(engine, pod("other", labels={"app": "db"})) in {"n0", "n1"} - {first}


def test_f38_pods_of_a_node_that_never_came_back_leave_nothing_behind():
    """Nodes have new names each time."""
    engine = engine_with(node("n0"))
    for number in range(50):
        name = f"gone-{number}"
        bound = pod(f"p-{number}", nodeName=name)
        engine.set_node(node(name))
        engine.set_bound_pod(bound)
        engine.remove_node(name)
        engine.remove_pod(bound)
    assert engine._waiting_by_node == {}
