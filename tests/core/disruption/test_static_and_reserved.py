"""Static pools and reserved machines: staged where there is room, terminated first where the gate allows it."""

from __future__ import annotations

import pytest

from pykarpenter.api import labels
from pykarpenter.core.disruption import drift, static_pools
from pykarpenter.core.disruption.commands import Decision
from pykarpenter.core.reasons import Why
from tests.support.fleet import NOON, Fleet, pod


def static_fleet(nodes: int = 3, **pool) -> Fleet:
    fleet = Fleet()
    fleet.type("m", cpu=4, price=1.0)
    fleet.pool(**({"budgets": ["100%"], "replicas": nodes} | pool))
    for index in range(nodes):
        fleet.node(f"n{index}", pods=[pod(f"p{index}")], drifted=NOON - 600 + index)
    return fleet


def run(fleet: Fleet, **gates):
    return static_pools.run(fleet.world(**gates))


@pytest.mark.promise("DIS-7.3")
def test_static_drift_replaces_by_the_bare_template_within_budget():
    """The pool holds a number of machines whatever runs on them."""
    result = run(static_fleet(4, budgets=["2"]))
    assert [c.nodes for c in result.commands] == [("n0",), ("n1",)]
    claim = result.commands[0].replacements[0]
    assert (claim.node_pool, claim.instance_types, claim.pods) == ("default", (), ())


@pytest.mark.promise("DIS-7.3")
def test_static_drift_waits_for_scale_down():
    """A machine that is about to go needs no replacement."""
    assert run(static_fleet(4, replicas=3)).commands == ()


@pytest.mark.promise("DIS-7.3")
def test_s1_static_drift_keeps_to_the_node_limit():
    """Promised machines count."""
    fleet = static_fleet(3, limits={"nodes": "5"})
    assert len(run(fleet).commands) == 2
    fleet.promised = {"default": {"nodes": 1}}
    assert len(run(fleet).commands) == 1


@pytest.mark.promise("DIS-7.3.1", "DIS-18.16")
def test_acceptance_16_static_pool_at_its_limit():
    """Blocked, or with the gate terminated first when it can be refilled."""
    fleet = static_fleet(3, limits={"nodes": "3"})
    blocked = run(fleet)
    assert blocked.commands == ()
    assert {n.message for n in blocked.notices} == {
        "Static NodePool is at its node limit and cannot stage a replacement"
    }
    first = run(fleet, terminate_first_drift=True)
    assert {c.terminate_first_reason for c in first.commands} == {"static-at-limit"}
    assert all(c.decision is Decision.TERMINATE_FIRST and not c.replacements for c in first.commands)
    not_ready = static_fleet(3, limits={"nodes": "3"}, ready=False)
    assert run(not_ready, terminate_first_drift=True).commands == ()


def reserved_static(units: int = 0, **pool) -> Fleet:
    fleet = Fleet()
    fleet.type("r", cpu=4, reserved=("cr-1", units), on_demand=False)
    fleet.pool(**({"budgets": ["100%"], "replicas": 3, "capacity_types": ["reserved"]} | pool))
    for index, reservation in enumerate(("cr-0", "cr-1", "cr-1")):
        fleet.node(
            f"n{index}", type="r", capacity_type=labels.RESERVED, reservation=reservation, drifted=NOON - 600 + index
        )
    return fleet


@pytest.mark.promise("DIS-7.3.2", "DIS-18.16")
def test_acceptance_16_full_reservation_terminates_only_its_holders_first():
    """Even with room under the limit: a replacement could not be had."""
    result = run(reserved_static(limits={"nodes": "9"}), terminate_first_drift=True)
    assert [(c.nodes, c.terminate_first_reason) for c in result.commands] == [
        (("n1",), "no-reserved-capacity"),
        (("n2",), "no-reserved-capacity"),
    ]
    assert [n.name for n in result.notices if "capacity reservations are full" in n.message] == ["n0"]


@pytest.mark.promise("DIS-7.3.2", "DIS-18.16")
def test_acceptance_16_template_that_admits_on_demand_is_replaced_first():
    """Even when on-demand cannot be had now."""
    fleet = reserved_static(capacity_types=["reserved", "on-demand"])
    fleet.type("o", cpu=4, price=1.0, available=False)
    result = run(fleet, terminate_first_drift=True)
    assert {c.decision for c in result.commands} == {Decision.REPLACE}


