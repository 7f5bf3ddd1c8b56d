"""Machines that are broken: which, in what order, under which breaker, and by replacement or reboot.

Health is tested before anything else, so healthy machines never see a repair event.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pykarpenter.api import labels
from pykarpenter.api.duration import InvalidDuration, parse_duration
from pykarpenter.core.disruption.allowance import Allowances
from pykarpenter.core.disruption.blockers import Blocker, Notice
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.disruption.commands import (
    Command,
    Decision,
    DisruptionClass,
    Method,
    MethodRun,
    Reason,
    RebootOrder,
    command_id,
)
from pykarpenter.core.disruption.holds import back_off_blocker
from pykarpenter.core.disruption.selection import node_notice
from pykarpenter.core.disruption.simulation import Simulation, SimulationError
from pykarpenter.core.disruption.staging import stage, staged_command
from pykarpenter.core.disruption.static_pools import TypesUnknown, choose, is_scaling_down, static_command
from pykarpenter.core.reasons import Why
from pykarpenter.core.repair import REBOOT, Repair, RepairRules
from pykarpenter.core.snapshot import NodeView

BREAKER_PERCENT = 20
_BREAKER_WINDOW_S = 15 * 60.0


@dataclass(frozen=True, slots=True, eq=False)
class Broken:
    """A machine with a repair that is due now."""

    candidate: Candidate
    repair: Repair
    # Seconds after which the drain is forced; None drains without a bound of repair's own.
    bound_s: float | None


def run(world: World, simulation: Simulation) -> MethodRun:
    broken, notices = broken_machines(world)
    if not broken:
        return MethodRun(Method.REPAIR, Reason.UNHEALTHY, notices=tuple(notices))
    eligible = len(broken)
    allowances = Allowances(world, Reason.UNHEALTHY)
    notices.extend(allowances.notices())
    tripped = tripped_pools(world)
    errors: list[str] = []
    considered = 0
    for item in most_urgent_first(broken):
        pool = item.candidate.pool.name
        if pool in tripped:
            notices.extend(_breaker_notices(item.candidate.view, pool))
            continue
        # An uninitialised machine neither needs nor uses budget.
        if item.candidate.view.initialized and allowances.usable(pool) <= 0:
            continue
        considered += 1
        try:
            command = _repair_command(world, simulation, item)
        except (SimulationError, TypesUnknown) as error:
            errors.append(f"{item.candidate.name}: {error}")
            continue
        if isinstance(command, Command):
            return MethodRun(
                Method.REPAIR,
                Reason.UNHEALTHY,
                (command,),
                eligible,
                considered,
                tuple(notices),
                error="; ".join(errors),
            )
        if command is not None:
            notices.append(node_notice(item.candidate.view, "DisruptionBlocked", command.text()))
    return MethodRun(Method.REPAIR, Reason.UNHEALTHY, (), eligible, considered, tuple(notices), error="; ".join(errors))


def broken_machines(world: World) -> tuple[list[Broken], list[Notice]]:
    broken: list[Broken] = []
    notices: list[Notice] = []
    for view in world.nodes:
        item = examine(world, view)
        if isinstance(item, Broken):
            broken.append(item)
        elif item is not None and item.why is not Why.HEALTHY:
            notices.append(node_notice(view, "DisruptionBlocked", item.text()))
    return broken, notices


def examine(world: World, view: NodeView) -> Broken | Blocker | None:
    """Whether a repair of the machine is due and allowed; None for machines in flight or not ours."""
    rules = world.settings.repair
    if rules is None or view.node is None or not view.managed or view.name in world.memory.in_flight:
        return None
    repair = rules.resolve(view.node, view.claim, world.now)
    if repair is None:
        return _tolerated(rules, view)
    judged = world.judge(view, DisruptionClass.REPAIR)
    if judged is None or isinstance(judged, Blocker):
        return judged
    if view.annotations.get(labels.DO_NOT_REPAIR) == "true":
        message = f'repair is blocked through the "{labels.DO_NOT_REPAIR}" annotation'
        return Blocker(Why.REPAIR_VETO, message)
    own = _grace_period(judged)
    if judged.waived and repair.bound_s is None and own is None:
        message = "repair requires a termination grace period to bypass blocking pods"
        objects = tuple(name for blocker in judged.waived for name in blocker.objects)
        return Blocker(Why.REPAIR_UNBOUNDED, message, objects)
    bound = repair.bound_s if own is None or repair.bound_s is None else min(repair.bound_s, own)
    return Broken(judged, repair, bound)


def _tolerated(rules: RepairRules, view: NodeView) -> Blocker:
    """Nothing is wrong, or not for long enough: then what it is and when it is due."""
    matches = rules.matches(view.node, view.claim) if view.node is not None else ()
    if not matches:
        return Blocker(Why.HEALTHY, "no repair is due")
    first = min(matches, key=lambda match: (match.eligible_from, match.condition))
    message = f"{first.condition}/{first.reason} is tolerated, {first.policy.action} is not due yet"
    return Blocker(Why.HEALTHY, message, until=first.eligible_from)


def _grace_period(candidate: Candidate) -> float | None:
    claim = candidate.view.claim
    text = claim.spec.termination_grace_period if claim is not None else None
    try:
        return parse_duration(text) if text is not None else None
    except InvalidDuration:
        return None


def most_urgent_first(broken: list[Broken]) -> list[Broken]:
    return sorted(broken, key=lambda b: (-b.repair.score, b.candidate.lifetime_cost, b.candidate.name))


def tripped_pools(world: World) -> frozenset[str]:
    """Pools with more than a fifth of their Nodes unhealthy, whatever the age of the fault.

    Machines already under repair, going or rebooting, are not counted as sick: a third fault in a pool of ten would
    wait for the first two, and a machine that boots is not Ready because we asked for it.
    """
    rules = world.settings.repair
    tripped: set[str] = set()
    for pool, views in world.by_pool.items():
        nodes = [view for view in views if view.node is not None]
        sick = sum(
            1
            for view in nodes
            if rules is not None
            and view.node is not None
            and not view.marked_for_deletion
            and not view.rebooting
            and rules.unhealthy_condition(view.node) is not None
        )
        if sick > math.ceil(len(nodes) * BREAKER_PERCENT / 100):
            tripped.add(pool)
    return frozenset(tripped)


def _breaker_notices(view: NodeView, pool: str) -> list[Notice]:
    message = f'more than {BREAKER_PERCENT}% of nodes in nodepool "{pool}" are unhealthy'
    return [
        node_notice(view, "NodeRepairBlocked", message, warning=True),
        Notice("NodePool", pool, "NodeRepairBlocked", message, True, _BREAKER_WINDOW_S),
    ]


def _repair_command(world: World, simulation: Simulation, item: Broken) -> Command | Blocker | None:
    candidate, settings = item.candidate, world.settings
    target = replace(candidate.target(item.bound_s), waives_protection=True)
    if item.repair.action == REBOOT:
        return _reboot(world, item)
    held = back_off_blocker(world, candidate.pool.name)
    if held is not None:
        return held
    if candidate.pool.is_static:
        if is_scaling_down(world, candidate.pool):
            return None
        choice = choose(world, candidate.pool, [candidate], 1, gate=settings.terminate_first_repair)[0]
        if choice.blocker is not None:
            return choice.blocker
        command = static_command(world, choice, Method.REPAIR, Reason.UNHEALTHY, target)
    else:
        staged = stage(
            world, simulation, candidate, terminate_first=settings.terminate_first_repair, include_blocked=True
        )
        if isinstance(staged, Blocker):
            return staged
        command = staged_command(world, candidate, staged, Method.REPAIR, Reason.UNHEALTHY, target)
    return replace(command, repair_condition=item.repair.condition, escalated=item.repair.escalated)


def _reboot(world: World, item: Broken) -> Command:
    own = _grace_period(item.candidate)
    target = replace(item.candidate.target(item.bound_s), waives_protection=True)
    return Command(
        id=command_id(Method.REPAIR, (target.claim_uid,), world.now, world.snapshot.revision),
        method=Method.REPAIR,
        reason=Reason.UNHEALTHY,
        decision=Decision.REBOOT,
        targets=(target,),
        reboot=RebootOrder(
            item.repair.condition, item.repair.reason, item.bound_s if item.bound_s is not None else own
        ),
        repair_condition=item.repair.condition,
    )
