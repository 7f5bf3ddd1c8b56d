"""`explain` gives the right blocker in ten prepared situations."""

from __future__ import annotations

import pytest

from pykarpenter.api import labels
from pykarpenter.api.nodepool import Budget
from pykarpenter.core.disruption.commands import Decision
from pykarpenter.core.disruption.explain import explain_node, explain_pool
from pykarpenter.core.disruption.settings import Memory
from pykarpenter.core.disruption.stories import node_lines, node_values, pool_lines, pool_values
from pykarpenter.core.reasons import Why
from pykarpenter.core.repair import RepairPolicy, RepairRules
from tests.support.fleet import NOON, Fleet, condition, pod


def base(**pool) -> Fleet:
    fleet = Fleet()
    fleet.type("s", cpu=2, price=0.5)
    fleet.type("m", cpu=4, price=1.0)
    fleet.pool(**({"budgets": ["100%"]} | pool))
    return fleet


def story(fleet: Fleet, name: str = "a", **gates):
    world = fleet.world(**gates)
    return explain_node(world, fleet.simulation(), world.by_name[name])


def situation(pool=None, **node):
    fleet = base(**(pool or {}))
    fleet.node("a", **({"pods": [pod("x", cpu=1)]} | node))
    return fleet


PROTECTED = {labels.DO_NOT_DISRUPT: "true"}
SITUATIONS = {
    "pod do-not-disrupt": (situation(pods=[pod("x", annotations=PROTECTED)]), Why.POD_DO_NOT_DISRUPT),
    "node do-not-disrupt": (situation(annotations=PROTECTED), Why.NODE_DO_NOT_DISRUPT),
    "nominated": (situation(nominated_until=NOON + 10), Why.NOMINATED),
    "not initialized": (situation(initialized=False), Why.NOT_INITIALIZED),
    "budget zero": (situation({"budgets": ["0"]}), Why.BUDGET),
    "inside consolidateAfter": (
        situation({"after": "10m"}, consolidatable=False, last_pod_event=NOON - 60),
        Why.WINDOW,
    ),
    "consolidation disabled": (situation({"after": "Never"}), Why.CONSOLIDATION_DISABLED),
    "policy WhenEmpty": (situation({"policy": "WhenEmpty"}), Why.POLICY),
    "not cheaper": (situation(pods=[pod("x", cpu=3)]), Why.NOT_CHEAPER),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_right_blocker(name):
    """Users act on the first reason they are given."""
    fleet, why = SITUATIONS[name]
    found = story(fleet)
    assert found.blocker is not None
    assert found.blocker.why is why
    assert any("stays:" in line for line in node_lines(found))


def test_right_blocker_for_a_budget_of_a_pdb():
    """With the names of both."""
    fleet = situation(pods=[pod("x", match={"app": "web"})])
    fleet.pdb("web", {"app": "web"}, allowed=0)
    found = story(fleet)
    assert found.blocker.why is Why.PDB
    assert "    in the way: PodDisruptionBudget default/web" in node_lines(found)


def test_node_that_will_go_says_so_with_its_price():
    """The saving and where the pods go."""
    found = story(situation())
    assert found.blocker is None
    assert found.next_command.decision is Decision.REPLACE
    text = "\n".join(node_lines(found))
    assert "next pass: Underutilized/replace: a (m/on-demand) -> s/on-demand" in text
    assert "1 pod(s) to a new s for $0.5000/h" in text
    assert node_values(found)["nextCommand"]["savingPerHour"] == 0.5


def test_prices_that_were_compared_are_shown():
    """`Can't replace` alone says nothing."""
    found = story(situation(pods=[pod("x", cpu=3)]))
    assert "stays: Can't replace with a cheaper node ($1.0000/h now, $1.0000/h at best)" in "\n".join(node_lines(found))


def test_node_of_a_running_command_says_so():
    """And nothing else."""
    fleet = situation()
    fleet.memory = Memory(in_flight=frozenset({"a"}))
    assert story(fleet).blocker.why is Why.IN_FLIGHT


def test_b4_pool_shows_how_its_budget_rounds():
    """10 % of three nodes is one."""
    fleet = base(budgets=["10%"])
    for name in ("a", "b", "c"):
        fleet.node(name, pods=[pod(name, cpu=4)])
    found = explain_pool(fleet.world(), fleet.simulation(), "default")
    assert "  Empty: 1 of 3 may be out, 0 are, 1 more may" in pool_lines(found)
    assert pool_values(found)["allowances"][0]["allowed"] == 1


def test_b1_pool_shows_the_budget_that_cannot_be_read():
    """It stops everything, so it must be named."""
    fleet = base(budgets=[Budget(nodes="5", schedule="@dailyx", duration="10m")])
    fleet.node("a", pods=[pod("x")])
    lines = "\n".join(pool_lines(explain_pool(fleet.world(), fleet.simulation(), "default")))
    assert "unreadable budget, nothing is disrupted: spec.disruption.budgets[0].schedule" in lines


def test_node_of_a_static_pool_says_why_it_stays():
    """The line a user looks for is there for every node."""
    found = story(situation({"replicas": 1}))
    assert found.blocker is not None
    assert found.blocker.why is Why.NOT_DRIFTED
    assert "  stays: Node is not drifted" in node_lines(found)


def test_node_that_could_go_but_is_not_next_says_who_is():
    """One command at a time: neither silence nor a reason that does not hold."""
    fleet = base(budgets=["1"])
    fleet.node("a", pods=[pod("x", cpu=1)])
    fleet.node("b", pods=[pod("y", cpu=1), pod("z", cpu=1)])
    later = story(fleet, "b")
    assert later.blocker is None
    assert later.next_command is None
    assert later.ahead is not None
    assert later.ahead.nodes == ("a",)
    assert any(line.startswith("  waits its turn, the next pass is Underutilized/") for line in node_lines(later))
    assert node_values(later)["ahead"]["nodes"] == ["a"]
    assert story(fleet, "a").ahead is None


def test_pool_that_is_not_ready_says_so():
    """Nothing can be replaced from it, whatever its budgets allow."""
    fleet = base(ready=False)
    fleet.node("a", pods=[pod("x")])
    found = explain_pool(fleet.world(), fleet.simulation(), "default")
    assert any(line.startswith("  not ready, so nothing is launched") for line in pool_lines(found))
    assert pool_values(found)["notReady"]
    fleet.pool(budgets=[])
    found = explain_pool(fleet.world(), fleet.simulation(), "default")
    assert not pool_values(found)["notReady"]
    assert "  budget: none: an empty list sets no limit" in pool_lines(found)


def test_fault_that_is_still_tolerated_is_named_with_its_end():
    """Healthy and not yet due are different answers."""
    policy = RepairPolicy("Bad", "True", "", 600.0, None, 10, "ReplaceNode")
    gates = {"repair": RepairRules([policy]), "node_repair": True}
    fleet = situation(node_conditions=[condition("Bad", reason="Disk", since=NOON - 60), condition("Ready")])
    lines = node_lines(story(fleet, **gates))
    assert "  repair: Bad/Disk is tolerated, ReplaceNode is not due yet [Healthy]" in lines
    assert "    until 2026-01-14T12:09:00Z" in lines
    assert any("repair: No repair is due [Healthy]" in line for line in node_lines(story(situation(), **gates)))
