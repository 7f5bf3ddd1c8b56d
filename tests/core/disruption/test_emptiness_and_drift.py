"""Empty machines, drifted machines, and how budgets hold both back."""

from __future__ import annotations

import pytest

from pykarpenter.api import labels
from pykarpenter.api.nodepool import Budget
from pykarpenter.core.disruption import drift, emptiness, single_node
from pykarpenter.core.disruption.allowance import Allowances
from pykarpenter.core.disruption.commands import Decision, Reason
from pykarpenter.core.disruption.decide import decide
from pykarpenter.core.disruption.settings import Memory
from tests.support.fleet import NOON, Fleet, condition, pending, pod


def empty_fleet(count: int, **pool) -> Fleet:
    fleet = Fleet()
    fleet.type("m")
    fleet.pool(**pool)
    for index in range(count):
        fleet.node(f"n{index:02d}")
    return fleet


def names(run) -> list[str]:
    return [name for command in run.commands for name in command.nodes]


@pytest.mark.promise("DIS-7.2", "DIS-5.1")
def test_s4_all_empty_machines_that_budgets_allow_go_in_one_command():
    """Deleting an empty machine needs no simulation."""
    run = emptiness.run(empty_fleet(19, budgets=["20%"]).world())
    assert len(run.commands) == 1
    assert names(run) == ["n00", "n01", "n02", "n03"]
    assert run.eligible == 19
    assert run.commands[0].decision is Decision.DELETE
    assert run.commands[0].saving == pytest.approx(4.0)


@pytest.mark.promise("DIS-7.2", "DIS-15.1")
def test_machine_with_buffer_pods_is_not_empty():
    """Standby capacity was bought on purpose."""
    fleet = empty_fleet(1)
    fleet.node("n00", buffer_pods=2)
    run = emptiness.run(fleet.world())
    assert run.commands == ()
    assert [n.message for n in run.notices] == ["Node n00 has buffer pods"]


