"""Broken machines: which, in what order, under which breaker, and by replacement or reboot."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pykarpenter.api import labels
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.core.disruption import repairs
from pykarpenter.core.disruption.commands import Decision
from pykarpenter.core.disruption.decide import decide
from pykarpenter.core.repair import (
    REBOOT,
    REBOOT_COMMITS,
    REPLACE,
    InvalidPolicies,
    RepairPolicy,
    RepairRules,
    commits_with,
)
from tests.support.fleet import NOON, Fleet, condition, pod


def policy(kind="Sick", status="True", regex=".*", toleration=600.0, bound=None, priority=0, action=REPLACE):
    return RepairPolicy(kind, status, regex, toleration, bound, priority, action)


FALLBACK = policy("Ready", "False", "", 1800.0)
RULES = RepairRules([FALLBACK, policy()])


def sick(since: float = NOON - 3600, kind: str = "Sick", reason: str = "Broken"):
    return [condition("Ready"), condition(kind, "True", reason, since)]


def fleet_with(nodes: int = 10, **pool) -> Fleet:
    fleet = Fleet()
    fleet.type("m", cpu=4, price=1.0)
    fleet.pool(**({"budgets": ["100%"]} | pool))
    for index in range(nodes):
        fleet.node(f"n{index}", pods=[pod(f"p{index}", cpu=4)], created=NOON - 86400)
    return fleet


def repaired(fleet: Fleet, rules: RepairRules = RULES, **gates):
    return repairs.run(fleet.world(node_repair=True, repair=rules, **gates), fleet.simulation())


@pytest.mark.promise("DIS-7.2.1")
@pytest.mark.parametrize(
    ("policies", "problem"),
    [
        ([], "no repair policies"),
        ([policy()], "exactly one repair policy must have an empty reason regex, found 0"),
        ([FALLBACK, FALLBACK], "found 2"),
        ([policy(regex="", action=REBOOT)], "must have action ReplaceNode"),
        ([FALLBACK, policy(kind="")], "conditionType"),
        ([FALLBACK, policy(status="Maybe")], "conditionStatus"),
        ([FALLBACK, policy(toleration=-1)], "tolerationDuration"),
        ([FALLBACK, policy(bound=-1)], "terminationGracePeriod"),
        ([FALLBACK, policy(priority=101)], "priority"),
        ([FALLBACK, policy(action="Explode")], "action"),
        ([FALLBACK, policy(regex="(")], "reasonRegex"),
    ],
)
@pytest.mark.promise("API-6.1.1")
def test_bad_policies_refuse_the_start_and_name_the_field(policies, problem):
    """A policy set that is half understood would repair the wrong machines."""
    with pytest.raises(InvalidPolicies, match=problem):
        RepairRules(policies)


def node_with(faults, created=NOON - 86400, **options):
    fleet = Fleet()
    return fleet.node("n", node_conditions=faults, created=created, **options)


def resolve(rules, faults, now=NOON, **options):
    view = node_with(faults, **options)
    return rules.resolve(view.node, view.claim, now)


@pytest.mark.promise("DIS-7.2.2", "DIS-18.12")
@pytest.mark.promise("API-6.1.2")
def test_acceptance_12_known_reason_inside_its_toleration_keeps_the_fallback_out():
    """The elapsed fallback must not overrule the policy written for the case."""
    rules = RepairRules([policy(regex="", toleration=60), policy(regex="^Slow$", toleration=7200)])
    assert resolve(rules, sick(NOON - 3600, reason="Slow")) is None
    assert resolve(rules, sick(NOON - 3600, reason="Other")) is not None


@pytest.mark.promise("DIS-7.2.2")
@pytest.mark.promise("API-6.1.2")
def test_fallback_serves_pairs_it_was_not_written_for():
    """An unknown reason of a known condition is a fault all the same."""
    rules = RepairRules([FALLBACK, policy(regex="^Known$", toleration=60)])
    assert resolve(rules, sick(NOON - 1801, reason="Unheard")) is not None
    assert resolve(rules, sick(NOON - 1799, reason="Unheard")) is None
    assert resolve(rules, [condition("Other", "True")]) is None


@pytest.mark.promise("DIS-7.2.3")
@pytest.mark.promise("API-6.1.3")
def test_toleration_counts_from_the_latest_of_fault_creation_and_reboot():
    """A back-dated condition never beats the node's age."""
    assert resolve(RULES, sick(NOON - 9999), created=NOON - 599) is None
    assert resolve(RULES, sick(NOON - 9999), created=NOON - 600) is not None
    rebooted = [condition("Rebooting", "False", "RebootSucceeded", NOON - 100)]
    assert resolve(RULES, sick(NOON - 9999), conditions=rebooted) is None


