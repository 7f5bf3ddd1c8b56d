"""Machines of static pools that must be replaced: staged under the pool's node limit, or terminated first.

A static pool's replacement is the bare template; nothing is simulated, because the pool holds a number of machines
whatever runs on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pykarpenter.api import labels
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.quantity import InvalidQuantity, available_units
from pykarpenter.core.disruption.allowance import Allowances
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.disruption.commands import (
    Command,
    Decision,
    DisruptionClass,
    Method,
    MethodRun,
    Reason,
    Target,
    command_id,
)
from pykarpenter.core.disruption.drift import oldest_first
from pykarpenter.core.disruption.holds import hold_blocker
from pykarpenter.core.disruption.selection import node_notice, select, static_drift_blocker
from pykarpenter.core.disruption.settings import UNLIMITED
from pykarpenter.core.disruption.staging import NO_RESERVED_CAPACITY, bounded, reservation_of
from pykarpenter.core.plans import OfferingChoice, PlannedClaim
from pykarpenter.core.reasons import Why
from pykarpenter.core.requirements import Requirements, from_expressions, from_labels

STATIC_AT_LIMIT = "static-at-limit"
_FULL = "static NodePool's capacity reservations are full and cannot stage a replacement"
_AT_LIMIT = "static NodePool is at its node limit and cannot stage a replacement"


@dataclass(frozen=True, slots=True, eq=False)
class StaticChoice:
    """One machine's way out: with a replacement, terminated first, or not now."""

    candidate: Candidate
    terminate_first_reason: str = ""
    blocker: Blocker | None = None


class TypesUnknown(Exception):
    """The pool's instance types are not known, so nothing can be said about its reservations."""


def run(world: World) -> MethodRun:
    selected = select(world, DisruptionClass.EVENTUAL, static_drift_blocker, "DisruptionBlocked")
    notices = list(selected.notices)
    eligible = len(selected.candidates)
    if not eligible:
        return MethodRun(Method.STATIC_DRIFT, Reason.DRIFTED, notices=tuple(notices))
    allowances = Allowances(world, Reason.DRIFTED)
    notices.extend(allowances.notices())
    commands: list[Command] = []
    errors: list[str] = []
    for name in sorted({candidate.pool.name for candidate in selected.candidates}):
        mine = oldest_first(c for c in selected.candidates if c.pool.name == name)
        count = min(allowances.usable(name), len(mine))
        if count <= 0 or is_scaling_down(world, world.pools[name]):
            continue
        held = hold_blocker(world, name)
        if held is not None:
            notices.extend(node_notice(c.view, "DisruptionBlocked", held.text()) for c in mine[:count])
            continue
        try:
            choices = choose(world, world.pools[name], mine, count, gate=world.settings.terminate_first_drift)
        except TypesUnknown as error:
            errors.append(str(error))
            continue
        for choice in choices:
            if choice.blocker is not None:
                notices.append(node_notice(choice.candidate.view, "DisruptionBlocked", choice.blocker.text()))
            else:
                commands.append(static_command(world, choice, Method.STATIC_DRIFT, Reason.DRIFTED))
    return MethodRun(
        Method.STATIC_DRIFT,
        Reason.DRIFTED,
        tuple(commands),
        eligible,
        len(commands),
        tuple(notices),
        error="; ".join(errors),
    )


def is_scaling_down(world: World, pool: NodePool) -> bool:
    """Whether the pool has more machines than it wants: the scale-down comes before any replacement."""
    held = [v for v in world.by_pool.get(pool.name, ()) if v.claim is not None and not v.claim.is_deleting]
    return len(held) > (pool.spec.replicas or 0)


