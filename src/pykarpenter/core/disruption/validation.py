"""Whether a graceful command still holds after its pause: the same question asked of a new snapshot.

The original command is what runs; nothing in it is improved or rescored here. Emptiness may shrink to the machines
that are still empty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pykarpenter.core.disruption.allowance import Allowances
from pykarpenter.core.disruption.blockers import Blocker, Notice
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.disruption.commands import Command, DisruptionClass, Method
from pykarpenter.core.disruption.selection import Predicate, consolidation_blocker, emptiness_blocker, node_notice
from pykarpenter.core.disruption.simulation import Outcome, Simulation, simulate
from pykarpenter.core.disruption.staging import unschedulable
from pykarpenter.core.reasons import Why


@dataclass(frozen=True, slots=True)
class Validated:
    """The command to run, or None with the kind of failure (`churn`, `budget`, `scheduling`) and the blocker."""

    command: Command | None
    failure: str = ""
    blocker: Blocker | None = None


def validate(world: World, simulation: Simulation, command: Command) -> Validated:
    """`world` must not count the command's own machines as in flight."""
    if command.method is Method.EMPTINESS:
        return _validate_empty(world, command)
    candidates: list[Candidate] = []
    for name, uid in ((t.node, t.claim_uid) for t in command.targets):
        current = still_candidate(world, name, uid, consolidation_blocker)
        if isinstance(current, Blocker):
            kind = "budget" if current.why is Why.NOMINATED else "churn"
            return Validated(None, kind, current)
        candidates.append(current)
    allowances = Allowances(world, command.reason)
    for candidate in candidates:
        if not allowances.spend(candidate.pool.name):
            return Validated(None, "budget", allowances.pools[candidate.pool.name].blocker())
    several = len(command.replacements) > 1
    outcome = simulate(world, simulation, candidates, consolidation=True, cheapest_mix=several)
    blocker = _differs(command, outcome)
    return Validated(None, "scheduling", blocker) if blocker is not None else Validated(command)


def still_candidate(world: World, name: str, claim_uid: str, predicate: Predicate) -> Candidate | Blocker:
    """The machine as a candidate now, or what changed about it."""
    view = world.by_name.get(name)
    judged = world.judge(view, DisruptionClass.GRACEFUL) if view is not None else None
    if judged is None or view is None or view.claim is None or view.claim.uid != claim_uid:
        return Blocker(Why.CHANGED, f"node {name} is gone or no longer a candidate")
    if isinstance(judged, Blocker):
        return judged
    return predicate(world, judged) or judged


def _validate_empty(world: World, command: Command) -> Validated:
    allowances = Allowances(world, command.reason)
    kept = []
    last: Blocker | None = None
    for target in command.targets:
        current = still_candidate(world, target.node, target.claim_uid, emptiness_blocker)
        if isinstance(current, Blocker):
            last = current
        elif allowances.spend(target.pool):
            kept.append(current.target())
        else:
            last = allowances.pools[target.pool].blocker()
    if not kept:
        return Validated(None, "churn", last)
    return Validated(replace(command, targets=tuple(kept)))


def _differs(command: Command, outcome: Outcome) -> Blocker | None:
    """What the new simulation says against the command; its options must still all be possible."""
    if not outcome.ok:
        return unschedulable(outcome)
    planned, needed = len(command.replacements), len(outcome.claims)
    if planned != needed:
        return Blocker(Why.CHANGED, f"the command launches {planned} nodes, now {needed} would be needed")
    for old, new in zip(command.replacements, outcome.claims, strict=True):
        missing = [name for name in old.instance_types if name not in set(new.instance_types)]
        if missing:
            return Blocker(Why.CHANGED, f"instance types {', '.join(missing[:3])} would no longer fit")
    return None


def rejection_notices(world: World, command: Command, validated: Validated) -> list[Notice]:
    """An abandoned consolidation is told on its machine, or for several on the pools they are of."""
    if validated.blocker is None or command.method is Method.EMPTINESS:
        return []
    message = f"Consolidation rejected: {validated.failure}: {validated.blocker.message}"
    if command.method is Method.MULTI_NODE:
        pools = sorted({target.pool for target in command.targets})
        return [Notice("NodePool", pool, "ConsolidationRejected", message) for pool in pools]
    views = [world.by_name[name] for name in command.nodes if name in world.by_name]
    return [node_notice(view, "ConsolidationRejected", message) for view in views]
