"""What the engine owes the plain packer on one generated cluster; tests, mutations and the soak all ask here.

Two things are left open. Pods of equal spec and namespace differ in nothing but labels and UID: when there is room
for some of them only, it may be others of the same workload that get it. And ties that the specification leaves open
(domains with equally many pods, pods of equal size and age) may fall either way: the engine must match one of them.
Where limits or reservations bind, the number of placed pods counts, not which they are: a large pod may stand in the
way of two small ones.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

import msgspec

from pykarpenter.api import labels
from pykarpenter.core.packing import pack
from pykarpenter.core.packing.care import FALLBACK, STRICT
from pykarpenter.core.packing.engine import Decision, PackingEngine, ReservationOptions
from pykarpenter.core.packing_settings import never_stop
from pykarpenter.core.plans import LaunchPlan
from pykarpenter.core.snapshot import ClusterSnapshot
from tests.reference.conversion import as_launch_plan
from tests.reference.generator import Case, generate
from tests.reference.packer import ALL_TIES, NO_DEVICES, NO_VOLUME, TOO_FEW_VALUES, ReferencePlan, Ties, pack_reference
from tests.reference.validator import validate


@dataclass(frozen=True)
class Answer:
    """A generated cluster and what the plain packer makes of it."""

    case: Case
    placed: frozenset[str]
    # Pods that may be tried: part of the batch, valid, with volumes and devices that can be had.
    tried: frozenset[str]
    is_legal: bool


@cache
def reference(seed: int) -> Answer:
    case = generate(seed)
    plan = pack_reference(case.snapshot, case.settings)
    problems = validate(case.snapshot, case.settings, as_launch_plan(case.snapshot, plan))
    failed = {key for key, text in plan.failed.items() if text not in (NO_DEVICES, NO_VOLUME)}
    tried = frozenset({*plan.placed, *failed, *plan.deferred})
    return Answer(case, frozenset(plan.placed), tried, not problems)


def problems(seed: int) -> list[str]:
    """Every way in which the engine's plan falls short; empty when it does not."""
    answer = reference(seed)
    case = answer.case
    plan = pack(case.snapshot, case.settings)
    found = validate(case.snapshot, case.settings, plan) if answer.is_legal else []
    found += [f"tried: {key} should not have been" for key in sorted(placed_by(plan) - answer.tried)]
    return [
        *found,
        *_left_out(answer, placed_by(plan)),
        *_founders(answer, plan),
        *_alone(case),
        *_reserved_modes(case),
    ]


def unsteady(seed: int) -> list[str]:
    """Every way in which the plan depends on more than its input."""
    case = reference(seed).case
    plan = pack(case.snapshot, case.settings)
    again = generate(seed)
    if pack(again.snapshot, again.settings) != plan:
        return ["equal input gave another plan"]
    order = random.Random(seed)
    mixed = pack(shuffled(case.snapshot, order), case.settings)
    if placed_by(mixed) != placed_by(plan):
        return [f"shuffled input placed other pods: {sorted(placed_by(mixed) ^ placed_by(plan))}"]
    return []


def placed_by(plan: LaunchPlan) -> frozenset[str]:
    return frozenset(key for part in (plan.claims, plan.existing) for item in part for key in item.pods)


def shuffled(snapshot: ClusterSnapshot, order: random.Random) -> ClusterSnapshot:
    """The same cluster with everything listed in another order."""

    def mixed(items: Iterable[object]) -> tuple:
        listed = list(items)
        order.shuffle(listed)
        return tuple(listed)

    return replace(
        snapshot,
        pods=mixed(snapshot.pods),
        buffer_pods=mixed(snapshot.buffer_pods),
        nodes=mixed(replace(view, pods=mixed(view.pods)) for view in snapshot.nodes),
        node_pools=mixed(snapshot.node_pools),
        instance_types={pool: mixed(types) for pool, types in mixed(snapshot.instance_types.items())},
        daemon_sets=mixed(snapshot.daemon_sets),
    )


def _left_out(answer: Answer, placed: frozenset[str]) -> list[str]:
    """Asked with ties as the specification breaks them; only when that leaves pods out, with each way they may fall."""
    found = _short_of(answer.case, answer.placed, placed)
    if not found:
        return []
    snapshot, settings = answer.case.snapshot, answer.case.settings
    for ties in ALL_TIES[1:]:
        other = pack_reference(snapshot, settings, ties=ties)
        if not _short_of(answer.case, frozenset(other.placed), placed):
            return []
    return found


def _short_of(case: Case, wanted: frozenset[str], placed: frozenset[str]) -> list[str]:
    missing = wanted - placed
    if not missing:
        return []
    snapshot = case.snapshot
    if _scarce(case):
        if len(placed) >= len(wanted):
            return []
        return [f"placed: {len(placed)} pods, the plain packer {len(wanted)}; without {sorted(missing)}"]
    workloads = _workloads(snapshot)
    needed, got = (Counter(workloads[key] for key in keys) for keys in (wanted, placed))
    short = sorted(key for key in missing if got[workloads[key]] < needed[workloads[key]])
    return [f"placed: the plain packer has a place for {short}"] if short else []


