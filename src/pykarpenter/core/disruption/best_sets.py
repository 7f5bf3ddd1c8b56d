"""The best consolidation found, not the first: sets of machines beyond the prefixes of one ordering.

Karpenter's search has answered before; its command stays unless a set is found that saves more after the price of the
pods it moves. Many sets are looked at quickly, the most promising go through the full simulation, the rules of prices,
pay-back and Balanced pools, and only what passes all of them is a command. Budgets bound every set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pykarpenter.core.cover.problem import Floats
from pykarpenter.core.disruption.allowance import Allowances
from pykarpenter.core.disruption.balanced import Scales, approve
from pykarpenter.core.disruption.blockers import Blocker, Notice
from pykarpenter.core.disruption.calm import counted
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.disruption.commands import Command, DisruptionClass, Method, MethodRun, Reason
from pykarpenter.core.disruption.consolidation import Proposal, candidate_notices, propose, without_same_type
from pykarpenter.core.disruption.selection import consolidation_blocker, node_notice
from pykarpenter.core.disruption.simulation import KnowsFleet, Simulation
from pykarpenter.core.fleet.moves import Effort, MoveSearch
from pykarpenter.core.fleet.problem import FleetProblem
from pykarpenter.core.packing.fleet_view import FleetView, Movable
from pykarpenter.core.packing.lower_bound import HAS_SOLVER
from pykarpenter.core.reasons import Why

# Sets that the full simulation looks at, the most promising first, and sets looked at before it is asked.
VERIFIED = 12
LOOKED_AT = 48
# New machines that one set may need where more than one is allowed.
MOST_REPLACEMENTS = 5
_GAIN = 1e-9
# What speaks against one replacement, but perhaps not against several.
_ONE_IS_NOT_ENOUGH = (Why.TOO_MANY_REPLACEMENTS, Why.NOT_CHEAPER, Why.SAME_TYPE)

Budgets = tuple[tuple[str, int], ...]


@dataclass(slots=True)
class Found:
    """What the search came to; `command` None leaves the first one in place."""

    command: Command | None = None
    # The first command would save nothing: a machine would have to be bought for pods that do not land as planned.
    first_would_stray: bool = False
    eligible: int = 0
    trials: int = 0
    considered: int = 0
    notices: list[Notice] = field(default_factory=list)
    scores: list[tuple[str, bool, float]] = field(default_factory=list)

    def as_run(self) -> MethodRun:
        """The answer in the form of the method that such a command belongs to."""
        assert self.command is not None
        return MethodRun(
            method=self.command.method,
            reason=Reason.UNDERUTILIZED,
            commands=(self.command,),
            eligible=self.eligible,
            considered=self.considered,
            notices=tuple(self.notices),
            scores=tuple(self.scores),
        )


def budgets(world: World) -> Budgets:
    """How many machines each pool may give up now; part of what an answer depends on."""
    allowances = Allowances(world, Reason.UNDERUTILIZED)
    return tuple((pool, allowances.usable(pool)) for pool in sorted(allowances.pools))


def search(
    world: World,
    simulation: Simulation,
    first: Command | None,
    should_stop: Callable[[], bool],
    effort: Effort | None = None,
) -> Found:
    """A command that is better than `first`, if one is found before the stop."""
    candidates = _candidates(world)
    found = Found(eligible=len(candidates))
    if not candidates or not HAS_SOLVER or not isinstance(simulation, KnowsFleet):
        return found
    movable = [Movable(c.name, c.price or 0.0, c.pods) for c in candidates.values()]
    view = simulation.fleet(movable, world.settling)
    if view is None:
        return found
    many = world.settings.many_replacements
    moves = MoveSearch(
        view.problem,
        fair_prices(view.problem),
        _moving(world, view, candidates),
        [candidates[name].pool.name if name in candidates else "" for name in view.nodes],
        dict(budgets(world)),
        MOST_REPLACEMENTS if many else 1,
    )
    best = _net(world, first, candidates)
    if first is not None and _risked(moves, view, first.nodes) >= best > 0:
        found.first_would_stray, best = True, 0.0
    scales = Scales(world)
    for move in moves.run(effort or Effort(), should_stop)[:LOOKED_AT]:
        # What is left promises less than what is held already.
        if should_stop() or found.considered >= VERIFIED or move.net <= best + _GAIN:
            break
        if moves.risked(move.rows) >= move.net:
            continue
        found.considered += 1
        accepted = _verified(world, simulation, [candidates[view.nodes[row]] for row in move.rows], scales, found)
        if accepted is None or (net := _net(world, accepted[0], candidates)) <= best + _GAIN:
            continue
        (found.command, found.notices), best = accepted, net
    found.trials = moves.trials
    return found


def _risked(moves: MoveSearch, view: FleetView, nodes: Sequence[str]) -> float:
    """What pods that do not land as planned may cost; nothing is said about machines that the view does not have."""
    rows = {name: row for row, name in enumerate(view.nodes)}
    return moves.risked(rows[name] for name in nodes) if all(name in rows for name in nodes) else 0.0


def fair_prices(problem: FleetProblem) -> Floats:
    """What a pod of each class is worth in the cheapest fleet that resources allow: the duals of the bound."""
    from pykarpenter.core.cover.bound import Relaxation

    kinds = problem.kinds
    fair: Floats = (Relaxation(kinds).solve(kinds.demand).worth * kinds.requests).sum(axis=1)
    return fair


def _candidates(world: World) -> dict[str, Candidate]:
    """Machines that consolidation may take, by name."""
    found: dict[str, Candidate] = {}
    for _, judged in world.candidates(DisruptionClass.GRACEFUL):
        if not isinstance(judged, Blocker) and consolidation_blocker(world, judged) is None:
            found[judged.name] = judged
    return found


def _moving(world: World, view: FleetView, candidates: dict[str, Candidate]) -> Floats:
    """What moving each machine's pods has to earn, in $/h."""
    price = world.settings.eviction_price
    return np.array(
        [price * counted(world, [candidates[name]]) if name in candidates else 0.0 for name in view.nodes], np.float64
    )


