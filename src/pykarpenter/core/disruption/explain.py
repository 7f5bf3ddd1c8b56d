"""Why a machine goes or stays, method by method: the same judgements a pass makes, kept instead of acted on."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from pykarpenter.api import labels
from pykarpenter.api.meta import find_condition
from pykarpenter.api.nodepool import NodePool
from pykarpenter.core.budgets import InvalidBudget, budgets_of, is_active, unreadable_budgets
from pykarpenter.core.disruption import repairs, single_node, staging, static_pools
from pykarpenter.core.disruption.allowance import Allowances, PoolAllowance, pool_allowance, pool_nodes
from pykarpenter.core.disruption.balanced import Scales
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.disruption.commands import Command, DisruptionClass, Method, Reason
from pykarpenter.core.disruption.decide import decide
from pykarpenter.core.disruption.emptiness import empty_command
from pykarpenter.core.disruption.holds import hold_blocker
from pykarpenter.core.disruption.selection import (
    Predicate,
    consolidation_blocker,
    drift_blocker,
    emptiness_blocker,
    static_drift_blocker,
)
from pykarpenter.core.disruption.simulation import Simulation, SimulationError
from pykarpenter.core.reasons import Why
from pykarpenter.core.snapshot import NodeView


@dataclass(frozen=True, slots=True)
class Finding:
    """One method's answer for one machine: the command it would give, or the first thing in the way."""

    method: Method
    command: Command | None = None
    blocker: Blocker | None = None


@dataclass(frozen=True, slots=True)
class NodeStory:
    """Everything disruption has to say about one machine now."""

    node: str
    claim: str
    pool: str
    instance_type: str
    capacity_type: str
    zone: str
    price: float | None
    pods: tuple[str, ...]
    reschedule_cost: float
    findings: tuple[Finding, ...] = ()
    # The command of the next pass that this machine is part of.
    next_command: Command | None = None
    # What the next pass does instead, when this machine could go but is not part of it.
    ahead: Command | None = None

    @property
    def blocker(self) -> Blocker | None:
        """The one reason a user asks for: what keeps the machine from consolidation, or from its removal when empty.

        Methods that are none of the machine's business (not drifted, healthy, another kind of pool) are passed over.
        """
        beside = (Why.NOT_DRIFTED, Why.HEALTHY, Why.STATIC_POOL, Why.NOT_EMPTY)
        own = [f.blocker for f in self.findings if f.blocker is not None and f.blocker.why not in beside]
        if any(finding.command is not None for finding in self.findings):
            return None
        return own[0] if own else self.findings[-1].blocker if self.findings else None


@dataclass(frozen=True, slots=True)
class PoolStory:
    """A pool's budgets and what keeps its machines where they are."""

    pool: str
    nodes: int
    allowances: tuple[PoolAllowance, ...]
    # `nodes: 10%, always`, with what is active now.
    budgets: tuple[str, ...]
    problems: tuple[str, ...]
    hold: Blocker | None
    # Why the pool launches nothing, replacements included; empty when it does.
    not_ready: str = ""
    # How many machines each reason keeps, most first.
    blocked: tuple[tuple[str, int], ...] = ()
    commands: tuple[Command, ...] = field(default_factory=tuple)


def explain_node(world: World, simulation: Simulation, view: NodeView) -> NodeStory:
    pods, cost = world.reschedulable(view)
    plan = decide(world, simulation)
    findings = tuple(_findings(world, simulation, view))
    mine = next((c for c in plan.commands if view.name in c.nodes), None)
    could_go = mine is None and any(finding.command is not None for finding in findings)
    return NodeStory(
        node=view.name,
        claim=view.claim.name if view.claim is not None else "",
        pool=view.pool_name,
        instance_type=view.labels.get(labels.INSTANCE_TYPE, ""),
        capacity_type=view.labels.get(labels.CAPACITY_TYPE, ""),
        zone=view.labels.get(labels.ZONE, ""),
        price=world.price(view),
        pods=tuple(pod.key for pod in pods),
        reschedule_cost=cost,
        findings=findings,
        next_command=mine,
        ahead=next(iter(plan.commands), None) if could_go else None,
    )


