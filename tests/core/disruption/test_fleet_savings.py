"""Savings of a fleet: verified commands that pay for the pods they move, never worse than Karpenter's search."""

import pytest
from benchmarks.disruption import snapshot

from pykarpenter.cli.consolidate_output import lines, picture, values
from pykarpenter.core.disruption.candidates import World
from pykarpenter.core.disruption.engine import PackingSimulations
from pykarpenter.core.disruption.fleet_savings import FleetSavings, Wishes, fleet_savings
from pykarpenter.core.disruption.simulation import simulate
from pykarpenter.core.fleet.search import Trials
from pykarpenter.core.packing.what_if import WhatIfBase

FEW = Trials(per_price=10, rounds=1)


def savings(fill: float, price: float = 0.001, many: bool = False) -> tuple[World, FleetSavings]:
    frozen, packing, settings = snapshot(12, fill)
    world = World(frozen, settings)
    wishes = Wishes(price, many, FEW)
    simulation = PackingSimulations(packing)(frozen)
    return world, fleet_savings(world, simulation, WhatIfBase(frozen, packing), wishes, lambda: False)


@pytest.mark.parametrize("many", [False, True])
def test_every_command_holds_in_the_full_simulation(many):
    """Nothing may be promised that scheduling would not do."""
    world, answer = savings(0.5, many=many)
    frozen, packing, _ = snapshot(12, 0.5)
    gone = [name for command in answer.commands for name in command.removed]
    assert gone and len(gone) == len(set(gone))
    by_name = {c.name: c for _, c in world.candidates("graceful")}
    outcome = simulate(world, PackingSimulations(packing)(frozen), [by_name[name] for name in gone], consolidation=True)
    assert outcome.ok
    bought = sum(claim.choice.price for claim in outcome.claims)
    paid = sum(by_name[name].price for name in gone)
    assert answer.price_now - answer.price_after == pytest.approx(paid - bought)
    assert answer.displaced == sum(len(by_name[name].pods) for name in gone)
    if not many:
        assert all(len(command.replacements) <= 1 for command in answer.commands)


def test_never_worse_than_karpenters_own_command():
    """Whoever switches must not lose a saving that the old search finds."""
    _, answer = savings(0.5)
    theirs = answer.compatible
    saved = answer.price_now - answer.price_after
    assert saved - 0.001 * answer.displaced >= theirs.saving - 0.001 * theirs.pod_count - 1e-9
    assert answer.lower_bound <= answer.price_after + 1e-9


def test_a_high_eviction_price_ends_in_silence():
    """No pod is moved for pennies, and the user is told how little there is to gain."""
    _, answer = savings(0.5, price=100.0)
    assert answer.commands == ()
    assert "of the optimum, nothing worth moving" in lines(answer, 100.0)[-1]


def test_the_answer_is_shown_as_table_data_and_picture():
    """The numbers of the table and of the data are the same."""
    _, answer = savings(0.5)
    data = values(answer, 0.001)
    assert data["displacedPods"] == answer.displaced
    assert len(data["commands"]) == len(answer.commands)
    assert f"${answer.price_after:.4f}/h" in "\n".join(lines(answer, 0.001))
    assert picture(answer).startswith("<svg ")