def _net(world: World, command: Command | None, candidates: dict[str, Candidate]) -> float:
    """What a command saves beyond the price of the pods it moves."""
    if command is None:
        return 0.0
    moved = [candidates[name] for name in command.nodes if name in candidates]
    return (command.saving or 0.0) - world.settings.eviction_price * counted(world, moved)


def _several(
    world: World, simulation: Simulation, candidates: Sequence[Candidate], method: Method
) -> Proposal | Blocker:
    """A command with more than one replacement; with one it would have been found before."""
    proposal = propose(world, simulation, candidates, method, MOST_REPLACEMENTS)
    if isinstance(proposal, Blocker) or len(proposal.command.replacements) > 1:
        return proposal
    return Blocker(Why.NOT_CHEAPER, "one replacement is as cheap as several")


def _verified(
    world: World, simulation: Simulation, candidates: Sequence[Candidate], scales: Scales, found: Found
) -> tuple[Command, list[Notice]] | None:
    """The command for a set and its events, once the full simulation and every rule have accepted it."""
    method = Method.MULTI_NODE if len(candidates) > 1 else Method.SINGLE_NODE
    proposal = propose(world, simulation, candidates, method)
    if isinstance(proposal, Blocker) and world.settings.many_replacements and proposal.why in _ONE_IS_NOT_ENOUGH:
        proposal = _several(world, simulation, candidates, method)
    if not isinstance(proposal, Blocker) and len(candidates) > 1:
        proposal = without_same_type(world, candidates, proposal)
    if isinstance(proposal, Blocker):
        return None
    approved, verdicts = approve(scales, candidates, proposal.command)
    found.scores.extend((v.pool, v.approved, v.score) for v in verdicts)
    if isinstance(approved, Blocker):
        return None
    notices = candidate_notices(candidates, proposal)
    if len(candidates) > 1:
        notices += [Notice("NodePool", v.pool, "ConsolidationApproved", v.text()) for v in verdicts]
    else:
        notices += [node_notice(candidates[0].view, "ConsolidationApproved", v.text()) for v in verdicts]
    return approved, notices
