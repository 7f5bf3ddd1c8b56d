"""Whom an important pod pushes away."""

from __future__ import annotations

from pykarpenter.sim.scheduler.preemption import NoPreemption, Preemption, preempt
from tests.sim.scheduler.worlds import engine_with, message, node, place, pod


def _preempt(engine, item, violations=lambda pods: 0):
    shape = engine.shape_of(item, lambda _: None)
    engine.place(item, shape)
    return preempt(engine, item, shape, violations)


def test_lowest_priorities_are_pushed_away():
    engine = engine_with(node("a", cpu="2"), node("b", cpu="2"))
    engine.set_bound_pod(pod("mid", cpu="2", priority=50, nodeName="a"))
    engine.set_bound_pod(pod("low", cpu="2", priority=10, nodeName="b"))
    found = _preempt(engine, pod("vip", cpu="2", priority=100))
    assert isinstance(found, Preemption)
    assert (found.node, [p.name for p in found.victims]) == ("b", ["low"])


def test_only_as_many_as_needed_are_pushed_away():
    engine = engine_with(node("a", cpu="4"))
    for i in range(4):
        engine.set_bound_pod(pod(f"p{i}", cpu="1", priority=i, nodeName="a"))
    found = _preempt(engine, pod("vip", cpu="2", priority=100))
    assert isinstance(found, Preemption)
    assert sorted(p.name for p in found.victims) == ["p0", "p1"]


def test_nodes_whose_budgets_would_break_come_last():
    engine = engine_with(node("a", cpu="2"), node("b", cpu="2"))
    engine.set_bound_pod(pod("guarded", cpu="2", priority=1, nodeName="a"))
    engine.set_bound_pod(pod("free", cpu="2", priority=9, nodeName="b"))
    found = _preempt(engine, pod("vip", cpu="2", priority=100), lambda pods: sum(p.name == "guarded" for p in pods))
    assert isinstance(found, Preemption)
    assert found.node == "b"


def test_equals_are_never_pushed_away():
    engine = engine_with(node("a", cpu="2"))
    engine.set_bound_pod(pod("same", cpu="2", priority=5, nodeName="a"))
    found = _preempt(engine, pod("p", cpu="2", priority=5))
    assert isinstance(found, NoPreemption)
    assert found.message == "0/1 nodes are available: 1 No preemption victims found for incoming pod."


def test_preemption_policy_never_is_honoured():
    engine = engine_with(node("a", cpu="2"))
    engine.set_bound_pod(pod("low", cpu="2", priority=1, nodeName="a"))
    found = _preempt(engine, pod("p", cpu="2", priority=5, preemptionPolicy="Never"))
    assert found == NoPreemption("not eligible due to preemptionPolicy=Never.")


def test_looking_for_victims_changes_nothing():
    """The search takes pods out of the picture; afterwards the picture is as before."""
    engine = engine_with(node("a", cpu="2"))
    engine.set_bound_pod(pod("low", cpu="2", priority=1, nodeName="a"))
    _preempt(engine, pod("vip", cpu="2", priority=100))
    assert "Insufficient cpu" in message(place(engine, pod("other", cpu="1")))
