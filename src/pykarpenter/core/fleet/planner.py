"""Plan a fleet: the bound nothing can undercut, guesses from it, and the search that polishes them.

The answer is a front of (displaced pods, $/h); whoever asks picks the point at their eviction price.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pykarpenter.core.cover.bound import Relaxation
from pykarpenter.core.cover.columns import Effort, column_cover
from pykarpenter.core.fleet.guided import guesses
from pykarpenter.core.fleet.problem import Draft, FleetProblem, first_draft
from pykarpenter.core.fleet.search import Front, Trials, search

# Fillings for the guesses and a proven bound: less drawing than for a cover, the guides make their own.
_COLUMNS = Effort(draws=60, rounds=8, search_nodes=20)


@dataclass(frozen=True, slots=True)
class FleetAnswer:
    """The plans worth having, and what no fleet for the same pods could cost less than, in $/h."""

    front: Front
    lower_bound: float


def plan_fleet(
    problem: FleetProblem, starts: Sequence[Draft], trials: Trials, should_stop: Callable[[], bool], seed: int = 0
) -> FleetAnswer:
    """`starts` are fleets known to be reachable, besides the fleet as it is: the answer is never worse than they."""
    kinds = problem.kinds
    columns = column_cover(kinds, _COLUMNS, should_stop, seed)
    worth = Relaxation(kinds).solve(kinds.demand).worth
    value = (worth * kinds.requests).sum(axis=1)
    found = guesses(problem, value, columns.fillings, should_stop)
    front = search(problem, value, [first_draft(problem), *starts], trials, should_stop, seed, guesses=found)
    return FleetAnswer(front, columns.bound)
