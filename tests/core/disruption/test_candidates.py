"""Which machines may be disturbed at all, and what the gates say about the others."""

from __future__ import annotations

import pytest

from pykarpenter.api import labels
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.candidates import Candidate
from pykarpenter.core.disruption.commands import DisruptionClass
from pykarpenter.core.disruption.costs import eviction_cost, node_price
from pykarpenter.core.disruption.emptiness import by_savings
from pykarpenter.core.disruption.selection import annotation_notices, unreadable_costs
from pykarpenter.core.disruption.settings import Memory
from pykarpenter.core.reasons import Why
from tests.support.fleet import NOON, Fleet, candidate, condition, pod

GRACEFUL, EVENTUAL, REPAIR = DisruptionClass.GRACEFUL, DisruptionClass.EVENTUAL, DisruptionClass.REPAIR


def judge(fleet: Fleet, name: str = "a", disruption_class: DisruptionClass = GRACEFUL, **gates):
    world = fleet.world(**gates)
    return world.judge(world.by_name[name], disruption_class)


def one(**node) -> Fleet:
    fleet = Fleet()
    fleet.type("m")
    fleet.pool()
    fleet.node("a", **node)
    return fleet


@pytest.mark.promise("DIS-3.2.1")
@pytest.mark.parametrize(
    ("node", "why"),
    [
        ({"claim": False, "rebooting": True}, Why.NO_NODE_CLAIM),
        ({"rebooting": True, "marked_for_deletion": True}, Why.REBOOTING),
        ({"marked_for_deletion": True, "initialized": False}, Why.MARKED_FOR_DELETION),
        ({"registered": False, "initialized": False}, Why.NOT_REGISTERED),
        ({"initialized": False, "nominated_until": NOON + 5}, Why.NOT_INITIALIZED),
        ({"nominated_until": NOON + 5, "annotations": {labels.DO_NOT_DISRUPT: "true"}}, Why.NOMINATED),
        ({"annotations": {labels.DO_NOT_DISRUPT: "true"}, "pool": ""}, Why.NODE_DO_NOT_DISRUPT),
        ({"pool": ""}, Why.NO_POOL_LABEL),
        ({"pool": "other"}, Why.POOL_NOT_FOUND),
    ],
)
def test_first_failing_gate_is_the_reason(node, why):
    """Users fix what they are told; the order decides which of several reasons that is."""
    blocker = judge(one(**node))
    assert isinstance(blocker, Blocker)
    assert blocker.why is why


def test_nomination_that_is_over_does_not_block():
    """A node is kept for planned pods only for a while."""
    assert isinstance(judge(one(nominated_until=NOON - 1)), Candidate)


@pytest.mark.promise("DIS-3.1.4")
@pytest.mark.parametrize("value", ["4h", "True", "yes", ""])
def test_only_the_exact_word_true_protects_a_node(value):
    """Durations are for pods."""
    assert isinstance(judge(one(annotations={labels.DO_NOT_DISRUPT: value})), Candidate)


@pytest.mark.promise("DIS-3.1.4")
def test_do_not_disrupt_on_a_node_does_not_stop_its_repair():
    """A broken machine serves nobody."""
    fleet = one(annotations={labels.DO_NOT_DISRUPT: "true"})
    assert isinstance(judge(fleet, disruption_class=REPAIR), Candidate)


@pytest.mark.promise("DIS-3.2.2")
def test_machine_of_a_running_command_is_left_out_silently():
    """It has its events already."""
    fleet = one()
    fleet.memory = Memory(in_flight=frozenset({"a"}))
    assert judge(fleet) is None


def test_unmanaged_node_is_nobodys_candidate():
    """S10: foreign nodes are never touched."""
    assert judge(one(managed=False)) is None


@pytest.mark.promise("DIS-3.2.3")
def test_repair_takes_registered_uninitialized_nodes_even_when_nominated():
    """A machine that breaks while starting would otherwise hang for ever."""
    fleet = one(initialized=False, nominated_until=NOON + 60)
    assert isinstance(judge(fleet, disruption_class=REPAIR), Candidate)
    unregistered = one(registered=False, initialized=False)
    assert judge(unregistered, disruption_class=REPAIR).why is Why.NOT_REGISTERED


@pytest.mark.promise("DIS-3.2.4", "DIS-17.12")
def test_f45_unknown_instance_types_block_all_but_repair():
    """An empty catalogue says nothing about the machines; repair does not need it."""
    fleet = one()
    fleet.unknown_types.add("default")
    assert judge(fleet).why is Why.POOL_NOT_FOUND
    assert judge(fleet).text() == "NodePool not found (NodePool=default)"
    assert isinstance(judge(fleet, disruption_class=REPAIR), Candidate)


