"""The search over sets: never worse than Karpenter's command, within budgets, nothing that was not simulated."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from benchmarks.disruption import snapshot

from pykarpenter.api import labels
from pykarpenter.api.nodepool import Budget
from pykarpenter.api.pods import NodeSelectorRequirement
from pykarpenter.core.cover.problem import CoverProblem
from pykarpenter.core.disruption import best_sets
from pykarpenter.core.disruption.calm import must_save
from pykarpenter.core.disruption.candidates import World
from pykarpenter.core.disruption.commands import Command, DisruptionClass
from pykarpenter.core.disruption.decide import decide
from pykarpenter.core.disruption.engine import PackingSimulations
from pykarpenter.core.disruption.prices import worst_launch_price
from pykarpenter.core.disruption.settings import Memory
from pykarpenter.core.disruption.simulation import simulate
from pykarpenter.core.disruption.validation import validate
from pykarpenter.core.fleet.landing import strays
from pykarpenter.core.fleet.moves import Effort, MoveSearch
from pykarpenter.core.fleet.problem import FleetProblem
from pykarpenter.core.requirements import from_expressions
from tests.core.test_fleet_search import half_empty_fleet
from tests.support.perfect import GRACEFUL

PRICE = 0.001


def decided(fill: float, seed: int = 1, budget: str = "100%", many: bool = False, best: bool = True):
    frozen, packing, settings = snapshot(12, fill, seed)
    (pool,) = frozen.node_pools
    disruption = msgspec.structs.replace(pool.spec.disruption, budgets=[Budget(nodes=budget)])
    pool = msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, disruption=disruption))
    frozen = replace(frozen, node_pools=(pool,))
    world = World(frozen, replace(settings, eviction_price=PRICE, best_sets=best, many_replacements=many))
    simulation = PackingSimulations(packing)(frozen)
    return world, simulation, decide(world, simulation, methods=GRACEFUL)


def net(command: Command | None) -> float:
    return (command.saving or 0.0) - PRICE * command.pod_count if command is not None else 0.0


def only(plan) -> Command | None:
    assert len(plan.commands) <= 1
    return plan.commands[0] if plan.commands else None


CASES = [(fill, seed) for fill in (0.4, 0.6, 0.8) for seed in (1, 2, 3)]


@pytest.mark.parametrize("budget", ["10%", "100%"])
def test_never_worse_than_karpenters_command_and_better_in_most(budget):
    """Whoever switches must not lose a saving, and should gain some."""
    theirs = [net(only(decided(*case, budget=budget, best=False)[2])) for case in CASES]
    ours = [net(only(decided(*case, budget=budget)[2])) for case in CASES]
    assert all(a >= b - 1e-9 for a, b in zip(ours, theirs, strict=True))
    assert sum(a > b + 1e-6 for a, b in zip(ours, theirs, strict=True)) >= 3


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("fill", "seed"), CASES)
def test_s13_what_leaves_was_accepted_by_the_full_simulation_and_pays_at_its_worst_launch(fill, seed, many):
    """A quick look may be wrong; the command may not."""
    world, simulation, plan = decided(fill, seed, many=many)
    command = only(plan)
    if command is None:
        return
    by_name = {c.name: c for _, c in world.candidates(DisruptionClass.GRACEFUL)}
    candidates = [by_name[name] for name in command.nodes]
    mix = len(command.replacements) > 1
    assert simulate(world, simulation, candidates, consolidation=True, cheapest_mix=mix).ok
    assert validate(world, simulation, command).command is command
    assert many or len(command.replacements) <= 1
    rules = world.settings.label_rules
    worst = 0.0
    for claim in command.replacements:
        requirements = from_expressions(claim.requirements, rules)
        kinds = [world.types(claim.node_pool)[name] for name in claim.instance_types]
        worst += max(worst_launch_price(kind, requirements, rules) for kind in kinds)
    assert command.price_now - worst >= must_save(world, candidates) - 1e-9


def test_several_replacements_are_found_where_one_is_not_enough():
    """A large machine with a few pods becomes a few small ones, where the catalogue has nothing in between."""
    frozen, packing, settings = snapshot(1, 0.12, seed=next(s for s in range(99) if large(s)))
    (pool,) = frozen.node_pools
    kinds = NodeSelectorRequirement(
        key=labels.INSTANCE_TYPE, operator="In", values=["c-32x-amd64-linux", "c-2x-amd64-linux"]
    )
    template = pool.spec.template
    template.spec.requirements.append(kinds)
    simulation = PackingSimulations(packing)(frozen)
    settings = replace(settings, eviction_price=PRICE, best_sets=True)
    assert only(decide(World(frozen, settings), simulation, methods=GRACEFUL)) is None
    command = only(decide(World(frozen, replace(settings, many_replacements=True)), simulation, methods=GRACEFUL))
    assert command is not None and 2 <= len(command.replacements) <= 3
    assert all(claim.choice.instance_type == "c-2x-amd64-linux" for claim in command.replacements)
    assert sorted(key for claim in command.replacements for key in claim.pods) == sorted(command.targets[0].pods)


def large(seed: int) -> bool:
    (view,) = snapshot(1, 0.12, seed)[0].nodes
    return view.labels[labels.INSTANCE_TYPE] == "c-32x-amd64-linux"


@pytest.mark.parametrize("fill", [0.4, 0.6])
def test_s4_a_set_stays_within_its_pools_budget(fill):
    """Budgets bound what is disturbed at a time, whatever the saving."""
    _, _, plan = decided(fill, budget="2")
    command = only(plan)
    assert command is not None and len(command.targets) <= 2


def test_the_same_question_is_not_searched_twice(monkeypatch):
    """A quiet fleet costs nothing; other budgets or another state are a new question."""
    world, simulation, plan = decided(0.97)
    assert plan.commands == () and plan.nothing_better_at is not None
    asked: list[World] = []
    monkeypatch.setattr(best_sets, "search", lambda world, *_: asked.append(world) or best_sets.Found())
    memory = Memory(nothing_better_at=plan.nothing_better_at)
    decide(World(world.snapshot, world.settings, memory), simulation, methods=GRACEFUL)
    assert not asked
    decide(World(world.snapshot, world.settings, memory), simulation, stamp=1.0, methods=GRACEFUL)
    assert asked


def test_a_stop_ends_the_search_with_the_first_command():
    """Anytime: the compatible command is there before the search begins."""
    world, simulation, plan = decided(0.6, best=False)
    first = only(plan)
    found = best_sets.search(world, simulation, first, lambda: True)
    assert found.command is None and found.trials == 0


def quick(seed: int, usable: int = 12, most: int = 1) -> tuple[MoveSearch, list]:
    problem = half_empty_fleet(seed)
    value = best_sets.fair_prices(problem)
    moving = 0.001 * problem.node_pods.sum(axis=1)
    moves = MoveSearch(problem, value, moving, ["p"] * problem.nodes, {"p": usable}, most)
    return moves, moves.run(Effort(), lambda: False)


@pytest.mark.parametrize("seed", range(6))
def test_quick_moves_are_ordered_unique_and_removable(seed):
    """The simulation is asked in the order of what is promised."""
    problem = half_empty_fleet(seed)
    _, moves = quick(seed)
    assert moves
    assert [m.net for m in moves] == sorted((m.net for m in moves), reverse=True)
    assert len({m.rows for m in moves}) == len(moves)
    assert all(np.all(problem.node_removable[list(m.rows)]) for m in moves)
    assert all(len(m.rows) <= 1 for m in quick(seed, usable=1)[1])


def tight_fleet() -> FleetProblem:
    """One machine to go with a small and a large pod; of two that stay, one has room for exactly the large one."""
    requests = np.array([[2], [1]])
    kinds = CoverProblem(requests, np.array([1, 1]), np.array([[4]]), np.array([0.2]), np.ones((2, 1), bool))
    return FleetProblem(
        kinds,
        np.array([0.2, 0.2, 0.2]),
        np.array([[1], [2], [1]]),
        np.array([[1, 1], [0, 0], [0, 0]]),
        np.array([True, False, False]),
        np.ones((3, 2), bool),
        np.ones(2),
    )


def test_pods_that_a_scheduler_would_put_elsewhere_are_seen_to_stray():
    """A small pod goes where most is free, and the large one it leaves without a place needs a machine."""
    found = strays(tight_fleet(), (0,), {0: 1, 1: 1}, ())
    assert {} in found
    assert {0: 1} in found


def test_a_saving_that_straying_pods_would_eat_is_no_saving(monkeypatch):
    """Half of the orders need a machine at the price of the one that goes: half the saving is at risk, not all."""
    problem = tight_fleet()
    moves = MoveSearch(problem, np.array([0.05, 0.02]), np.zeros(3), ["p"] * 3, {"p": 1})
    (move,) = moves.run(Effort(), lambda: False)
    assert move.saving == pytest.approx(0.2)
    assert 0 < moves.risked(move.rows) < move.saving
    monkeypatch.setattr(MoveSearch, "risked", lambda *_: 1e9)
    assert only(decided(0.6, best=False)[2]) is not None
    _, _, plan = decided(0.6)
    assert plan.commands == ()
    assert plan.nothing_better_at is None
