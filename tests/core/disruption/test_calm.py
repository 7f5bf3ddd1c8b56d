"""Consolidation pays for the pods it moves, and more for workloads that were moved within a day."""

from dataclasses import replace

import pytest
from benchmarks.disruption import snapshot

from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.calm import AT_ONCE, HORIZON_S, weight, workload_of
from pykarpenter.core.disruption.candidates import World
from pykarpenter.core.disruption.commands import Method
from pykarpenter.core.disruption.consolidation import Proposal, propose
from pykarpenter.core.disruption.engine import PackingSimulations
from pykarpenter.core.disruption.fleet_savings import fleet_bound, removable
from pykarpenter.core.disruption.settings import Memory
from pykarpenter.core.packing.what_if import WhatIfBase
from pykarpenter.core.reasons import Why


def offer(eviction_price: float, displaced_ago: float | None = None) -> tuple[Proposal | Blocker, int]:
    """What is proposed for one machine whose pods fit elsewhere."""
    frozen, packing, settings = snapshot(6, 0.4)
    pods = [pod for view in frozen.nodes for pod in view.pods]
    moved = {} if displaced_ago is None else {workload_of(pod): frozen.now - displaced_ago for pod in pods}
    world = World(frozen, replace(settings, eviction_price=eviction_price), Memory(displaced_at=moved))
    candidate = removable(world)[0]
    found = propose(world, PackingSimulations(packing)(frozen), [candidate], Method.SINGLE_NODE)
    return found, len(candidate.pods)


def break_even() -> float:
    """$/h for each pod at which the machine's going just pays."""
    found, pods = offer(0.0)
    return found.command.saving / pods


@pytest.mark.parametrize(("share", "pays"), [(0.99, True), (1.01, False)])
def test_a_command_saves_at_least_the_eviction_price_of_each_pod(share, pays):
    """Users set what a moved pod is worth to them; nothing moves for less."""
    found, _ = offer(break_even() * share)
    assert isinstance(found, Proposal) == pays
    if not pays:
        assert found.why is Why.PAY_BACK
        assert "does not pay for moving" in found.message


@pytest.mark.parametrize(("ago", "pays"), [(None, True), (60.0, False), (HORIZON_S - 1, False), (HORIZON_S, True)])
def test_a_workload_moved_within_a_day_has_to_pay_for_both_moves(ago, pays):
    """A pod and its successor must not wander from node to node for the same saving."""
    found, _ = offer(break_even() * 0.6, ago)
    assert isinstance(found, Proposal) == pays


@pytest.mark.parametrize(("hours", "times"), [(0.1, AT_ONCE), (1, AT_ONCE), (8, 3), (12, 2), (23, 2), (24, 1)])
def test_only_the_moved_workload_counts_more_and_the_less_the_longer_ago(hours, times):
    """Others stay as movable as they were; what moved just now has to promise much."""
    frozen, _, _ = snapshot(2, 0.5)
    pods = list(frozen.nodes[0].pods)
    first = workload_of(pods[0])
    same = sum(workload_of(pod) == first for pod in pods)
    assert weight(pods, {first: 0.0}, hours * 3600) == pytest.approx(len(pods) - same + times * same)


@pytest.mark.parametrize(("stood_h", "times"), [(0.5, AT_ONCE), (8, 3), (12, 2), (200, 2)])
def test_a_machine_that_stood_for_long_is_trusted_though_its_workload_moved_lately(stood_h, times):
    """Of a large workload some pod moved lately; machines that have stood for hours may go nevertheless."""
    frozen, _, _ = snapshot(2, 0.5)
    pods = list(frozen.nodes[0].pods)
    moved = {workload_of(pod): 0.0 for pod in pods}
    assert weight(pods, moved, 1800.0, stood_h * 3600) == pytest.approx(times * len(pods))


def test_the_bound_of_a_running_fleet_is_below_its_bill():
    """The gap that users see must never be negative."""
    frozen, packing, settings = snapshot(6, 0.4)
    price, bound = fleet_bound(World(frozen, settings), WhatIfBase(frozen, packing))
    assert 0 < bound < price