def unreadable_node(name: str) -> NodeStory:
    """A Node that no decision looks at, because it does not say yet what it is."""
    message = (
        f'node has the label "{labels.NODEPOOL}", but no providerID or no label "{labels.INSTANCE_TYPE}" yet; '
        "it is left alone until it has both"
    )
    finding = Finding(Method.EMPTINESS, blocker=Blocker(Why.NOT_REGISTERED, message))
    return NodeStory(name, "", "", "", "", "", None, (), 1.0, (finding,))


def _findings(world: World, simulation: Simulation, view: NodeView) -> list[Finding]:
    """The methods that could concern the machine: static pools only drift, all others only consolidate and drift."""
    pool = world.pools.get(view.pool_name)
    found = [_repair(world, view)] if world.settings.node_repair else []
    if pool is not None and pool.is_static:
        return [*found, _static_drift(world, view)]
    return [*found, _empty(world, view), _drift(world, simulation, view), _single(world, simulation, view)]


def _candidate(
    world: World, view: NodeView, disruption_class: DisruptionClass, predicate: Predicate, reason: Reason
) -> Candidate | Blocker:
    """The machine through gates, the method's own conditions and the pool's budget."""
    judged = world.judge(view, disruption_class)
    if judged is None:
        if not view.managed:
            return Blocker(Why.NO_NODE_CLAIM, "node is not managed by us")
        return Blocker(Why.IN_FLIGHT, "node is already being disrupted")
    if isinstance(judged, Blocker):
        return judged
    blocker = predicate(world, judged)
    if blocker is not None:
        return blocker
    allowance = Allowances(world, reason).pools[judged.pool.name]
    return allowance.blocker() if allowance.usable <= 0 else judged


def _empty(world: World, view: NodeView) -> Finding:
    found = _candidate(world, view, DisruptionClass.GRACEFUL, emptiness_blocker, Reason.EMPTY)
    if isinstance(found, Blocker):
        return Finding(Method.EMPTINESS, blocker=found)
    return Finding(Method.EMPTINESS, empty_command(world, [found]))


def _static_drift(world: World, view: NodeView) -> Finding:
    method = Method.STATIC_DRIFT
    found = _candidate(world, view, DisruptionClass.EVENTUAL, static_drift_blocker, Reason.DRIFTED)
    if isinstance(found, Blocker):
        return Finding(method, blocker=found)
    if static_pools.is_scaling_down(world, found.pool):
        return Finding(method, blocker=Blocker(Why.STATIC_POOL, "the static NodePool is scaling down first"))
    try:
        gate = world.settings.terminate_first_drift
        choice = static_pools.choose(world, found.pool, [found], 1, gate=gate)[0]
    except static_pools.TypesUnknown as error:
        return Finding(method, blocker=Blocker(Why.POOL_NOT_FOUND, str(error)))
    blocker = choice.blocker or hold_blocker(world, found.pool.name)
    if blocker is not None:
        return Finding(method, blocker=blocker)
    return Finding(method, static_pools.static_command(world, choice, method, Reason.DRIFTED))


def _drift(world: World, simulation: Simulation, view: NodeView) -> Finding:
    found = _candidate(world, view, DisruptionClass.EVENTUAL, drift_blocker, Reason.DRIFTED)
    if isinstance(found, Blocker):
        return Finding(Method.DRIFT, blocker=found)
    held = hold_blocker(world, found.pool.name)
    if held is not None:
        return Finding(Method.DRIFT, blocker=held)
    try:
        staged = staging.stage(world, simulation, found, terminate_first=world.settings.terminate_first_drift)
    except SimulationError as error:
        return Finding(Method.DRIFT, blocker=Blocker(Why.NO_NODE_POOLS, str(error)))
    if isinstance(staged, Blocker):
        return Finding(Method.DRIFT, blocker=staged)
    return Finding(Method.DRIFT, staging.staged_command(world, found, staged, Method.DRIFT, Reason.DRIFTED))