@pytest.mark.promise("DIS-3.1.1")
@pytest.mark.parametrize(
    ("value", "started", "blocks"),
    [("true", NOON - 9e6, True), ("2h", NOON - 3600, True), ("30m", NOON - 3600, False), ("30m", None, True)],
)
def test_s5_pod_annotation_protects_for_ever_or_for_its_duration(value, started, blocks):
    """Long work must be able to finish."""
    blocker = judge(one(pods=[pod("x", annotations={labels.DO_NOT_DISRUPT: value}, started=started)]))
    assert isinstance(blocker, Blocker) == blocks
    if blocks:
        assert blocker.why is Why.POD_DO_NOT_DISRUPT
        assert blocker.objects == ("Pod default/x",)


@pytest.mark.promise("DIS-3.1.2")
@pytest.mark.parametrize("value", ["yes", "false", "0s", "-1h", "3 days"])
def test_b27_unreadable_annotation_protects_nothing_and_is_reported(value):
    """Silence would leave the user believing in protection."""
    fleet = one(pods=[pod("x", annotations={labels.DO_NOT_DISRUPT: value})])
    assert isinstance(judge(fleet), Candidate)
    (notice,) = annotation_notices(fleet.world())
    assert (notice.kind, notice.name, notice.reason) == ("Pod", "default/x", "InvalidDoNotDisruptAnnotation")
    assert notice.warning


@pytest.mark.promise("DIS-3.1.2")
@pytest.mark.parametrize(("value", "blocks"), [("yes", True), ("false", False), ("0s", False), ("-1h", False)])
def test_b27_setting_protects_pods_whose_value_does_not_parse(value, blocks):
    """Off by default; never for what clearly says no."""
    fleet = one(pods=[pod("x", annotations={labels.DO_NOT_DISRUPT: value})])
    assert isinstance(judge(fleet, protect_unparsable=True), Blocker) == blocks


@pytest.mark.promise("DIS-3.1.3")
def test_daemon_pod_under_do_not_disrupt_blocks_and_terminal_one_does_not():
    """Somebody wrote the annotation on purpose."""
    annotations = {labels.DO_NOT_DISRUPT: "true"}
    assert judge(one(pods=[pod("x", owner="DaemonSet", annotations=annotations)])).why is Why.POD_DO_NOT_DISRUPT
    assert isinstance(judge(one(pods=[pod("x", phase="Succeeded", annotations=annotations)])), Candidate)
    assert isinstance(judge(one(pods=[pod("x", deleting=True, annotations=annotations)])), Candidate)


@pytest.mark.promise("DIS-3.1.5")
def test_s6_exhausted_pdb_blocks_and_names_itself():
    """The eviction would only be refused later, with the node half drained."""
    fleet = one(pods=[pod("x", match={"app": "web"})])
    fleet.pdb("web", {"app": "web"}, allowed=0)
    blocker = judge(fleet)
    assert blocker.why is Why.PDB
    assert blocker.objects == ("PodDisruptionBudget default/web", "Pod default/x")


@pytest.mark.promise("DIS-3.1.5")
def test_two_pdbs_on_one_pod_block_whatever_they_allow():
    """The Eviction API refuses to choose between them."""
    fleet = one(pods=[pod("x", match={"app": "web"})])
    fleet.pdb("one", {"app": "web"}, allowed=3)
    assert isinstance(judge(fleet), Candidate)
    fleet.pdb("two", {"app": "web"}, allowed=3)
    assert judge(fleet).why is Why.PDB


@pytest.mark.promise("DIS-3.1.5")
def test_pdb_that_always_lets_unready_pods_go_does_not_block_them():
    """An unready pod serves nobody."""
    fleet = one(pods=[pod("x", match={"app": "web"}, ready=False)])
    fleet.pdb("web", {"app": "web"}, allowed=0, policy="AlwaysAllow")
    assert isinstance(judge(fleet), Candidate)


@pytest.mark.promise("DIS-3.1.6")
def test_pod_that_is_not_evicted_is_not_pdb_blocked():
    """A mirror pod leaves with its kubelet."""
    fleet = one(pods=[pod("x", owner="Node", match={"app": "web"})])
    fleet.pdb("web", {"app": "web"}, allowed=0)
    assert isinstance(judge(fleet), Candidate)


@pytest.mark.promise("DIS-3.2.5")
def test_drift_passes_over_protected_pods_only_with_a_grace_period():
    """The grace period is the owner's consent to a bounded drain."""
    protected = [pod("x", annotations={labels.DO_NOT_DISRUPT: "true"})]
    assert judge(one(pods=protected), disruption_class=EVENTUAL).why is Why.POD_DO_NOT_DISRUPT
    waived = judge(one(pods=protected, grace="1h"), disruption_class=EVENTUAL)
    assert isinstance(waived, Candidate)
    assert waived.target().waives_protection
    assert judge(one(pods=protected, grace="1h")).why is Why.POD_DO_NOT_DISRUPT