@pytest.mark.promise("DIS-7.2.4")
@pytest.mark.promise("API-6.1.4")
def test_eligible_policies_merge():
    """Strongest action, its driving condition by priority, shortest bound of all, highest score."""
    rules = RepairRules(
        [
            FALLBACK,
            policy("A", toleration=0, bound=300.0, action=REBOOT, priority=90),
            policy("B", toleration=0, bound=None, priority=10),
            policy("C", toleration=0, bound=900.0, priority=50),
        ]
    )
    conditions = [condition(kind, "True", "x", NOON - 1800) for kind in ("A", "B", "C")]
    merged = resolve(rules, conditions)
    assert (merged.action, merged.condition, merged.bound_s) == (REPLACE, "C", 300.0)
    # Ranks 0, 1, 2, 3 for priorities 0, 10, 50, 90; half an hour past toleration adds one.
    assert merged.score == pytest.approx(4.0)


@pytest.mark.promise("DIS-7.4.1", "DIS-18.12", "DIS-17.13")
def test_acceptance_12_third_fault_within_a_day_of_two_reboots_is_a_replacement():
    """Q13: a restart must not allow endless reboots; the commits are on the claim."""
    rules = RepairRules([FALLBACK, policy(toleration=600, action=REBOOT)])
    assert resolve(rules, sick()).action == REBOOT
    twice = ",".join(format_timestamp(NOON - age) for age in (7200, 3600))
    third = resolve(rules, sick(), claim_annotations={REBOOT_COMMITS: twice})
    assert (third.action, third.escalated) == (REPLACE, True)
    old = ",".join(format_timestamp(NOON - age) for age in (25 * 3600, 3600))
    assert resolve(rules, sick(), claim_annotations={REBOOT_COMMITS: old}).action == REBOOT
    claim = node_with(sick(), claim_annotations={REBOOT_COMMITS: old}).claim
    assert commits_with(claim, NOON) == f"{format_timestamp(NOON - 3600)},{format_timestamp(NOON)}"


@pytest.mark.promise("DIS-18.12")
def test_acceptance_12_reason_policy_acts_long_before_the_fallback():
    """Ten minutes for a reason that a reboot heals, two days for anything else; the end of a reboot starts anew."""
    rules = RepairRules([policy(regex="", toleration=48 * 3600), policy(regex="Hung", toleration=600, action=REBOOT)])
    assert resolve(rules, sick(NOON - 599, reason="Hung")) is None
    assert resolve(rules, sick(NOON - 600, reason="Hung")).action == REBOOT
    assert resolve(rules, sick(NOON - 600, reason="Other")) is None
    ended = [condition("Rebooting", "False", "RebootSucceeded", NOON - 599)]
    assert resolve(rules, sick(NOON - 7200, reason="Hung"), conditions=ended) is None


@pytest.mark.promise("DIS-18.13")
def test_acceptance_13_do_not_disrupt_on_the_node_does_not_stop_repair():
    """It protects what runs; a broken machine runs nothing well."""
    fleet = fleet_with(10)
    fleet.node("n0", node_conditions=sick(), annotations={labels.DO_NOT_DISRUPT: "true"})
    assert repaired(fleet).commands[0].nodes == ("n0",)


@pytest.mark.promise("DIS-2.3")
def test_repair_runs_only_with_its_gate():
    """It is alpha."""
    fleet = fleet_with(3)
    fleet.node("n0", pods=[pod("p0", cpu=4)], node_conditions=sick(), consolidatable=False)
    methods = [run.method for run in decide(fleet.world(repair=RULES), fleet.simulation()).runs]
    assert "repair" not in methods
    plan = decide(fleet.world(repair=RULES, node_repair=True), fleet.simulation())
    assert plan.commands[0].method == "repair"