@pytest.mark.promise("DIS-6.1.2", "DIS-17.14")
def test_terminate_first_drain_is_bounded():
    """Q14: its pods wait for the slot, so one stuck pod must not keep all down for ever."""
    fleet = static_fleet(3, limits={"nodes": "3"})
    commands = run(fleet, terminate_first_drift=True).commands
    assert all(c.targets[0].drain_bound_s for c in commands)
    fleet.node("n0", drifted=NOON - 600, grace="10m")
    own = run(fleet, terminate_first_drift=True).commands[0].targets[0]
    assert (own.node, own.drain_bound_s) == ("n0", None)


def reserved_dynamic(units: int = 0, available: bool = True, pods=None, **pool) -> Fleet:
    fleet = Fleet()
    fleet.type("r", cpu=4, reserved=("cr-1", units), on_demand=False, available=available)
    fleet.pool(**({"budgets": ["100%"], "capacity_types": ["reserved"]} | pool))
    running = [pod("x", cpu=4)] if pods is None else pods
    fleet.node("a", type="r", capacity_type=labels.RESERVED, reservation="cr-1", pods=running, drifted=NOON - 60)
    return fleet


def drifted(fleet: Fleet, gate: bool = True):
    return drift.run(fleet.world(terminate_first_drift=gate), fleet.simulation())


@pytest.mark.promise("DIS-6.1.1", "DIS-18.15")
def test_acceptance_15_full_reservation_blocks_drift_without_the_gate():
    """There is nowhere to go."""
    result = drifted(reserved_dynamic(), gate=False)
    assert result.commands == ()
    assert "default/x" in result.notices[-1].message


@pytest.mark.promise("DIS-6.1.1", "DIS-18.15")
def test_acceptance_15_gate_terminates_first_into_the_freed_slot():
    """The machine's own unit is what its successor needs."""
    (command,) = drifted(reserved_dynamic()).commands
    assert command.decision is Decision.TERMINATE_FIRST
    assert command.terminate_first_reason == "no-reserved-capacity"
    assert command.replacements == ()


@pytest.mark.promise("DIS-6.1.1", "DIS-18.15")
def test_acceptance_15_more_pods_than_one_slot_holds_block():
    """Only one slot becomes free."""
    two = [pod("x", cpu=3), pod("y", cpu=3)]
    assert drifted(reserved_dynamic(pods=two)).commands == ()


@pytest.mark.promise("DIS-6.1.1", "DIS-18.15")
def test_acceptance_15_unavailable_reservation_blocks():
    """The slot would not come back."""
    assert drifted(reserved_dynamic(available=False)).commands == ()


@pytest.mark.promise("DIS-6.1.1", "DIS-18.15")
def test_acceptance_15_any_other_way_is_replace_first():
    """A spare slot, on-demand in the pool, or a lower pool."""
    assert drifted(reserved_dynamic(units=1)).commands[0].decision is Decision.REPLACE
    mixed = reserved_dynamic(capacity_types=["reserved", "on-demand"])
    mixed.type("o", cpu=4, price=1.0)
    assert drifted(mixed).commands[0].decision is Decision.REPLACE
    lower = reserved_dynamic(weight=10)
    lower.pool("lower", capacity_types=["on-demand"], weight=1)
    lower.type("o", cpu=4, price=1.0)
    (command,) = drifted(lower).commands
    assert command.decision is Decision.REPLACE
    assert command.replacements[0].node_pool == "lower"


def test_static_pool_with_unknown_types_is_reported_and_passed_over():
    """Nothing can be said about its reservations."""
    fleet = static_fleet(3)
    world = fleet.world(terminate_first_drift=True)
    with pytest.raises(static_pools.TypesUnknown):
        fleet.unknown_types.add("default")
        static_pools.reservations(fleet.world(), fleet.pools["default"])
    assert world.judge(world.by_name["n0"], static_pools.DisruptionClass.EVENTUAL) is not None
    blocked = fleet.world(terminate_first_drift=True)
    judged = blocked.judge(blocked.by_name["n0"], static_pools.DisruptionClass.EVENTUAL)
    assert judged.why is Why.POOL_NOT_FOUND
