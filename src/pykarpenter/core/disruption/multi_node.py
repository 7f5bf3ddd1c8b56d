"""Several under-used machines at once: the longest prefix of the savings order that one cheaper machine replaces."""

from __future__ import annotations

from pykarpenter.core.disruption.allowance import Allowances
from pykarpenter.core.disruption.balanced import Scales, Verdict, approve
from pykarpenter.core.disruption.blockers import Blocker, Notice
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.disruption.commands import Command, DisruptionClass, Method, MethodRun, Reason
from pykarpenter.core.disruption.consolidation import Proposal, candidate_notices, propose, without_same_type
from pykarpenter.core.disruption.emptiness import by_savings
from pykarpenter.core.disruption.selection import consolidation_blocker, select
from pykarpenter.core.disruption.settings import MULTI_NODE_CAP
from pykarpenter.core.disruption.simulation import Simulation
from pykarpenter.core.packing_settings import ShouldStop
from pykarpenter.core.reasons import Why


def run(world: World, simulation: Simulation, should_stop: ShouldStop) -> MethodRun:
    selected = select(world, DisruptionClass.GRACEFUL, consolidation_blocker, "Unconsolidatable")
    notices = list(selected.notices)
    eligible = len(selected.candidates)
    if not eligible:
        # Nothing was asked, so nothing is remembered: a budget of pods may open without any other change.
        return _run(notices=notices)
    allowances = Allowances(world, Reason.UNDERUTILIZED)
    notices.extend(allowances.notices())
    allowed = [c for c in by_savings(selected.candidates) if allowances.spend(c.pool.name)]
    limited = len(allowed) < eligible
    if len(allowed) < 2:
        return _run(settled=not limited, notices=notices, eligible=eligible)
    search = PrefixSearch(world, simulation, allowed[:MULTI_NODE_CAP], notices)
    command = search.run(should_stop)
    notices.extend(search.approvals if command is not None else ())
    return _run(
        command=command,
        notices=notices,
        eligible=eligible,
        considered=search.trials,
        timed_out=search.timed_out,
        # A search that ran out of time has not shown that there is nothing.
        settled=command is None and not limited and not search.limited and not search.timed_out,
        verdicts=search.verdicts,
    )


class PrefixSearch:
    """Binary search over prefixes: a set that works is remembered and a longer one tried."""

    def __init__(
        self, world: World, simulation: Simulation, candidates: list[Candidate], notices: list[Notice]
    ) -> None:
        self._world = world
        self._simulation = simulation
        self._candidates = candidates
        self._notices = notices
        self._scales = Scales(world)
        self.trials = 0
        self.timed_out = False
        # Something could not be tried now: a pool waits after a failed replacement.
        self.limited = False
        self.verdicts: list[Verdict] = []
        # Of the last set that worked, which is the one that is used.
        self.approvals: list[Notice] = []

    def run(self, should_stop: ShouldStop) -> Command | None:
        best: Command | None = None
        low, high = 1, len(self._candidates) - 1
        while low <= high:
            if should_stop():
                self.timed_out = True
                break
            middle = (low + high) // 2
            candidates = self._candidates[: middle + 1]
            self.trials += 1
            proposal = propose(self._world, self._simulation, candidates, Method.MULTI_NODE, should_stop=should_stop)
            if should_stop():
                # The simulation was broken off: that a pod has no place in it, or needs no machine, proves nothing.
                self.timed_out = True
                break
            command = self._judge(candidates, proposal)
            if command is not None:
                best, low = command, middle + 1
            else:
                high = middle - 1
        return best

    def _judge(self, candidates: list[Candidate], proposal: Proposal | Blocker) -> Command | None:
        if not isinstance(proposal, Blocker):
            self._notices.extend(candidate_notices(candidates, proposal))
            proposal = without_same_type(self._world, candidates, proposal)
        if isinstance(proposal, Blocker):
            self.limited = self.limited or proposal.why is Why.BACK_OFF
            return None
        approved, verdicts = approve(self._scales, candidates, proposal.command)
        self.verdicts.extend(verdicts)
        if isinstance(approved, Blocker):
            return None
        self.approvals = [Notice("NodePool", v.pool, "ConsolidationApproved", v.text()) for v in verdicts]
        return approved


def _run(
    *,
    command: Command | None = None,
    notices: list[Notice],
    eligible: int = 0,
    considered: int = 0,
    timed_out: bool = False,
    settled: bool = False,
    verdicts: list[Verdict] | None = None,
) -> MethodRun:
    return MethodRun(
        method=Method.MULTI_NODE,
        reason=Reason.UNDERUTILIZED,
        commands=(command,) if command is not None else (),
        eligible=eligible,
        considered=considered,
        notices=tuple(notices),
        timed_out=timed_out,
        settled=settled,
        scores=tuple((v.pool, v.approved, v.score) for v in verdicts or ()),
    )