@pytest.mark.promise("DIS-7.1.3", "DIS-18.9")
def test_acceptance_9_f28_breaker_stops_above_a_fifth():
    """Many faults at once are a fault of something else."""
    fleet = fleet_with(10)
    fleet.node("n0", node_conditions=sick(NOON - 3600))
    fleet.node("n1", node_conditions=sick(NOON - 10))
    fleet.node("n2", node_conditions=sick(NOON - 10))
    run = repaired(fleet)
    assert run.commands == ()
    blocked = [n for n in run.notices if n.reason == "NodeRepairBlocked"]
    # The Node's notice goes to its NodeClaim as well: three events.
    assert [(n.kind, n.name, n.claim) for n in blocked] == [("Node", "n0", "claim-n0"), ("NodePool", "default", "")]
    assert blocked[0].message == 'more than 20% of nodes in nodepool "default" are unhealthy'
    fleet.node("n2", node_conditions=[condition("Ready")])
    assert repaired(fleet).commands[0].nodes == ("n0",)


@pytest.mark.promise("DIS-7.1.3", "DIS-18.9")
def test_acceptance_9_one_of_three_is_repaired_and_two_of_three_are_not():
    """Rounded up, so that small pools heal."""
    fleet = fleet_with(3)
    fleet.node("n0", node_conditions=sick())
    assert repaired(fleet).commands
    fleet.node("n1", node_conditions=sick())
    assert not repaired(fleet).commands


@pytest.mark.promise("DIS-7.1.3", "DIS-17.17")
def test_machines_already_going_do_not_trip_the_breaker():
    """Q17: a third fault must not wait for the first two."""
    fleet = fleet_with(10)
    fleet.node("n0", node_conditions=sick(), marked_for_deletion=True)
    fleet.node("n1", node_conditions=sick(), marked_for_deletion=True)
    fleet.node("n2", node_conditions=sick())
    assert repaired(fleet).commands[0].nodes == ("n2",)


@pytest.mark.promise("DIS-7.1.3", "DIS-17.17")
def test_machines_that_reboot_do_not_trip_the_breaker():
    """They are under repair already, and not Ready because we asked them to boot; the budget still counts them."""
    fleet = fleet_with(10)
    fleet.pool(budgets=["5"])
    fleet.node("n0", node_conditions=sick(), rebooting=True)
    fleet.node("n1", node_conditions=sick(), rebooting=True)
    fleet.node("n2", node_conditions=sick())
    assert repaired(fleet).commands[0].nodes == ("n2",)
    fleet.pool(budgets=["2"])
    assert repaired(fleet).commands == ()


@pytest.mark.promise("DIS-7.1.2")
def test_most_urgent_machine_first():
    """The longest broken; then the one that is cheapest to move."""
    fleet = fleet_with(10)
    fleet.node("n3", node_conditions=sick(NOON - 3600))
    fleet.node("n5", node_conditions=sick(NOON - 7200))
    assert repaired(fleet).commands[0].nodes == ("n5",)


@pytest.mark.promise("DIS-7.1.1", "DIS-17.12")
def test_healthy_machines_see_no_repair_event():
    """Q12: health is tested first."""
    fleet = fleet_with(3)
    fleet.node("standalone", pool="")
    run = repaired(fleet)
    assert run.notices == ()
    fleet.node("standalone", pool="", node_conditions=sick())
    (notice,) = repaired(fleet).notices
    assert notice.message == "Repair requires a NodePool to construct and budget a safe replacement"


@pytest.mark.promise("DIS-7.1.1", "DIS-18.13", "DIS-3.1.7")
def test_acceptance_13_veto_is_reported_before_a_missing_bound():
    """And only once a repair is due."""
    fleet = fleet_with(10)
    protected = [pod("keep", annotations={labels.DO_NOT_DISRUPT: "true"})]
    veto = {labels.DO_NOT_REPAIR: "true"}
    fleet.node("n0", node_conditions=sick(), pods=protected, annotations=veto)
    (notice,) = repaired(fleet).notices
    assert notice.message == 'Repair is blocked through the "karpenter.sh/do-not-repair" annotation'
    fleet.node("n0", node_conditions=sick(NOON - 10), pods=protected, annotations=veto)
    assert repaired(fleet).notices == ()
    fleet.node("n0", node_conditions=sick(), pods=protected)
    (notice,) = repaired(fleet).notices
    assert notice.message == "Repair requires a termination grace period to bypass blocking pods"


