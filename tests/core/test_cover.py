"""Covers hold the demand, bounds never exceed what a cover can cost, and equal input gives equal answers."""

import itertools

import numpy as np
import pytest

from pykarpenter.core.cover.bound import Relaxation, resource_bound
from pykarpenter.core.cover.columns import NORMAL, column_cover
from pykarpenter.core.cover.exact import exact_cover, is_small
from pykarpenter.core.cover.greedy import default_weightings, greedy_cover
from pykarpenter.core.cover.problem import CoverProblem


def never() -> bool:
    return False


def random_problem(seed: int, classes: int = 4, machines: int = 4, most: int = 3) -> CoverProblem:
    draw = np.random.default_rng(seed)
    requests = draw.integers(1, 9, (classes, 2))
    capacity = draw.integers(8, 20, (machines, 2))
    price = np.round(capacity @ np.array([0.03, 0.01]) * draw.uniform(0.8, 1.3, machines), 3)
    allowed = draw.random((classes, machines)) < 0.8
    allowed[:, 0] = True
    return CoverProblem(requests, draw.integers(1, most, classes), capacity, price, allowed)


def cheapest_by_force(problem: CoverProblem) -> float:
    """The optimum by trying every filling for every state of the remaining demand."""
    fillings = []
    for machine in range(problem.machines):
        most = problem.most_of_each(machine)
        for counts in itertools.product(*(range(int(m) + 1) for m in most)):
            chosen = np.array(counts)
            if chosen.any() and (problem.requests.T @ chosen <= problem.capacity[machine]).all():
                fillings.append((counts, float(problem.price[machine])))
    known = {tuple(0 for _ in problem.demand): 0.0}

    def cost(left: tuple[int, ...]) -> float:
        if left not in known:
            known[left] = min(
                price + cost(tuple(max(0, n - c) for n, c in zip(left, counts, strict=True)))
                for counts, price in fillings
                if any(c and n for n, c in zip(left, counts, strict=True))
            )
        return known[left]

    return cost(tuple(int(n) for n in problem.demand))


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_never_exceeds_the_optimum_and_covers_never_undercut_it(seed):
    """A bound above the optimum would promise what cannot be had."""
    problem = random_problem(seed)
    optimum = cheapest_by_force(problem)
    result = column_cover(problem, NORMAL, never)
    assert resource_bound(problem)[0] <= optimum + 1e-9
    assert result.bound <= optimum + 1e-6
    assert result.cover is not None
    assert result.cover.cost >= optimum - 1e-9


@pytest.mark.parametrize("seed", range(8))
def test_a_cover_holds_exactly_the_demand_within_every_machine(seed):
    """A cheap cover that forgets a pod or overfills a machine is no cover."""
    problem = random_problem(seed, classes=8, machines=6, most=40)
    _, worth = resource_bound(problem)
    value = (worth * problem.requests).sum(axis=1)
    greedy = greedy_cover(problem, value, default_weightings(problem), Relaxation(problem).machines)
    for cover in (greedy, column_cover(problem, NORMAL, never).cover):
        assert cover is not None
        assert (sum(p.counts * p.times for p in cover.patterns) == problem.demand).all()
        for pattern in cover.patterns:
            assert (problem.requests.T @ pattern.counts <= problem.capacity[pattern.machine]).all()
            assert not (pattern.counts > 0)[~problem.allowed[:, pattern.machine]].any()


def test_equal_input_gives_an_equal_cover():
    """Plans must not differ between two replicas that see the same cluster."""
    first, second = (column_cover(random_problem(3, 8, 6, 40), NORMAL, never) for _ in range(2))
    assert first.bound == second.bound
    assert first.cover is not None
    assert second.cover is not None
    assert [(p.machine, p.counts.tolist(), p.times) for p in first.cover.patterns] == [
        (p.machine, p.counts.tolist(), p.times) for p in second.cover.patterns
    ]


def test_a_class_that_fits_nowhere_makes_no_cover_and_no_bound_of_its_own():
    """An impossible pod must not raise the price of the possible ones."""
    problem = random_problem(1)
    requests = problem.requests.copy()
    requests[0] = 1000
    assert (
        column_cover(
            CoverProblem(requests, problem.demand, problem.capacity, problem.price, problem.allowed), NORMAL, never
        ).cover
        is None
    )


@pytest.mark.parametrize("seed", range(12))
def test_a_small_demand_is_covered_at_the_optimum(seed):
    """Most batches are a few pods of a few kinds: there the cheapest cover is found, not a good one."""
    problem = random_problem(seed)
    assert is_small(problem)
    found = exact_cover(problem)
    assert found is not None
    held = np.zeros(problem.classes, dtype=np.int64)
    for bundle in found:
        assert problem.allowed[bundle.classes, bundle.machine].all()
        assert (bundle.pods @ problem.requests[bundle.classes] <= problem.capacity[bundle.machine]).all()
        held[bundle.classes] += bundle.pods * bundle.times
    assert (held == problem.demand).all()
    price = sum(problem.price[bundle.machine] * bundle.times for bundle in found)
    assert price == pytest.approx(cheapest_by_force(problem))


def test_where_machines_weigh_more_than_their_price_fewer_are_taken():
    """Two small machines at nearly the price of a large one lose more to remainders than they save."""
    problem = CoverProblem(
        np.array([[1, 1]]), np.array([4]), np.array([[2, 2], [4, 4]]), np.array([0.1, 0.204]), np.ones((1, 2), bool)
    )
    cheapest, fewest = exact_cover(problem), exact_cover(problem, per_machine=0.01)
    assert cheapest is not None
    assert fewest is not None
    assert [(bundle.machine, bundle.times) for bundle in cheapest] == [(0, 2)]
    assert [(bundle.machine, bundle.times) for bundle in fewest] == [(1, 1)]


def test_a_pod_that_no_machine_holds_has_no_exact_cover():
    """Nothing may be left out silently."""
    problem = CoverProblem(
        np.array([[9, 1]]), np.array([1]), np.array([[2, 2]]), np.array([0.1]), np.ones((1, 1), bool)
    )
    assert exact_cover(problem) is None


def test_a_large_batch_is_no_small_demand_however_many_mixes_it_has():
    """The number of mixes of a thousand classes is beyond any number type; that must neither warn nor wrap."""
    many = np.ones((2000, 1), dtype=np.int64)
    problem = CoverProblem(many, np.full(2000, 9), np.array([[4]]), np.array([1.0]), np.ones((2000, 1), dtype=bool))
    assert not is_small(problem)