def _alone(case: Case) -> list[str]:
    """A pod that comes alone leaves ties of domains open, no more: the same machine, or the same pool."""
    found = []
    first = {msgspec.json.encode(pod.spec): pod for pod in reversed(case.snapshot.pods)}
    for pod in list(first.values())[:4]:
        snapshot = replace(case.snapshot, pods=(pod,), buffer_pods=())
        if any(view.marked_for_deletion for view in snapshot.nodes):
            snapshot = replace(snapshot, nodes=tuple(v for v in snapshot.nodes if not v.marked_for_deletion))
        plan, expected = pack(snapshot, case.settings), pack_reference(snapshot, case.settings)
        if not expected.placed:
            # Another domain than the one that the first rule takes may do for all rules; it must only be legal.
            found += [f"alone: {problem}" for problem in validate(snapshot, case.settings, plan)]
            continue
        wrong = _elsewhere(case, pod.key, plan, expected)
        # Which of the emptiest domains a spread takes is not specified: each may be the first that is tried.
        if wrong and all(
            _elsewhere(case, pod.key, plan, pack_reference(snapshot, case.settings, ties=ties))
            for ties in _domain_ties(snapshot)
        ):
            found += wrong
    return found


def _elsewhere(case: Case, key: str, plan: LaunchPlan, expected: ReferencePlan) -> list[str]:
    found = []
    nodes = {item.node: list(item.pods) for item in plan.existing}
    if nodes != expected.existing:
        found.append(f"alone: {key} goes to {nodes or 'no machine there is'}, expected {expected.existing}")
    pools = [claim.node_pool for claim in plan.claims]
    if pools != [claim.node_pool for claim in expected.claims] and not _scarce(case):
        found.append(f"alone: {key} opens {pools}, expected {[c.node_pool for c in expected.claims]}")
    return found


def _domain_ties(snapshot: ClusterSnapshot) -> list[Ties]:
    """Every zone with every capacity type as the one that wins ties."""
    offered = [o for types in snapshot.instance_types.values() for item in types for o in item.offerings]
    zones = {o.zone for o in offered} | {view.labels.get(labels.ZONE, "") for view in snapshot.nodes}
    return [
        Ties(favourites=frozenset({zone, capacity_type}))
        for zone in sorted(zones)
        for capacity_type in sorted({o.capacity_type for o in offered})
    ]


def _scarce(case: Case) -> bool:
    return "reserved" in case.features or any(pool.spec.limits for pool in case.snapshot.node_pools)


def _reserved_modes(case: Case) -> list[str]:
    """What disruption asks: reservations that are full are passed over, and units about to be free count."""
    if "reserved" not in case.features:
        return []
    found = []
    for name, credit in (("fallback", {}), ("credit", {"cr-0": 2, "cr-1": 1})):
        options = ReservationOptions(FALLBACK if name == "fallback" else STRICT, credit)
        plan = Decision(PackingEngine(), case.snapshot, case.settings, never_stop, options).plan()
        expected = pack_reference(
            case.snapshot, case.settings, credit=credit, strict_reserved=options.mode == STRICT
        ).placed
        if len(placed_by(plan)) < len(expected):
            found.append(f"{name}: {len(placed_by(plan))} pods, the plain packer {len(expected)}")
    return found


def _founders(answer: Answer, plan: LaunchPlan) -> list[str]:
    """A pod without rules about others gets the machine that it would get alone: the pool's order, its preferences."""
    case = answer.case
    snapshot = case.snapshot
    scarce = _scarce(case)
    if case.features & {"pod-anti-affinity", "bound-anti-affinity", "default-spread"}:
        return []
    pods = {pod.key: pod for pod in snapshot.pods}
    found = []
    for claim in plan.claims:
        pod = pods.get(claim.pods[0])
        affinity = pod.spec.affinity if pod is not None else None
        if pod is None or pod.spec.topology_spread_constraints:
            continue
        if affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None):
            continue
        alone = replace(snapshot, pods=(pod,), nodes=(), buffer_pods=())
        alone_plan = pack_reference(alone, case.settings)
        claims = alone_plan.claims
        if pod.key in alone_plan.deferred or alone_plan.failed.get(pod.key) == TOO_FEW_VALUES:
            # It waits for a reservation of a type that what is left of the limits may rule out beside others; or the
            # plain packer takes a reservation that leaves too few types and finds that out when all is placed.
            continue
        if not claims:
            found.append(f"founders: {pod.key} opened a machine, alone it gets none")
        if not claims or scarce:
            continue
        expected = claims[0]
        if expected.node_pool != claim.node_pool:
            found.append(f"founders: {pod.key} opened {claim.node_pool}, alone it opens {expected.node_pool}")
        wanted = expected.requirements.get_or_exists(labels.ZONE)
        zones = [value for item in claim.requirements if item.key == labels.ZONE for value in item.values]
        if not wanted.complement and not all(wanted.allows(zone) for zone in zones):
            found.append(f"founders: {pod.key} opened a machine in {zones}, alone in {sorted(wanted.values)}")
    return found


def _workloads(snapshot: ClusterSnapshot) -> dict[str, tuple[str, bytes]]:
    pods = [*snapshot.pods, *snapshot.buffer_pods, *(p for view in snapshot.nodes for p in view.pods)]
    return {pod.key: (pod.namespace, msgspec.json.encode(pod.spec)) for pod in pods}