@pytest.mark.promise("DIS-7.1.6", "DIS-7.1.4", "DIS-18.13")
def test_acceptance_13_bounded_repair_plans_room_for_the_protected_pod():
    """It will be freed by the deadline."""
    fleet = fleet_with(10)
    protected = [pod("keep", cpu=4, annotations={labels.DO_NOT_DISRUPT: "true"})]
    fleet.node("n0", node_conditions=sick(), pods=protected, grace="5m")
    (command,) = repaired(fleet).commands
    assert command.replacements[0].pods == ("default/keep",)
    assert command.targets[0].drain_bound_s is None
    assert command.targets[0].waives_protection


@pytest.mark.promise("DIS-7.1.4", "DIS-18.14")
@pytest.mark.parametrize(
    ("policy_bound", "claim", "bound"),
    [(600.0, "5m", 300.0), (600.0, None, 600.0), (0.0, "5m", 0.0), (None, "5m", None)],
)
def test_acceptance_14_drain_bound_is_the_shorter_of_policy_and_claim(policy_bound, claim, bound):
    """A deadline only tightens."""
    fleet = fleet_with(10)
    fleet.node("n0", node_conditions=sick(), grace=claim)
    rules = RepairRules([FALLBACK, policy(bound=policy_bound)])
    assert repaired(fleet, rules).commands[0].targets[0].drain_bound_s == bound


@pytest.mark.promise("DIS-7.1.5", "DIS-18.11")
def test_acceptance_11_uninitialized_machine_is_repaired_without_budget():
    """It serves nobody, so nobody is disturbed."""
    fleet = fleet_with(9, budgets=["0"])
    fleet.node("n9", node_conditions=sick(), initialized=False, nominated_until=NOON + 60)
    assert repaired(fleet).commands[0].nodes == ("n9",)
    fleet.node("n9", node_conditions=sick())
    assert repaired(fleet).commands == ()
    fleet.node("n9", node_conditions=sick(), initialized=False, registered=False)
    assert repaired(fleet).commands == ()


@pytest.mark.promise("DIS-7.1.6", "DIS-18.9")
def test_acceptance_9_empty_machine_is_deleted_and_one_with_pods_replaced():
    """S8: the replacement comes first."""
    fleet = fleet_with(10)
    fleet.node("n0", node_conditions=sick())
    assert repaired(fleet).commands[0].decision is Decision.DELETE
    fleet.node("n0", node_conditions=sick(), pods=[pod("x", cpu=4)])
    assert repaired(fleet).commands[0].decision is Decision.REPLACE


def test_reboot_carries_its_condition_and_the_bound_of_its_drain():
    """The reboot controller reads both from the claim."""
    fleet = fleet_with(10)
    rules = RepairRules([FALLBACK, policy(action=REBOOT, bound=60.0)])
    fleet.node("n0", node_conditions=sick(), grace="10m", pods=[pod("x", cpu=4)])
    (command,) = repaired(fleet, rules).commands
    assert command.decision is Decision.REBOOT
    assert (command.reboot.condition, command.reboot.reason, command.reboot.grace_s) == ("Sick", "Broken", 60.0)
    assert command.replacements == ()


@pytest.mark.promise("DIS-2.2", "DIS-17.11")
def test_machine_that_cannot_be_simulated_does_not_stop_the_next():
    """Q11."""
    fleet = fleet_with(10, ready=False)
    fleet.node("n0", node_conditions=sick(NOON - 9000), pods=[pod("x")])
    run = repaired(fleet)
    assert "no NodePool can provision" in run.error


def test_policies_mean_the_same_without_the_extra():
    """Where Go's expressions are not installed, Python's own take their place: the same tests hold with them."""
    program = (
        "import sys, pytest; sys.modules['re2'] = None; "
        f"sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-k', 'not without_the_extra', {__file__!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