def choose(
    world: World, pool: NodePool, candidates: Sequence[Candidate], count: int, *, gate: bool
) -> list[StaticChoice]:
    """What happens to at most `count` of the candidates, in their order."""
    if gate:
        full, offered = reservations(world, pool)
        if full:
            return _with_full_reservations(world, pool, candidates, count, offered)
    granted = min(count, node_headroom(world, pool))
    if granted > 0:
        return [StaticChoice(candidate) for candidate in candidates[:granted]]
    if gate and can_refill(pool):
        return [StaticChoice(candidate, STATIC_AT_LIMIT) for candidate in candidates[:count]]
    blocker = Blocker(Why.STATIC_AT_LIMIT, _AT_LIMIT, (f"NodePool {pool.name}",))
    return [StaticChoice(candidate, blocker=blocker) for candidate in candidates[:count]]


def _with_full_reservations(
    world: World, pool: NodePool, candidates: Sequence[Candidate], count: int, offered: frozenset[str]
) -> list[StaticChoice]:
    def holds(candidate: Candidate) -> bool:
        return can_refill(pool) and reservation_of(world, candidate) in offered

    ordered = sorted(candidates, key=lambda candidate: not holds(candidate))[:count]
    blocker = Blocker(Why.RESERVATION_FULL, _FULL, (f"NodePool {pool.name}",))
    return [StaticChoice(c, NO_RESERVED_CAPACITY) if holds(c) else StaticChoice(c, blocker=blocker) for c in ordered]


def can_refill(pool: NodePool) -> bool:
    """Whether the static provisioner would serve the pool once the machine is gone."""
    return not pool.is_deleting and condition_status(pool.status.conditions, "Ready") == "True"


def node_headroom(world: World, pool: NodePool) -> int:
    """Machines that may still be added under `limits.nodes`, promised ones counted; none under one without meaning."""
    if "nodes" not in pool.spec.limits:
        return UNLIMITED
    try:
        limit = available_units("nodes", pool.spec.limits["nodes"])
    except InvalidQuantity:
        return 0
    existing = sum(1 for view in world.by_pool.get(pool.name, ()) if view.claim is not None)
    promised = world.snapshot.promised.get(pool.name, {}).get("nodes", 0)
    return max(0, limit - existing - promised)


def reservations(world: World, pool: NodePool) -> tuple[bool, frozenset[str]]:
    """Whether the template can be had from full reservations only, and which reservations it is offered."""
    types = world.snapshot.instance_types.get(pool.name)
    if not types:
        raise TypesUnknown(f'instance types of NodePool "{pool.name}" are not known')
    rules = world.settings.label_rules
    wanted = template_requirements(world, pool)
    fitting = [
        offering
        for kind in types
        if wanted.intersects(kind.requirements)
        for offering in kind.offerings
        if wanted.compatible(offering.requirements, rules.well_known)
    ]
    full = not any(o.capacity_type != labels.RESERVED or o.launchable for o in fitting)
    offered = frozenset(o.reservation_id for o in fitting if o.capacity_type == labels.RESERVED and o.available)
    return full, offered - {""}


def template_requirements(world: World, pool: NodePool) -> Requirements:
    rules = world.settings.label_rules
    template = pool.spec.template
    own = from_labels({**template.metadata.labels, labels.NODEPOOL: pool.name}, rules)
    return own.merged(from_expressions(template.spec.requirements, rules).values())


def template_claim(pool: NodePool) -> PlannedClaim:
    """The bare template as a planned claim: no type list, no pods, one machine."""
    return PlannedClaim(
        node_pool=pool.name,
        requirements=tuple(pool.spec.template.spec.requirements),
        instance_types=(),
        requests={},
        pods=(),
        choice=OfferingChoice("", "", "", None),
        max_capacity={"nodes": 1},
    )


def static_command(
    world: World, choice: StaticChoice, method: Method, reason: Reason, target: Target | None = None
) -> Command:
    named = target or choice.candidate.target()
    first = bool(choice.terminate_first_reason)
    if first:
        named = bounded(named)
    return Command(
        id=command_id(method, (named.claim_uid,), world.now, world.snapshot.revision),
        method=method,
        reason=reason,
        decision=Decision.TERMINATE_FIRST if first else Decision.REPLACE,
        targets=(named,),
        replacements=() if first else (template_claim(choice.candidate.pool),),
        terminate_first_reason=choice.terminate_first_reason,
    )