@pytest.mark.promise("DIS-7.1")
@pytest.mark.parametrize("policy", ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"])
def test_every_policy_removes_empty_machines(policy):
    """Only consolidateAfter Never keeps them."""
    assert names(emptiness.run(empty_fleet(1, policy=policy, budgets=[]).world())) == ["n00"]
    never = emptiness.run(empty_fleet(1, policy=policy, after="Never").world())
    assert never.commands == ()
    assert never.notices[0].message == 'NodePool "default" has consolidation disabled'


@pytest.mark.promise("DIS-7.1")
def test_static_pool_keeps_its_empty_machines():
    """It was asked for a number of machines, not for work."""
    assert emptiness.run(empty_fleet(2, replicas=2, budgets=[]).world()).commands == ()


@pytest.mark.promise("DIS-7.2")
def test_machine_needs_no_known_type_or_price_to_be_empty():
    """Nothing is compared with anything."""
    fleet = empty_fleet(1, budgets=[])
    fleet.node("n00", type="vanished")
    assert names(emptiness.run(fleet.world())) == ["n00"]


def test_machine_within_its_window_waits():
    """A machine that was busy a minute ago will be busy again."""
    fleet = empty_fleet(1, after="10m", budgets=[])
    fleet.node("n00", consolidatable=False, last_pod_event=NOON - 60)
    assert emptiness.run(fleet.world()).commands == ()


@pytest.mark.promise("DIS-5.2")
def test_pool_whose_budgets_allow_nothing_gets_an_event():
    """Otherwise nobody knows why nothing happens."""
    run = emptiness.run(empty_fleet(3, budgets=["0"]).world())
    assert run.commands == ()
    (notice,) = [n for n in run.notices if n.kind == "NodePool"]
    assert notice.message == "No allowed disruptions for disruption reason Empty due to blocking budget"


@pytest.mark.promise("DIS-5.3")
def test_s4_machines_that_wait_for_validation_use_the_budget():
    """Two methods must never spend the same allowance."""
    fleet = empty_fleet(10, budgets=["2"])
    fleet.memory = Memory(in_flight=frozenset({"n00", "n01"}))
    assert emptiness.run(fleet.world()).commands == ()


@pytest.mark.promise("DIS-5.1", "DIS-18.10", "DIS-5.7")
def test_acceptance_10_sick_machines_use_every_budget_but_their_own():
    """Or unhealthy nodes would exhaust the budget that repairs them."""
    fleet = empty_fleet(8, budgets=["100%"])
    for index in (8, 9):
        fleet.node(f"n{index:02d}", node_conditions=[condition("Ready", "False")])
    world = fleet.world()
    assert Allowances(world, Reason.UNHEALTHY).usable("default") == 10
    assert Allowances(world, Reason.DRIFTED).usable("default") == 8
    rebooting = empty_fleet(8, budgets=["10"])
    rebooting.node("n08", rebooting=True)
    rebooting.node("n09", rebooting=True, initialized=False)
    assert all(Allowances(rebooting.world(), reason).usable("default") == 8 for reason in Reason)


@pytest.mark.promise("DIS-5.1", "DIS-18.1", "DIS-5.4")
def test_acceptance_1_percentages_round_up():
    """A small pool must be able to move at all; B4."""
    assert Allowances(empty_fleet(10, budgets=["5%"]).world(), Reason.EMPTY).usable("default") == 1
    assert Allowances(empty_fleet(3, budgets=["10%"]).world(), Reason.EMPTY).usable("default") == 1
    assert Allowances(empty_fleet(19, budgets=["20%"]).world(), Reason.EMPTY).usable("default") == 4


@pytest.mark.promise("DIS-5.1", "DIS-18.1", "DIS-5.5")
def test_acceptance_1_f41_window_blocks_until_its_end():
    """A maintenance freeze must hold to the second."""
    freeze = Budget(nodes="0", schedule="@daily", duration="10m")
    midnight = NOON + 12 * 3600
    fleet = empty_fleet(3, budgets=[freeze])
    fleet.now = midnight + 599
    assert Allowances(fleet.world(), Reason.EMPTY).usable("default") == 0
    fleet.now = midnight + 601
    assert Allowances(fleet.world(), Reason.EMPTY).usable("default") > 3


@pytest.mark.promise("DIS-5.1", "DIS-18.1", "DIS-5.6")
def test_acceptance_1_b1_unreadable_budget_stops_every_reason():
    """Fail closed: the freeze that was meant may be for all of them."""
    broken = Budget(nodes="5", schedule="@dailyx", duration="10m", reasons=["Drifted"])
    world = empty_fleet(10, budgets=["100%", broken]).world()
    assert Allowances(world, Reason.EMPTY).usable("default") == 0
    assert Allowances(world, Reason.UNDERUTILIZED).usable("default") == 0


def drifting(**pool) -> Fleet:
    fleet = Fleet()
    fleet.type("m", cpu=4, price=1.0)
    fleet.pool(**({"budgets": ["100%"]} | pool))
    return fleet


@pytest.mark.promise("DIS-7.4")
def test_drift_takes_machines_without_pods_first_then_the_longest_drifted():
    """Cheap moves first, then fairness."""
    fleet = drifting()
    fleet.node("young", pods=[pod("a", cpu=3)], drifted=NOON - 60, consolidatable=False)
    fleet.node("old", pods=[pod("b", cpu=3)], drifted=NOON - 600, consolidatable=False)
    run = drift.run(fleet.world(), fleet.simulation())
    assert names(run) == ["old"]
    assert run.commands[0].decision is Decision.REPLACE
    fleet.node("idle", drifted=NOON - 1, consolidatable=False)
    idle = drift.run(fleet.world(), fleet.simulation())
    assert names(idle) == ["idle"]
    assert idle.commands[0].decision is Decision.DELETE


@pytest.mark.promise("DIS-7.4")
def test_drift_passes_over_a_machine_whose_pods_find_no_place():
    """One hopeless machine must not stop the roll-out."""
    fleet = drifting()
    fleet.node("stuck", pods=[pod("huge", cpu=64)], drifted=NOON - 600)
    fleet.node("fine", pods=[pod("small", cpu=3)], drifted=NOON - 60)
    run = drift.run(fleet.world(), fleet.simulation())
    assert names(run) == ["fine"]
    (notice,) = [n for n in run.notices if n.name == "stuck"]
    assert notice.reason == "DisruptionBlocked"
    assert "default/huge" in notice.message


@pytest.mark.promise("DIS-7.4")
def test_drift_may_need_several_replacements():
    """No price is compared: the machine must go."""
    fleet = drifting()
    fleet.node("big", type="vanished", pods=[pod("a", cpu=3), pod("b", cpu=3)], drifted=NOON - 60)
    (command,) = drift.run(fleet.world(), fleet.simulation()).commands
    assert len(command.replacements) == 2
    assert not command.needs_validation


@pytest.mark.promise("DIS-3.2.5", "DIS-6.1", "DIS-18.3")
def test_acceptance_3_drift_with_a_grace_period_plans_no_room_for_a_protected_pod():
    """It stays until the deadline; consolidation refuses outright."""
    fleet = drifting()
    protected = pod("keep", cpu=3, annotations={labels.DO_NOT_DISRUPT: "true"})
    fleet.node("a", pods=[protected], drifted=NOON - 60, grace="1h")
    (command,) = drift.run(fleet.world(), fleet.simulation()).commands
    assert command.replacements == ()
    assert command.decision is Decision.DELETE
    fleet.node("b")
    refused = single_node.run(fleet.world(), fleet.simulation(), lambda: False)
    assert refused.commands == ()
    assert "do-not-disrupt" in next(n.message for n in refused.notices if n.name == "a")


@pytest.mark.promise("DIS-7.5", "DIS-17.10")
def test_f27_drift_of_a_pool_pauses_after_a_failed_replacement():
    """Another pool goes on; the failing one is not retried at once with its old age."""
    fleet = drifting()
    fleet.pool("other", budgets=["100%"])
    fleet.node("a", pods=[pod("x")], drifted=NOON - 600)
    fleet.node("b", pool="other", pods=[pod("y", cpu=4)], drifted=NOON - 60)
    fleet.memory = Memory(back_off_until={"default": NOON + 60})
    run = drift.run(fleet.world(), fleet.simulation())
    assert names(run) == ["b"]
    assert any("tried again at" in n.message for n in run.notices if n.name == "a")
    fleet.memory = Memory(back_off_until={"default": NOON - 1})
    assert names(drift.run(fleet.world(), fleet.simulation())) == ["a"]


@pytest.mark.promise("DIS-7.5")
def test_f27_roll_out_stops_while_new_machines_do_not_register():
    """A bad image must not eat the fleet one node after another."""
    unhealthy = condition("NodeRegistrationHealthy", "False", "RegistrationFailed")
    fleet = drifting(conditions=[unhealthy])
    fleet.node("a", pods=[pod("x")], drifted=NOON - 600)
    run = drift.run(fleet.world(), fleet.simulation())
    assert run.commands == ()
    assert "fail to register" in run.notices[-1].message


@pytest.mark.promise("DIS-2.1")
def test_pass_stops_at_the_first_method_with_something_to_do():
    """Empty before drifted before under-used."""
    fleet = drifting()
    fleet.node("drifted", pods=[pod("x", cpu=3)], drifted=NOON - 60)
    fleet.node("empty")
    plan = decide(fleet.world(), fleet.simulation())
    assert [run.method for run in plan.runs] == ["emptiness"]
    del fleet.nodes["empty"]
    plan = decide(fleet.world(), fleet.simulation())
    assert [run.method for run in plan.runs] == ["emptiness", "static-drift", "drift"]


@pytest.mark.promise("DIS-2.2", "DIS-17.11")
def test_method_that_fails_does_not_stop_the_others():
    """No Ready pool stops drift's simulation, not the removal of empty machines that comes before or after it."""
    fleet = drifting(ready=False)
    fleet.node("a", pods=[pod("x")], drifted=NOON - 60)
    plan = decide(fleet.world(), fleet.simulation())
    failed = {run.method: run.error for run in plan.runs if run.error}
    assert "drift" in failed
    assert len(plan.runs) == 5


@pytest.mark.promise("DIS-6.4", "DIS-18.8")
def test_acceptance_8_hopeless_pending_pod_does_not_block_drift():
    """It was pending before and may stay so."""
    fleet = drifting()
    fleet.pending.append(pending("hopeless", cpu=64))
    fleet.node("a", pods=[pod("x", cpu=3)], drifted=NOON - 60)
    assert names(drift.run(fleet.world(), fleet.simulation())) == ["a"]


@pytest.mark.promise("DIS-6.3")
def test_no_pod_is_moved_to_a_machine_that_is_not_ready_yet():
    """It may never be."""
    fleet = drifting()
    fleet.node("a", pods=[pod("x", cpu=1)], drifted=NOON - 60)
    fleet.node("coming", initialized=False)
    run = drift.run(fleet.world(), fleet.simulation())
    assert run.commands == ()
    assert "would schedule against uninitialized NodeClaim claim-coming" in run.notices[-1].message
