"""What is read live right before a write decides, whatever the snapshot said."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from pykarpenter.api import labels
from pykarpenter.core.disruption.commands import Method
from pykarpenter.core.disruption.facts import LiveMachine, changed, changed_before_delete
from pykarpenter.core.reasons import Why
from tests.support.fleet import NOON, Fleet, candidate, condition, on, pod


def machine(**node):
    fleet = Fleet()
    fleet.type("m")
    fleet.pool()
    view = fleet.node("a", **({"pods": [pod("x")]} | node))
    target = candidate(fleet.world(), "a").target()
    return target, LiveMachine(view.node, view.claim, view.pods), fleet


def why(target, live, method=Method.DRIFT, check=changed):
    blocker = check(method, target, live, NOON, False)
    return None if blocker is None else blocker.why


def test_unchanged_machine_may_be_touched():
    """The usual case."""
    target, live, _ = machine()
    assert why(target, live) is None


def test_machine_of_the_same_name_is_not_the_same_machine():
    """Names come back, UIDs do not."""
    target, live, _ = machine()
    meta = msgspec.structs.replace(live.node.metadata, uid="another")
    other = dataclasses.replace(live, node=msgspec.structs.replace(live.node, metadata=meta))
    assert why(target, other) is Why.CHANGED
    assert why(target, dataclasses.replace(live, node=None)) is Why.CHANGED
    assert why(target, dataclasses.replace(live, claim=None)) is Why.CHANGED


def test_machine_that_is_going_or_rebooting_is_left_alone():
    """Somebody else was first."""
    target, live, _ = machine()
    meta = msgspec.structs.replace(live.claim.metadata, deletion_timestamp="2026-01-14T12:00:00Z")
    going = dataclasses.replace(live, claim=msgspec.structs.replace(live.claim, metadata=meta))
    assert why(target, going) is Why.MARKED_FOR_DELETION
    status = msgspec.structs.replace(live.claim.status, conditions=[condition("Rebooting")])
    rebooting = dataclasses.replace(live, claim=msgspec.structs.replace(live.claim, status=status))
    assert why(target, rebooting) is Why.REBOOTING


def test_f12_protection_added_since_the_decision_counts():
    """S5, even when the watch has not told us yet (F13)."""
    target, live, _ = machine()
    protected = on(pod("x", annotations={labels.DO_NOT_DISRUPT: "true"}), "a")
    seen = dataclasses.replace(live, pods=(protected,))
    assert why(target, seen) is Why.POD_DO_NOT_DISRUPT
    assert why(dataclasses.replace(target, waives_protection=True), seen) is None


def test_node_annotation_counts_except_for_repair():
    """As in the gates."""
    target, live, _ = machine()
    meta = msgspec.structs.replace(live.node.metadata, annotations={labels.DO_NOT_DISRUPT: "true"})
    seen = dataclasses.replace(live, node=msgspec.structs.replace(live.node, metadata=meta))
    assert why(target, seen) is Why.NODE_DO_NOT_DISRUPT
    assert why(target, seen, Method.REPAIR) is None


def test_s6_budget_that_closed_since_the_decision_counts_until_the_taint():
    """Once tainted, the drain itself waits for the budget."""
    target, live, fleet = machine()
    fleet.pdb("web", {"app": "x"}, allowed=0)
    seen = dataclasses.replace(live, pdbs=fleet.pdbs)
    assert why(target, seen) is Why.PDB
    assert why(target, seen, check=changed_before_delete) is None


@pytest.mark.parametrize(("late", "found"), [(pod("late"), Why.CHANGED), (pod("late", owner="DaemonSet"), None)])
def test_f11_pod_that_nobody_planned_for_stops_the_command(late, found):
    """S7: it would be evicted into nowhere; DaemonSet pods need no room elsewhere."""
    target, live, _ = machine()
    assert why(target, dataclasses.replace(live, pods=(*live.pods, on(late, "a")))) is found
    static = dataclasses.replace(target, static=True)
    assert why(static, dataclasses.replace(live, pods=(*live.pods, on(late, "a")))) is None


def test_pod_that_left_meanwhile_is_no_obstacle():
    """Less to move is fine."""
    target, live, _ = machine()
    assert why(target, dataclasses.replace(live, pods=())) is None