@pytest.mark.promise("DIS-3.3.1")
@pytest.mark.parametrize(
    ("options", "cost"),
    [
        ({}, 1.0),
        ({"priority": 2**25}, 2.0),
        ({"priority": -(2**25)}, 0.0),
        ({"annotations": {labels.POD_DELETION_COST: str(2**27)}}, 2.0),
        ({"priority": 2_000_000_000}, 10.0),
        ({"priority": -2_000_000_000}, -10.0),
    ],
)
def test_eviction_cost_follows_deletion_cost_and_priority(options, cost):
    """Users rank their pods with these two numbers."""
    assert eviction_cost(pod("x", **options)) == cost


@pytest.mark.promise("DIS-3.3.2", "DIS-18.17")
@pytest.mark.parametrize(
    ("annotations", "gate", "cost"),
    [
        ({labels.DISRUPTION_COST: str(2**27), labels.POD_DELETION_COST: "7"}, False, 2.0),
        ({labels.DISRUPTION_COST: "1.5", labels.POD_DELETION_COST: str(2**27)}, False, 1.0),
        ({labels.POD_DELETION_COST: str(2**27)}, True, 1.0),
        ({labels.DISRUPTION_COST: str(2**27)}, True, 2.0),
        ({labels.DISRUPTION_COST: "99999999999"}, False, 1.0),
        ({labels.DISRUPTION_COST: f"000{2**27}"}, False, 2.0),
        ({labels.DISRUPTION_COST: "٣"}, False, 1.0),
    ],
)
def test_disruption_cost_beats_deletion_cost(annotations, gate, cost):
    """Acceptance 17: with the gate on, deletion cost is ours to write, so it counts nothing."""
    assert eviction_cost(pod("x", annotations=annotations), gate) == cost


@pytest.mark.promise("DIS-3.3.2")
def test_cost_that_cannot_be_read_is_told():
    """A silent 0 would leave the user believing in a ranking."""
    fleet = one(
        pods=[
            pod("good", annotations={labels.POD_DELETION_COST: "7"}),
            pod("bad", annotations={labels.POD_DELETION_COST: "many"}),
            pod("worse", annotations={labels.DISRUPTION_COST: "1.5", labels.POD_DELETION_COST: "7"}),
        ]
    )
    assert unreadable_costs(fleet.world()) == [
        ("default/bad", labels.POD_DELETION_COST, "many"),
        ("default/worse", labels.DISRUPTION_COST, "1.5"),
    ]
    assert len(unreadable_costs(fleet.world(pod_deletion_cost=True))) == 1


@pytest.mark.promise("DIS-3.3.3", "DIS-18.2")
@pytest.mark.parametrize(
    ("pods", "empty"),
    [
        ([], True),
        ([pod("d", owner="DaemonSet")], True),
        ([pod("d", owner="Node")], True),
        ([pod("r", deleting=True)], True),
        ([pod("s", owner="StatefulSet", deleting=True)], False),
        ([pod("s", owner="StatefulSet", deleting=True, phase="Failed")], False),
        ([pod("s", owner="StatefulSet", phase="Failed")], True),
        ([pod("r")], False),
        ([pod("low", priority=-33554432)], True),
        ([pod("j", owner="Job", phase="Succeeded")], True),
        ([pod("bare", owner="")], False),
    ],
)
def test_what_counts_as_empty(pods, empty):
    """Acceptance 2: only pods that need room elsewhere hold a machine."""
    fleet = one(pods=pods)
    assert candidate(fleet.world(), "a").is_empty == empty


@pytest.mark.promise("DIS-3.3.4")
def test_price_is_that_of_zone_and_capacity_type_even_when_unavailable():
    """What runs costs what it costs, whether or not more of it can be had."""
    fleet = Fleet()
    kind = fleet.type("m", price=2.0, spot=0.5, zones=("zone-1", "zone-2"), available=False)
    at = {labels.ZONE: "zone-2", labels.CAPACITY_TYPE: labels.SPOT}
    assert node_price(kind, at) == 0.5
    assert node_price(kind, {**at, labels.ZONE: "zone-9"}) is None
    assert node_price(fleet.type("u", unpriced=True), {**at, labels.CAPACITY_TYPE: labels.ON_DEMAND}) is None


@pytest.mark.promise("DIS-3.3.6")
def test_dear_machines_with_few_pods_come_first():
    """Most money for least disturbance; ties by name keep runs equal."""
    fleet = Fleet()
    fleet.type("m", price=1.0)
    fleet.type("l", cpu=16, price=4.0)
    fleet.pool()
    fleet.node("b", pods=[pod("b1")])
    fleet.node("a", pods=[pod("a1")])
    fleet.node("crowded", type="l", pods=[pod(f"c{i}") for i in range(9)])
    fleet.node("dear", type="l", pods=[pod("d1")])
    world = fleet.world()
    ordered = by_savings([candidate(world, name) for name in ("b", "a", "crowded", "dear")])
    assert [c.name for c in ordered] == ["dear", "a", "b", "crowded"]


def test_condition_helper_keeps_what_it_is_given():
    """The builders must not hide a status."""
    assert condition("Ready", "False").status == "False"