def _single(world: World, simulation: Simulation, view: NodeView) -> Finding:
    method = Method.SINGLE_NODE
    found = _candidate(world, view, DisruptionClass.GRACEFUL, consolidation_blocker, Reason.UNDERUTILIZED)
    if isinstance(found, Blocker):
        return Finding(method, blocker=found)
    try:
        answer = single_node.evaluate(world, simulation, found, Scales(world), [], [])
    except SimulationError as error:
        return Finding(method, blocker=Blocker(Why.NO_NODE_POOLS, str(error)))
    if isinstance(answer, Blocker):
        return Finding(method, blocker=answer)
    return Finding(method, answer)


def _repair(world: World, view: NodeView) -> Finding:
    found = repairs.examine(world, view)
    if found is None:
        return Finding(Method.REPAIR, blocker=Blocker(Why.IN_FLIGHT, "node is already being disrupted"))
    if isinstance(found, Blocker):
        return Finding(Method.REPAIR, blocker=found)
    if found.candidate.pool.name in repairs.tripped_pools(world):
        message = (
            f'more than {repairs.BREAKER_PERCENT}% of nodes in nodepool "{found.candidate.pool.name}" are unhealthy'
        )
        return Finding(Method.REPAIR, blocker=Blocker(Why.REPAIR_BREAKER, message))
    message = f"repair is due: {found.repair.action} for {found.repair.condition}/{found.repair.reason}"
    return Finding(Method.REPAIR, blocker=Blocker(Why.REPAIR_DUE, message))


def explain_pool(world: World, simulation: Simulation, name: str) -> PoolStory:
    pool = world.pools[name]
    counted = pool_nodes(world)
    counts: Counter[str] = Counter()
    for view in world.by_pool.get(name, ()):
        judged = world.judge(view, DisruptionClass.GRACEFUL)
        blocker = judged if isinstance(judged, Blocker) else None
        if isinstance(judged, Candidate):
            blocker = emptiness_blocker(world, judged) if judged.is_empty else consolidation_blocker(world, judged)
        if blocker is not None:
            counts[str(blocker.why)] += 1
    plan = decide(world, simulation)
    mine = [command for command in plan.commands if any(target.pool == name for target in command.targets)]
    return PoolStory(
        pool=name,
        nodes=len(world.by_pool.get(name, ())),
        allowances=tuple(pool_allowance(world, pool, reason, counted) for reason in Reason),
        budgets=tuple(_budget_lines(world, name)),
        problems=tuple(f"{error.path}: {error.problem}" for error in unreadable_budgets(pool, world.now)),
        hold=hold_blocker(world, name),
        not_ready=_not_ready(pool),
        blocked=tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        commands=tuple(mine),
    )


def _not_ready(pool: NodePool) -> str:
    if pool.is_deleting:
        return "the pool is being deleted"
    ready = find_condition(pool.status.conditions, "Ready")
    if ready is not None and ready.status == "True":
        return ""
    return (ready.message or ready.reason if ready is not None else "") or "the pool has no condition Ready yet"


def _budget_lines(world: World, name: str) -> list[str]:
    lines: list[str] = []
    for budget in budgets_of(world.pools[name]):
        try:
            state = "active now" if is_active(budget, world.now) else "not active now"
        except InvalidBudget as error:
            state = f"cannot be read: {error.problem}"
        window = f"{budget.schedule} for {budget.duration}" if budget.schedule else "always"
        reasons = ", ".join(budget.reasons or []) or "every reason"
        lines.append(f'nodes "{budget.nodes}" for {reasons}, {window} ({state})')
    return lines or ["none: an empty list sets no limit"]


def money(price: float | None) -> str:
    return "unknown" if price is None or not math.isfinite(price) else f"${price:.4f}/h"
