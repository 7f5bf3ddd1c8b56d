"""Whether one machine's pods have somewhere to go before it leaves, or only once its own reservation is free.

Two passes: replacements first; if that fails, and only for a reserved machine with the gate on, the same question
with one unit credited to its reservation.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from pykarpenter.api import labels
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.disruption.commands import (
    Command,
    Decision,
    Method,
    Reason,
    Target,
    command_id,
)
from pykarpenter.core.disruption.simulation import Outcome, Simulation, simulate
from pykarpenter.core.reasons import Why

NO_RESERVED_CAPACITY = "no-reserved-capacity"
# A machine that goes before its replacement must not hang half drained for ever: its pods wait for its slot.
TERMINATE_FIRST_BOUND_S = 3600.0


@dataclass(frozen=True, slots=True)
class Staged:
    """How the machine can go; without a terminate-first reason its replacements come first."""

    outcome: Outcome
    terminate_first_reason: str = ""


def stage(
    world: World, simulation: Simulation, candidate: Candidate, *, terminate_first: bool, include_blocked: bool = False
) -> Staged | Blocker:
    first = simulate(world, simulation, [candidate], include_blocked=include_blocked)
    if first.ok:
        return Staged(first)
    reservation = reservation_of(world, candidate)
    if terminate_first and reservation:
        second = simulate(world, simulation, [candidate], include_blocked=include_blocked, credit=reservation)
        if second.ok:
            return Staged(second, NO_RESERVED_CAPACITY)
    return unschedulable(first)


def reservation_of(world: World, candidate: Candidate) -> str:
    """The reservation that the machine sits in; empty when it has none."""
    label = world.settings.reservation_id_label
    if candidate.capacity_type != labels.RESERVED or not label:
        return ""
    return candidate.view.labels.get(label, "")


def unschedulable(outcome: Outcome) -> Blocker:
    """The first five pods without a place, with their reasons."""
    shown = list(outcome.errors.items())[:5]
    text = "; ".join(f"{pod}: {reason}" for pod, reason in shown)
    more = f" and {len(outcome.errors) - 5} more" if len(outcome.errors) > 5 else ""
    objects = tuple(f"Pod {pod}" for pod, _ in shown)
    return Blocker(Why.UNSCHEDULABLE, f"not all pods would schedule, {text}{more}", objects)


def staged_command(
    world: World, candidate: Candidate, staged: Staged, method: Method, reason: Reason, target: Target | None = None
) -> Command:
    """The command for one staged machine; terminate-first carries no replacements, provisioning refills the slot."""
    named = target or candidate.target()
    claims = () if staged.terminate_first_reason else staged.outcome.claims
    decision = Decision.REPLACE if claims else Decision.DELETE
    if staged.terminate_first_reason:
        decision = Decision.TERMINATE_FIRST
        named = bounded(named)
    return Command(
        id=command_id(method, (named.claim_uid,), world.now, world.snapshot.revision),
        method=method,
        reason=reason,
        decision=decision,
        targets=(named,),
        replacements=claims,
        placements=staged.outcome.existing,
        terminate_first_reason=staged.terminate_first_reason,
    )


def bounded(target: Target) -> Target:
    """The target with a drain bound, where neither its claim nor a policy gives one."""
    if target.drain_bound_s is not None or target.termination_mode != "graceful":
        return target
    return dataclasses.replace(target, drain_bound_s=TERMINATE_FIRST_BOUND_S)
