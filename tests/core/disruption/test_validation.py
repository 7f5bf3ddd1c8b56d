"""A graceful command is looked at again before anything is touched."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from pykarpenter.api import labels
from pykarpenter.core.disruption import emptiness, multi_node, single_node
from pykarpenter.core.disruption.commands import Decision
from pykarpenter.core.disruption.validation import rejection_notices, validate
from tests.support.fleet import NOON, Fleet, pod


def command_and_fleet():
    fleet = Fleet()
    fleet.type("s", cpu=2, price=0.5)
    fleet.type("m", cpu=4, price=1.0)
    fleet.pool(budgets=["1"])
    fleet.node("a", type="m", pods=[pod("x")])
    fleet.node("b", type="s", pods=[pod("y", cpu=2)])
    (command,) = single_node.run(fleet.world(), fleet.simulation(), lambda: False).commands
    assert command.decision is Decision.REPLACE
    fleet.now = NOON + 15
    return fleet, command


def outcome(fleet, command):
    return validate(fleet.world(), fleet.simulation(), command)


@pytest.mark.promise("DIS-10.1")
def test_unchanged_cluster_confirms_the_command():
    """The original command is what runs."""
    fleet, command = command_and_fleet()
    assert outcome(fleet, command).command is command


@pytest.mark.promise("DIS-10.1")
def test_f12_do_not_disrupt_added_meanwhile_stops_it():
    """S5."""
    fleet, command = command_and_fleet()
    fleet.node("a", type="m", pods=[pod("x", annotations={labels.DO_NOT_DISRUPT: "true"})])
    assert outcome(fleet, command).failure == "churn"


@pytest.mark.promise("DIS-10.1")
def test_machine_replaced_by_another_of_its_name_is_not_the_one_that_was_meant():
    """A UID is an identity, a name is not."""
    fleet, command = command_and_fleet()
    view = fleet.nodes["a"]
    claim = msgspec.structs.replace(view.claim, metadata=msgspec.structs.replace(view.claim.metadata, uid="other"))
    fleet.nodes["a"] = dataclasses.replace(view, claim=claim)
    assert outcome(fleet, command).failure == "churn"


@pytest.mark.promise("DIS-10.1")
def test_budget_used_up_meanwhile_stops_it():
    """S4."""
    fleet, command = command_and_fleet()
    fleet.node("b", type="s", pods=[pod("y", cpu=2)], marked_for_deletion=True)
    assert outcome(fleet, command).failure == "budget"


@pytest.mark.promise("DIS-10.1")
def test_nominated_machine_stops_it():
    """A pod is on its way there."""
    fleet, command = command_and_fleet()
    fleet.node("a", type="m", pods=[pod("x")], nominated_until=NOON + 30)
    assert outcome(fleet, command).failure == "budget"


@pytest.mark.promise("DIS-10.1")
def test_pods_that_no_longer_fit_stop_it():
    """The replacement would be too small."""
    fleet, command = command_and_fleet()
    fleet.node("a", type="m", pods=[pod("x"), pod("x2", cpu=2)])
    result = outcome(fleet, command)
    assert result.failure == "scheduling"
    notices = rejection_notices(fleet.world(), command, result)
    assert [(n.kind, n.name, n.claim, n.reason) for n in notices] == [("Node", "a", "claim-a", "ConsolidationRejected")]


@pytest.mark.promise("DIS-10.1")
def test_replacement_that_became_needless_stops_it():
    """One launch too many is money for nothing."""
    fleet, command = command_and_fleet()
    fleet.node("c", type="m", consolidatable=False)
    assert outcome(fleet, command).failure == "scheduling"


@pytest.mark.promise("DIS-10.3", "DIS-17.3")
def test_multi_node_rejection_is_reported_on_its_pools():
    """Q3: told, and where the approval of several machines is told."""
    fleet = Fleet()
    fleet.type("m", cpu=4, price=1.0)
    fleet.pool(budgets=["100%"])
    for name in ("a", "b", "c"):
        fleet.node(name, pods=[pod(name)])
    (command,) = multi_node.run(fleet.world(), fleet.simulation(), lambda: False).commands
    fleet.node("a", pods=[pod("a", annotations={labels.DO_NOT_DISRUPT: "true"})])
    result = outcome(fleet, command)
    (notice,) = rejection_notices(fleet.world(), command, result)
    assert (notice.kind, notice.name, notice.reason) == ("NodePool", "default", "ConsolidationRejected")
    assert "do-not-disrupt" in notice.message


@pytest.mark.promise("DIS-10.2")
def test_f11_emptiness_shrinks_to_what_is_still_empty():
    """A pod that landed in the pause keeps its machine."""
    fleet = Fleet()
    fleet.type("m")
    fleet.pool(budgets=["100%"])
    for name in ("a", "b"):
        fleet.node(name)
    (command,) = emptiness.run(fleet.world()).commands
    fleet.node("a", pods=[pod("new")])
    result = outcome(fleet, command)
    assert result.command.nodes == ("b",)
    fleet.node("b", pods=[pod("new2")])
    assert outcome(fleet, command).command is None
