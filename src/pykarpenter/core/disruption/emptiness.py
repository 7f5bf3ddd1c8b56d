"""Machines that hold nothing worth moving: all that budgets allow, in one command."""

from __future__ import annotations

from collections.abc import Sequence

from pykarpenter.core.disruption.allowance import Allowances
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.disruption.commands import (
    Command,
    Decision,
    DisruptionClass,
    Method,
    MethodRun,
    Reason,
    command_id,
)
from pykarpenter.core.disruption.selection import emptiness_blocker, select


def run(world: World) -> MethodRun:
    selected = select(world, DisruptionClass.GRACEFUL, emptiness_blocker, "Unconsolidatable")
    notices = list(selected.notices)
    if not selected.candidates:
        return MethodRun(Method.EMPTINESS, Reason.EMPTY, notices=tuple(notices))
    allowances = Allowances(world, Reason.EMPTY)
    notices.extend(allowances.notices())
    allowed = [c for c in by_savings(selected.candidates) if allowances.spend(c.pool.name)]
    commands = (empty_command(world, allowed),) if allowed else ()
    return MethodRun(Method.EMPTINESS, Reason.EMPTY, commands, len(selected.candidates), len(allowed), tuple(notices))


def empty_command(world: World, candidates: Sequence[Candidate]) -> Command:
    targets = tuple(candidate.target() for candidate in candidates)
    prices = [candidate.price for candidate in candidates if candidate.price is not None]
    return Command(
        id=command_id(Method.EMPTINESS, tuple(t.claim_uid for t in targets), world.now, world.snapshot.revision),
        method=Method.EMPTINESS,
        reason=Reason.EMPTY,
        decision=Decision.DELETE,
        targets=targets,
        saving=sum(prices) if prices else None,
    )


def by_savings(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The order of all consolidation: most $/hour for each unit of disturbance first, ties by name."""
    return sorted(candidates, key=lambda candidate: (-candidate.savings_ratio, candidate.name))
