"""Fleet plans keep every pod, fit every machine, and never cost more than doing nothing."""

import numpy as np
import pytest

from pykarpenter.core.cover.bound import resource_bound
from pykarpenter.core.cover.problem import CoverProblem
from pykarpenter.core.fleet.problem import FleetProblem, first_draft
from pykarpenter.core.fleet.search import Front, Trials, search


def half_empty_fleet(seed: int, nodes: int = 12) -> FleetProblem:
    draw = np.random.default_rng(seed)
    requests = np.array([[200, 512], [500, 1024], [1000, 4096], [1500, 2048]])
    capacity = np.array([[1900, 3500], [3900, 7500], [3900, 15500], [7900, 15500], [7900, 31500]])
    price = np.array([0.085, 0.17, 0.20, 0.34, 0.40])
    kind = draw.integers(0, len(price), nodes)
    pods = np.zeros((nodes, len(requests)), np.int64)
    for node in range(nodes):
        for index in draw.permutation(len(requests))[:2]:
            room = int(((capacity[kind[node]] - pods[node] @ requests) // requests[index]).min())
            pods[node, index] = draw.integers(0, room // 2 + 1)
    kinds = CoverProblem(requests, pods.sum(axis=0), capacity, price, np.ones((len(requests), len(price)), bool))
    free = capacity[kind] - pods @ requests
    return FleetProblem(
        kinds,
        price[kind],
        free,
        pods,
        draw.random(nodes) < 0.9,
        np.ones((nodes, len(requests)), bool),
        np.ones(len(requests)),
    )


def run(problem: FleetProblem) -> Front:
    _, worth = resource_bound(problem.kinds)
    value = (worth * problem.kinds.requests).sum(axis=1)
    return search(problem, value, [first_draft(problem)], Trials(per_price=40), lambda: False)


@pytest.mark.parametrize("seed", range(6))
def test_every_displaced_pod_has_a_place_that_holds_it(seed):
    """A plan that loses a pod or overfills a machine must never leave the planner."""
    problem = half_empty_fleet(seed)
    for plan in run(problem).plans():
        displaced = problem.node_pods[list(plan.removed)].sum(axis=0)
        landed = sum((c for _, c in plan.moved_in), np.zeros(4, np.int64))
        landed = landed + sum((p.counts for p in plan.bought), np.zeros(4, np.int64))
        assert (displaced == landed).all()
        for node, counts in plan.moved_in:
            assert node not in plan.removed
            assert (counts @ problem.kinds.requests <= problem.node_free[node]).all()
        for purchase in plan.bought:
            assert (purchase.counts @ problem.kinds.requests <= problem.kinds.capacity[purchase.kind]).all()
        assert all(problem.node_removable[list(plan.removed)])


@pytest.mark.parametrize("seed", range(6))
def test_the_front_starts_at_doing_nothing_and_only_gets_cheaper(seed):
    """More disturbance has to buy a lower bill."""
    problem = half_empty_fleet(seed)
    plans = run(problem).plans()
    assert plans[0].price_per_hour <= problem.node_price.sum() + 1e-9
    bills = [p.price_per_hour for p in plans]
    assert bills == sorted(bills, reverse=True)
    assert [p.displaced for p in plans] == sorted(p.displaced for p in plans)


def test_an_eviction_price_above_every_saving_keeps_the_fleet_quiet():
    """Users set the price so that pods are not moved for pennies."""
    problem = half_empty_fleet(2)
    assert run(problem).best(eviction_price=100.0).displaced == 0


def test_equal_fleets_give_equal_plans():
    """Two replicas must not disagree."""
    first, second = (run(half_empty_fleet(4)).plans() for _ in range(2))
    assert [(p.removed, p.price_per_hour) for p in first] == [(p.removed, p.price_per_hour) for p in second]
