"""Machines that no longer look as their pool wants them: one command a pass, replacements first, oldest drift first."""

from __future__ import annotations

from collections.abc import Iterable

from pykarpenter.api.meta import find_condition
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.core.disruption.allowance import Allowances
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.disruption.commands import DisruptionClass, Method, MethodRun, Reason
from pykarpenter.core.disruption.holds import hold_blocker
from pykarpenter.core.disruption.selection import drift_blocker, node_notice, select
from pykarpenter.core.disruption.simulation import Simulation
from pykarpenter.core.disruption.staging import stage, staged_command


def run(world: World, simulation: Simulation) -> MethodRun:
    selected = select(world, DisruptionClass.EVENTUAL, drift_blocker, "DisruptionBlocked")
    notices = list(selected.notices)
    eligible = len(selected.candidates)
    if not eligible:
        return MethodRun(Method.DRIFT, Reason.DRIFTED, notices=tuple(notices))
    allowances = Allowances(world, Reason.DRIFTED)
    notices.extend(allowances.notices())
    considered = 0
    for candidate in oldest_first(selected.candidates):
        if allowances.usable(candidate.pool.name) <= 0:
            continue
        considered += 1
        held = hold_blocker(world, candidate.pool.name)
        staged = held or stage(world, simulation, candidate, terminate_first=world.settings.terminate_first_drift)
        if isinstance(staged, Blocker):
            notices.append(node_notice(candidate.view, "DisruptionBlocked", staged.text()))
            continue
        command = staged_command(world, candidate, staged, Method.DRIFT, Reason.DRIFTED)
        return MethodRun(Method.DRIFT, Reason.DRIFTED, (command,), eligible, considered, tuple(notices))
    return MethodRun(Method.DRIFT, Reason.DRIFTED, (), eligible, considered, tuple(notices))


def oldest_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Machines without pods to move first, each group by the time it drifted, then by name."""
    return sorted(candidates, key=lambda c: (bool(c.pods), drifted_since(c), c.name))


def drifted_since(candidate: Candidate) -> float:
    claim = candidate.view.claim
    condition = find_condition(claim.status.conditions, "Drifted") if claim is not None else None
    since = parse_optional_timestamp(condition.last_transition_time) if condition is not None else None
    return since or 0.0
