"""Replays plans of many thousand pods: the validator's questions with running counts instead of recounting.

Covers what the recorded inputs use: requests, spread, required affinity and anti-affinity, limits, no machines at the
start. An input that needs another rule is refused rather than half checked. Shares nothing with the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pykarpenter.api import labels as keys
from pykarpenter.api.meta import LabelSelector
from pykarpenter.api.pods import Pod
from pykarpenter.api.quantity import available
from pykarpenter.core import resources
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.plans import LaunchPlan, PlannedClaim
from pykarpenter.core.resources import Resources
from pykarpenter.core.snapshot import ClusterSnapshot
from tests.reference.machine import allows
from tests.reference.selection import selector_matches

Own = tuple[tuple[str, str], ...]


class UnknownRuleError(Exception):
    """The input holds a rule that only the full validator knows."""


@dataclass(eq=False)
class Rule:
    """One spread, affinity or anti-affinity, with the pods it selects and its owners in every domain."""

    kind: str
    key: str
    namespace: str
    selector: LabelSelector | None
    max_skew: int
    selected: dict[str, int] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class Shape:
    """Pods with equal rules, labels and requests."""

    order: tuple[int, int, str]
    requests: Resources
    owned: list[Rule]
    selected_by: list[Rule] = field(default_factory=list)


@dataclass
class Spot:
    """A planned machine: where it may turn out to be."""

    name: str
    domains: dict[str, tuple[str, ...]]


Entry = tuple[str, Shape, Spot]
Universe = Mapping[str, tuple[str, ...]]


def validate_large(snapshot: ClusterSnapshot, plan: LaunchPlan) -> list[str]:
    """Every rule the plan breaks; an empty list accepts it."""
    if snapshot.nodes or snapshot.daemon_sets or plan.existing:
        raise UnknownRuleError("machines at the start and DaemonSets are for the full validator")
    pods = {pod.key: pod for pod in snapshot.pods}
    shapes = _shapes(pods.values())
    return [*_each_once(pods, plan), *_machines(snapshot, plan, shapes), *_limits(snapshot, plan)] or _replay(
        snapshot, plan, shapes
    )


def _each_once(pods: Mapping[str, Pod], plan: LaunchPlan) -> Iterator[str]:
    seen: set[str] = set()
    for claim in plan.claims:
        for key in claim.pods:
            if key in seen or key not in pods:
                yield f"once: {key} is placed twice or is not in the batch"
            seen.add(key)
    for key in pods.keys() - seen - plan.unschedulable.keys() - plan.deferred.keys() - plan.ignored.keys():
        yield f"once: {key} got no answer"


# Rules.


def _shapes(pods: Iterable[Pod]) -> dict[str, Shape]:
    rules: dict[str, Rule] = {}
    known: dict[str, Shape] = {}
    found: dict[str, Shape] = {}
    for pod in pods:
        own = tuple(sorted(pod.metadata.labels.items()))
        name = repr((pod.namespace, own, pod.spec))
        if name not in known:
            known[name] = _shape(pod, rules)
        found[pod.key] = known[name]
    samples = {id(found[pod.key]): pod for pod in pods}
    for shape in known.values():
        pod = samples[id(shape)]
        shape.selected_by = [rule for rule in rules.values() if _selects(rule, pod)]
    return found


def _shape(pod: Pod, rules: dict[str, Rule]) -> Shape:
    spec, affinity = pod.spec, pod.spec.affinity
    node_affinity = affinity.node_affinity if affinity else None
    ports = [port for c in spec.containers for port in c.ports if port.host_port]
    if spec.node_selector or spec.volumes or ports or spec.tolerations or (node_affinity and node_affinity.required):
        raise UnknownRuleError(f"{pod.key} has rules for the full validator")
    owned = []
    for item in spec.topology_spread_constraints:
        if item.when_unsatisfiable != "DoNotSchedule":
            continue
        if item.match_label_keys or item.min_domains or item.node_taints_policy or item.node_affinity_policy:
            raise UnknownRuleError(f"{pod.key}: spread with further fields")
        owned.append(_rule(rules, "spread", item.topology_key, pod.namespace, item.label_selector, item.max_skew))
    for kind, wish in (
        ("near", affinity and affinity.pod_affinity),
        ("apart", affinity and affinity.pod_anti_affinity),
    ):
        for term in wish.required if wish else []:
            if term.namespaces or term.namespace_selector or term.match_label_keys or term.mismatch_label_keys:
                raise UnknownRuleError(f"{pod.key}: a term with further fields")
            owned.append(_rule(rules, kind, term.topology_key, pod.namespace, term.label_selector, 1))
    wanted = resources.pod_requests(pod)
    return Shape((-wanted.get("cpu", 0), -wanted.get("memory", 0), pod.uid), wanted, owned)


def _rule(
    rules: dict[str, Rule], kind: str, key: str, namespace: str, selector: LabelSelector | None, skew: int
) -> Rule:
    name = repr((kind, key, namespace, selector, skew))
    return rules.setdefault(name, Rule(kind, key, namespace, selector, skew))


def _selects(rule: Rule, pod: Pod) -> bool:
    return rule.namespace == pod.namespace and selector_matches(rule.selector, pod.metadata.labels)


# Machines.


def _machines(snapshot: ClusterSnapshot, plan: LaunchPlan, shapes: Mapping[str, Shape]) -> Iterator[str]:
    offered: dict[tuple[str, str], frozenset[str]] = {}
    types = {pool: {t.name: t for t in listed} for pool, listed in snapshot.instance_types.items()}
    for index, claim in enumerate(plan.claims):
        total = resources.total(shapes[key].requests for key in claim.pods if key in shapes)
        mine = types[claim.node_pool]
        where = (claim.node_pool, repr([r for r in claim.requirements if r.key != keys.INSTANCE_TYPE]))
        if where not in offered:
            offered[where] = frozenset(name for name, item in mine.items() if _offering_places(claim, item))
        if not claim.instance_types:
            yield f"emission: claim {index} names no type"
        for name in claim.instance_types:
            if name not in offered[where]:
                yield f"offering: claim {index}: {name} has none that may be bought"
            elif not resources.fits(total, mine[name].allocatable()):
                yield f"resources: claim {index}: {name} is too small"


def _offering_places(claim: PlannedClaim, item: InstanceType) -> list[Mapping[str, str]]:
    """Zone and capacity type of the offerings that the claim allows."""
    found = []
    for offering in item.offerings:
        values = {keys.ZONE: {offering.zone}, keys.CAPACITY_TYPE: {offering.capacity_type}}
        if offering.launchable and all(allows(r, values) for r in claim.requirements if r.key in values):
            found.append({keys.ZONE: offering.zone, keys.CAPACITY_TYPE: offering.capacity_type})
    return found


def _limits(snapshot: ClusterSnapshot, plan: LaunchPlan) -> Iterator[str]:
    for pool in snapshot.node_pools:
        types = {t.name: t for t in snapshot.instance_types[pool.name]}
        usage: Resources = {}
        for claim in plan.claims:
            if claim.node_pool == pool.name:
                most = resources.maximum(*(types[name].capacity for name in claim.instance_types))
                usage = resources.add(usage, most, {"nodes": 1})
        for name, limit in available(pool.spec.limits).items():
            if usage.get(name, 0) > limit:
                yield f"limits: {pool.name}: {name} {usage[name]} above {limit}"


# Topology: some order of placing the pods must keep every rule at each step.


def _replay(snapshot: ClusterSnapshot, plan: LaunchPlan, shapes: Mapping[str, Shape]) -> list[str]:
    universe = {
        key: tuple(
            sorted(
                {
                    str(value)
                    for types in snapshot.instance_types.values()
                    for item in types
                    for value in _values(item, key)
                }
            )
        )
        for key in (keys.ZONE, keys.CAPACITY_TYPE)
    }
    runs: dict[int, list[Entry]] = {}
    spots = _spots(snapshot, plan)
    for claim, spot in zip(plan.claims, spots, strict=True):
        for key in claim.pods:
            runs.setdefault(id(shapes[key]), []).append((key, shapes[key], spot))
    ordered = [_in_turn(run) for run in sorted(runs.values(), key=lambda members: members[0][1].order)]
    waiting = _as_the_queue(ordered, universe)
    if waiting:
        _forget(shapes.values())
        waiting = _spreading_first(ordered, universe)
    return [f"topology: {key} on {spot.name}: {_breach(shape, spot, universe)}" for key, shape, spot in waiting[:5]]


def _as_the_queue(runs: list[list[Entry]], universe: Universe) -> list[Entry]:
    """The largest first, run after run of equal pods; what must wait is tried again after each run."""
    waiting: list[Entry] = []
    for run in runs:
        waiting = _place([*waiting, *run], universe)
    return waiting


def _spreading_first(runs: list[list[Entry]], universe: Universe) -> list[Entry]:
    """Pods that spread over zones first; where one is stuck, a pod that only counts there evens the zones out.

    Whoever allows only so many pods of others beside it on its host comes before those others.
    """
    entries = [entry for run in runs for entry in run]
    calm = sorted((entry for entry in entries if not _spreads(entry[1])), key=lambda entry: not _picky(entry[1]))
    others = {entry[0]: entry for entry in calm}
    picky: dict[str, list[Entry]] = {}
    for entry in calm:
        if _picky(entry[1]):
            picky.setdefault(entry[2].name, []).append(entry)
    left: list[Entry] = []
    for run in runs:
        if not _spreads(run[0][1]):
            continue
        for _, shape, spot in run:
            for first in picky.get(spot.name, ()):
                concerned = first[0] in others and any(rule in shape.selected_by for rule in first[1].owned)
                if concerned and not _place([first], universe):
                    del others[first[0]]
        stuck = _place(run, universe)
        while stuck and _even_out(stuck[0][1], others, picky, universe):
            stuck = _place(stuck, universe)
        left += stuck
    return _place([*left, *others.values()], universe)


def _picky(shape: Shape) -> bool:
    return any(rule.kind == "spread" and rule.key == keys.HOSTNAME for rule in shape.owned)


def _even_out(shape: Shape, others: dict[str, Entry], picky: Mapping[str, list[Entry]], universe: Universe) -> bool:
    """Place one of the others where the rule's count is lowest, and where it is in nobody's way."""
    for rule in shape.owned:
        if rule.kind != "spread" or rule.key == keys.HOSTNAME:
            continue
        lowest = min(universe[rule.key], key=lambda domain: (rule.selected.get(domain, 0), domain))
        for entry in others.values():
            if rule not in entry[1].selected_by or entry[2].domains[rule.key] != (lowest,):
                continue
            waiting = [first for first in picky.get(entry[2].name, ()) if first[0] in others and first is not entry]
            in_the_way = any(other in entry[1].selected_by for first in waiting for other in first[1].owned)
            if not in_the_way and not _place([entry], universe):
                del others[entry[0]]
                return True
    return False


def _spreads(shape: Shape) -> bool:
    return any(rule.kind == "spread" and rule.key != keys.HOSTNAME for rule in shape.owned)


def _forget(shapes: Iterable[Shape]) -> None:
    for shape in shapes:
        for rule in (*shape.owned, *shape.selected_by):
            rule.selected.clear()
            rule.owners.clear()


def _spots(snapshot: ClusterSnapshot, plan: LaunchPlan) -> list[Spot]:
    types = {pool: {t.name: t for t in listed} for pool, listed in snapshot.instance_types.items()}
    known: dict[str, dict[str, tuple[str, ...]]] = {}
    found = []
    for index, claim in enumerate(plan.claims):
        name = repr((claim.node_pool, claim.requirements))
        if name not in known:
            places = [p for t in claim.instance_types for p in _offering_places(claim, types[claim.node_pool][t])]
            known[name] = {
                key: tuple(sorted({place[key] for place in places})) for key in (keys.ZONE, keys.CAPACITY_TYPE)
            }
        found.append(Spot(f"claim-{index}", {**known[name], keys.HOSTNAME: (f"claim-{index}",)}))
    return found


def _values(item: InstanceType, key: str) -> set[str]:
    return {o.zone if key == keys.ZONE else o.capacity_type for o in item.offerings}


def _in_turn(run: list[Entry]) -> list[Entry]:
    """Equal pods, one of each zone in turn."""
    numbers: dict[tuple[str, ...], int] = {}
    ranked = []
    for member in run:
        zones = member[2].domains[keys.ZONE]
        numbers[zones] = numbers.get(zones, 0) + 1
        ranked.append((numbers[zones], zones, member))
    return [member for _, _, member in sorted(ranked, key=lambda entry: entry[:2])]


def _place(waiting: list[Entry], universe: Universe) -> list[Entry]:
    """Place whatever may be placed until nothing moves; answers the rest."""
    while True:
        rest = []
        for entry in waiting:
            _, shape, spot = entry
            if _breach(shape, spot, universe):
                rest.append(entry)
                continue
            for rule in shape.selected_by:
                domains = spot.domains[rule.key]
                if rule.kind == "apart" or len(domains) == 1:
                    for domain in domains:
                        rule.selected[domain] = rule.selected.get(domain, 0) + 1
            for rule in shape.owned:
                for domain in spot.domains[rule.key] if rule.kind == "apart" else ():
                    rule.owners[domain] = rule.owners.get(domain, 0) + 1
        if not rest or len(rest) == len(waiting):
            return rest
        waiting = rest


def _breach(shape: Shape, spot: Spot, universe: Universe) -> str:
    """The first rule that placing the pod now would break; empty when none."""
    for rule in shape.owned:
        domains = spot.domains[rule.key]
        counts = [rule.selected.get(domain, 0) for domain in domains]
        itself = rule in shape.selected_by
        if rule.kind == "apart" and any(counts):
            return f"anti-affinity on {rule.key}"
        if rule.kind == "near" and not (counts and all(counts)):
            starts = itself and len(domains) == 1 and not any(rule.selected.values())
            if not starts:
                return f"affinity on {rule.key}"
        if rule.kind == "spread":
            lowest = 0
            if rule.key != keys.HOSTNAME:
                lowest = min(rule.selected.get(domain, 0) for domain in universe[rule.key])
            if len(domains) != 1 or counts[0] + itself - lowest > rule.max_skew:
                return f"spread on {rule.key}: {counts} in {domains}, lowest {lowest}"
    for rule in shape.selected_by:
        if rule.kind == "apart" and any(rule.owners.get(domain, 0) for domain in spot.domains[rule.key]):
            return f"the anti-affinity of another pod on {rule.key}"
    return ""
