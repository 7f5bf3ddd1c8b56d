"""One under-used machine at a time, taking turns between pools: the first that can go for less money goes."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pykarpenter.core.disruption.allowance import Allowances
from pykarpenter.core.disruption.balanced import Scales, approve
from pykarpenter.core.disruption.blockers import Blocker, Notice
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.disruption.commands import Command, DisruptionClass, Method, MethodRun, Reason
from pykarpenter.core.disruption.consolidation import candidate_notices, propose
from pykarpenter.core.disruption.emptiness import by_savings
from pykarpenter.core.disruption.selection import consolidation_blocker, node_notice, select
from pykarpenter.core.disruption.simulation import Simulation
from pykarpenter.core.reasons import Why


@dataclass(slots=True)
class _Search:
    """What one search gathered on its way."""

    notices: list[Notice]
    scores: list[tuple[str, bool, float]] = field(default_factory=list)
    command: Command | None = None
    considered: int = 0
    limited: bool = False
    timed_out: bool = False
    reached: set[str] = field(default_factory=set)


def run(world: World, simulation: Simulation, should_stop: Callable[[], bool]) -> MethodRun:
    selected = select(world, DisruptionClass.GRACEFUL, consolidation_blocker, "Unconsolidatable")
    search = _Search(list(selected.notices))
    ordered = taking_turns(by_savings(selected.candidates), world.memory.unseen_pools)
    if ordered:
        _search(world, simulation, ordered, search, should_stop)
    pools = sorted({candidate.pool.name for candidate in ordered})
    unseen = tuple(pool for pool in pools if pool not in search.reached) if search.timed_out else ()
    return MethodRun(
        method=Method.SINGLE_NODE,
        reason=Reason.UNDERUTILIZED,
        commands=(search.command,) if search.command is not None else (),
        eligible=len(ordered),
        considered=search.considered,
        notices=tuple(search.notices),
        timed_out=search.timed_out,
        # Without a candidate nothing was asked, so nothing is remembered: a budget of pods may open unseen.
        settled=bool(ordered) and search.command is None and not search.limited and not search.timed_out,
        unseen_pools=unseen,
        scores=tuple(search.scores),
    )


def _search(
    world: World,
    simulation: Simulation,
    ordered: Sequence[Candidate],
    search: _Search,
    should_stop: Callable[[], bool],
) -> None:
    allowances = Allowances(world, Reason.UNDERUTILIZED)
    search.notices.extend(allowances.notices())
    scales = Scales(world)
    for candidate in ordered:
        if should_stop():
            search.timed_out = True
            return
        search.reached.add(candidate.pool.name)
        if allowances.usable(candidate.pool.name) <= 0:
            search.limited = True
            continue
        if not scales.could_pass(candidate):
            continue
        search.considered += 1
        command = evaluate(world, simulation, candidate, scales, search.notices, search.scores)
        if isinstance(command, Command):
            search.command = command
            return
        # A pool that waits after a failure may have something to do later, without anything changing.
        search.limited = search.limited or command.why is Why.BACK_OFF
        # A score that did not pass is told by the metrics alone.
        if command.why is not Why.BALANCED_SCORE:
            search.notices.append(node_notice(candidate.view, "Unconsolidatable", command.text()))


def evaluate(
    world: World,
    simulation: Simulation,
    candidate: Candidate,
    scales: Scales,
    notices: list[Notice],
    scores: list[tuple[str, bool, float]],
) -> Command | Blocker:
    """The command for one machine, or the first thing in its way."""
    proposal = propose(world, simulation, [candidate], Method.SINGLE_NODE)
    if isinstance(proposal, Blocker):
        return proposal
    notices.extend(candidate_notices([candidate], proposal))
    approved, verdicts = approve(scales, [candidate], proposal.command)
    scores.extend((v.pool, v.approved, v.score) for v in verdicts)
    if isinstance(approved, Command):
        notices.extend(node_notice(candidate.view, "ConsolidationApproved", v.text()) for v in verdicts)
    return approved


def taking_turns(candidates: Sequence[Candidate], unseen_pools: Sequence[str]) -> list[Candidate]:
    """One of each pool in turn; pools that the last search did not reach come first, the others by name."""
    queues: dict[str, deque[Candidate]] = defaultdict(deque)
    for candidate in candidates:
        queues[candidate.pool.name].append(candidate)
    first = [pool for pool in unseen_pools if pool in queues]
    order = first + [pool for pool in sorted(queues) if pool not in first]
    result: list[Candidate] = []
    while len(result) < len(candidates):
        for pool in order:
            if queues[pool]:
                result.append(queues[pool].popleft())
    return result
