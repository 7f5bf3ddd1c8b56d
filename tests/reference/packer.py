"""The plain packer: first fit, pod by pod, in the order the specification gives, every rule asked anew."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from pykarpenter.api import labels
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.core import resources
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.requirements import Requirement, Requirements, requirement
from pykarpenter.core.resources import Resources
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView
from pykarpenter.core.taints import first_untolerated
from tests.reference import demand, selection, supply, topology, volumes
from tests.reference.defaults import with_default_spread
from tests.reference.supply import Claim, Existing, Template

NO_DEVICES = "dynamic resources are not supported"
NO_VOLUME = "volume lookup failed"
NO_POOLS = "no dynamic nodepools found"
TOO_FEW_VALUES = "pod didn't schedule because NodePool couldn't meet minValues requirements"


@dataclass
class ReferenceClaim:
    node_pool: str
    instance_types: list[str]
    requirements: Requirements
    requests: Resources
    pods: list[str]
    price: float | None
    reserved_ids: list[str]
    min_values_relaxed: bool


@dataclass
class ReferencePlan:
    claims: list[ReferenceClaim] = field(default_factory=list)
    existing: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    deferred: set[str] = field(default_factory=set)
    ignored: dict[str, str] = field(default_factory=dict)

    @property
    def placed(self) -> set[str]:
        return {p for c in self.claims for p in c.pods} | {p for pods in self.existing.values() for p in pods}


class Refused(Exception):
    """The pod does not go there."""


class Deferred(Exception):
    """The pod waits for reserved capacity."""


@dataclass(frozen=True)
class Ties:
    """How ties fall that mean nothing: domains with equally many pods, and pods of equal size and age by their UID."""

    last_domain_first: bool = False
    last_pod_first: bool = False
    # Domains that win every tie they are in.
    favourites: frozenset[str] = frozenset()


NO_TIES = Ties()
ALL_TIES = tuple(Ties(domain, pod) for domain in (False, True) for pod in (False, True))


class World:
    """The state of one simulation."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        settings: PackingSettings,
        credit: Mapping[str, int],
        strict: bool,
        ties: Ties = NO_TIES,
    ) -> None:
        self.ties = ties
        self.snapshot = snapshot
        self.settings = settings
        self.rules = settings.label_rules
        self.credit = dict(credit)
        self.strict_reserved = strict
        self.daemons = [
            supply.daemon_pod(d, snapshot)
            for d in sorted(snapshot.daemon_sets, key=lambda d: d.key)
            if not (settings.ignore_dra_requests and d.spec.template.spec.resource_claims)
        ]
        self.templates: list[Template] = []
        self.claims: list[Claim] = []
        self.targets: list[Existing] = []
        self.placed: list[tuple[Pod, Existing | Claim]] = []
        self.bound: list[tuple[Pod, NodeView]] = []
        # Terminating pods count for no spread, but their own anti-affinity holds until they are gone.
        self.guards: list[tuple[Pod, NodeView]] = []

    def pick_domain(self, equals: list[str]) -> str:
        equals = [domain for domain in equals if domain in self.ties.favourites] or equals
        return max(equals) if self.ties.last_domain_first else min(equals)

    def universe(self, key: str, pod: Pod | None, group: topology.Group | None = None) -> set[str]:
        """Known domains of a key; with a pod only those of pools whose taints it tolerates."""
        found: set[str] = set()
        for template in self.templates:
            if pod is not None and first_untolerated(template.taints, pod.spec.tolerations) is not None:
                continue
            own = template.requirements.get(key)
            if own is not None and not own.complement:
                found |= own.values
            for item in template.types:
                merged = template.requirements.merged(item.requirements.values()).get(key)
                if merged is not None and not merged.complement:
                    found |= merged.values
        for target in self.targets:
            value = target.requirements.get(key)
            if value is None or target.view.node is None:
                continue
            if key == labels.HOSTNAME or group is None or group.passes_filter(target.requirements, target.taints):
                found |= value.values
        if key == labels.HOSTNAME:
            found |= {c.hostname for c in self.claims}
        return found

    def reservation_units(self) -> dict[str, int]:
        units: dict[str, int] = {}
        for types in self.snapshot.instance_types.values():
            for item in types:
                for o in item.offerings:
                    if o.capacity_type == labels.RESERVED and o.reservation_id:
                        known = units.get(o.reservation_id)
                        units[o.reservation_id] = (
                            o.reservation_capacity if known is None else min(known, o.reservation_capacity)
                        )
        for key, extra in self.credit.items():
            if key in units:
                units[key] += extra
        return units


def pack_reference(
    snapshot: ClusterSnapshot,
    settings: PackingSettings,
    *,
    credit: Mapping[str, int] | None = None,
    strict_reserved: bool = True,
    ties: Ties = NO_TIES,
) -> ReferencePlan:
    """The specification's answer for a snapshot."""
    plan = ReferencePlan()
    world = World(snapshot, settings, credit or {}, strict_reserved, ties)
    pods = _batch(snapshot, settings, plan)
    batch_uids = {p.key for p in pods}
    world.guards = [
        (p, n) for n in snapshot.nodes for p in n.pods if not selection.is_terminal(p) and p.key not in batch_uids
    ]
    world.bound = [(p, n) for p, n in world.guards if not p.is_deleting]
    pools = supply.usable_pools(snapshot, settings.managed_class_kinds)
    if not pools:
        plan.failed = {p.key: NO_POOLS for p in pods}
        return plan
    for pool in pools:
        if not snapshot.instance_types.get(pool.name):
            continue
        template = supply.template_for(pool, snapshot, settings.label_rules)
        template.types = _filter(world, template.requirements, template.types, {}, [])
        template.types = _enforce_min_values(
            world, template.requirements, template.types, settings.min_values_policy == "BestEffort"
        )[0]
        if template.types:
            world.templates.append(template)
    views = [n for n in snapshot.nodes if not n.marked_for_deletion]
    views.sort(key=lambda n: (not n.initialized, n.name))
    world.targets = [supply.existing_target(v, world.daemons, snapshot, settings.label_rules) for v in views]
    _run(world, pods, plan)
    _emit(world, plan)
    return plan


def _batch(snapshot: ClusterSnapshot, settings: PackingSettings, plan: ReferencePlan) -> list[Pod]:
    pods: list[Pod] = []
    for pod in snapshot.pods:
        if not selection.provisionable(pod):
            continue
        problem = selection.pod_problem(pod, snapshot, settings.label_rules)
        if problem is not None:
            plan.ignored[pod.key] = problem
        else:
            pods.append(pod)
    pods += selection.leaving_pods(snapshot)
    pods += list(snapshot.buffer_pods)
    return [with_default_spread(p, snapshot, settings.default_spread) for p in pods]


def _order(pod: Pod) -> tuple[int, int, float]:
    wanted = resources.pod_requests(pod)
    created = parse_optional_timestamp(pod.metadata.creation_timestamp) or 0.0
    return (-wanted.get("cpu", 0), -wanted.get("memory", 0), created)


def _run(world: World, pods: list[Pod], plan: ReferencePlan) -> None:
    by_uid = sorted(pods, key=lambda pod: pod.uid, reverse=world.ties.last_pod_first)
    queue = deque(sorted(by_uid, key=_order))
    last_length: dict[str, int] = {}
    errors: dict[str, str] = {}
    while queue:
        pod = queue.popleft()
        if last_length.get(pod.key) == len(queue) + 1:
            queue.appendleft(pod)
            break
        try:
            _place(world, pod)
            errors.pop(pod.key, None)
            plan.deferred.discard(pod.key)
            continue
        except Refused as refusal:
            errors[pod.key] = str(refusal)
            plan.deferred.discard(pod.key)
        except Deferred as deferral:
            errors[pod.key] = str(deferral)
            plan.deferred.add(pod.key)
        queue.append(pod)
        last_length[pod.key] = len(queue)
    plan.failed = {key: text for key, text in errors.items() if key not in plan.deferred}


def _place(world: World, pod: Pod) -> None:
    """Try, relax, try again; raises Refused or Deferred."""
    if pod.spec.resource_claims and world.settings.ignore_dra_requests:
        raise Refused(NO_DEVICES)
    if volumes.bound_volume_lost(pod, world.snapshot):
        raise Refused(NO_VOLUME)
    attempt: Pod | None = demand.without_preferences(pod) if world.settings.preference_policy == "Ignore" else pod
    prefer = any(t.effect == "PreferNoSchedule" for x in (*world.templates, *world.targets) for t in x.taints)
    last = Refused("nothing tried")
    while attempt is not None:
        try:
            _attempt(world, attempt, pod)
            return
        except Refused as refusal:
            last = refusal
        attempt = demand.relax(attempt, prefer)
    raise last


def _attempt(world: World, pod: Pod, original: Pod) -> None:
    for target in world.targets:
        if _try_existing(world, target, pod):
            target.pods.append(original)
            world.placed.append((original, target))
            return
    for claim in sorted(world.claims, key=lambda c: (len(c.pods), c.index)):
        try:
            changed = _extend(world, claim, pod, new=False)
        except (Refused, Deferred):
            continue
        _commit(world, claim, changed, original)
        return
    reason = Refused("nodepool requirements filtered out all available instance types")
    for template in world.templates:
        try:
            claim = _open(world, template)
            changed = _extend(world, claim, pod, new=True)
        except Refused as refusal:
            reason = refusal
            continue
        _charge(template, changed.types)
        world.claims.append(claim)
        _commit(world, claim, changed, original)
        return
    raise reason


def _commit(world: World, claim: Claim, changed: Claim, original: Pod) -> None:
    claim.requirements, claim.types, claim.requests = changed.requirements, changed.types, changed.requests
    claim.ports, claim.volumes, claim.held = changed.ports, changed.volumes, changed.held
    claim.relaxed_min_values = claim.relaxed_min_values or changed.relaxed_min_values
    claim.pods.append(original)
    world.placed.append((original, claim))


def _wanted(world: World, pod: Pod) -> Requirements:
    return demand.full_requirements(pod, world.rules)


def _topology(world: World, pod: Pod, requirements: Requirements, undefined: frozenset[str]) -> Requirements:
    """Requirements narrowed by every rule that concerns the pod; raises Refused."""
    strict = demand.strict_requirements(pod, world.rules)
    for group in topology.owned_groups(pod, world, preferences=True):
        domains = topology.allowed_domains(group, pod, strict, requirements, world)
        if not domains:
            raise Refused(f"unsatisfiable topology {group.kind} {group.key}")
        requirements = _narrow(requirements, group.key, domains, undefined)
    for key in topology.mirror_keys(pod, world):
        blocked = topology.blocked_by_mirrors(pod, key, world)
        current = requirements.get_or_exists(key)
        known = current.values if not current.complement else world.universe(key, None)
        if not known and not blocked:
            # Nothing has the key, so nothing can be in one domain with the pod that asks to be apart.
            continue
        domains = {d for d in known if d not in blocked and current.allows(d) and strict.get_or_exists(key).allows(d)}
        if not domains:
            raise Refused(f"another pod's anti-affinity on {key}")
        requirements = _narrow(requirements, key, domains, undefined)
    return requirements


def _narrow(requirements: Requirements, key: str, domains: set[str], undefined: frozenset[str]) -> Requirements:
    wanted = Requirements([Requirement(key, frozenset(domains))])
    if not requirements.compatible(wanted, undefined):
        raise Refused(f"topology domain of {key} not offered")
    return requirements.merged(wanted.values())


def _try_existing(world: World, target: Existing, pod: Pod) -> bool:
    if first_untolerated(target.taints, pod.spec.tolerations) is not None:
        return False
    merged = volumes.merge_drivers(target.volumes, volumes.drivers(pod, world.snapshot))
    for driver in volumes.drivers(pod, world.snapshot):
        limit = _volume_limit(world, target.view, driver)
        if limit is not None and len(merged[driver]) > limit:
            return False
    ports = supply.host_ports(pod)
    if supply.ports_conflict(ports, target.ports):
        return False
    wanted = resources.pod_requests(pod)
    if not resources.fits(wanted, target.available):
        return False
    if not target.requirements.compatible(_wanted(world, pod)):
        return False
    for alternative in volumes.alternatives(pod, world.snapshot, world.rules):
        if not target.requirements.compatible(alternative):
            continue
        try:
            _topology(world, pod, target.requirements, frozenset())
        except Refused:
            continue
        target.available = resources.subtract(target.available, wanted)
        target.ports = [*target.ports, *ports]
        target.volumes = merged
        return True
    return False


def _volume_limit(world: World, view: NodeView, driver: str) -> int | None:
    csi = world.snapshot.volumes.csi_nodes.get(view.node.name if view.node else view.name)
    for entry in csi.spec.drivers if csi is not None else []:
        if entry.name == driver:
            return entry.allocatable.count if entry.allocatable is not None else None
    for item in world.snapshot.instance_types.get(view.pool_name, ()):
        if item.name == view.labels.get(labels.INSTANCE_TYPE):
            return item.volume_attachment_limits.get(driver)
    return None


def _open(world: World, template: Template) -> Claim:
    types = template.types
    if template.remaining is not None:
        if template.remaining.get("nodes", 1) <= 0:
            raise Refused("node limits have been exhausted for nodepool")
        types = [
            t
            for t in types
            if all(t.capacity.get(name, 0) <= left for name, left in template.remaining.items() if name != "nodes")
        ]
        if not types:
            raise Refused("all available instance types exceed limits for nodepool")
    index = len(world.claims) + 1
    claim = Claim(index, template, template.requirements, types, {}, [], {})
    claim.requirements = claim.requirements.merged([requirement(labels.HOSTNAME, "In", [claim.hostname])])
    return claim


def _charge(template: Template, types: list[InstanceType]) -> None:
    if template.remaining is not None:
        most = resources.maximum(*(t.capacity for t in types))
        most["nodes"] = 1
        template.remaining = {n: left - most.get(n, 0) for n, left in template.remaining.items()}


def _extend(world: World, claim: Claim, pod: Pod, *, new: bool) -> Claim:
    """The claim as it would be with the pod; raises Refused or Deferred."""
    if first_untolerated(claim.taints, pod.spec.tolerations) is not None:
        raise Refused("did not tolerate a taint")
    attached = volumes.merge_drivers(claim.volumes, volumes.drivers(pod, world.snapshot))
    types = [
        t
        for t in claim.types
        if all(len(keys) <= t.volume_attachment_limits.get(d, len(keys)) for d, keys in attached.items())
    ]
    if not types:
        raise Refused("would exceed volume limit for all instance type options")
    wanted = _wanted(world, pod)
    if not claim.requirements.compatible(wanted, world.rules.well_known):
        raise Refused("incompatible requirements")
    merged = claim.requirements.merged(wanted.values())
    ports = supply.host_ports(pod)
    if supply.ports_conflict(ports, claim.ports):
        raise Refused("host port in use")
    total = resources.add(claim.requests, resources.pod_requests(pod))
    last: Exception = Refused("volume topology")
    for alternative in volumes.alternatives(pod, world.snapshot, world.rules):
        if not merged.compatible(alternative, world.rules.well_known):
            continue
        try:
            narrowed = _topology(world, pod, merged.merged(alternative.values()), world.rules.well_known)
            return _fit(world, claim, narrowed, types, total, [*claim.ports, *ports], attached, new)
        except Refused as refusal:
            last = refusal
    raise last


def _fit(
    world: World,
    claim: Claim,
    narrowed: Requirements,
    types: list[InstanceType],
    total: Resources,
    ports: list[supply.Port],
    attached: dict[str, set[str]],
    new: bool,
) -> Claim:
    survivors = _filter(world, narrowed, types, total, ports, claim.template)
    relaxed = False
    narrowed_after = narrowed
    if survivors:
        best_effort = new and world.settings.min_values_policy == "BestEffort"
        held, launchable = _reserve(world, claim, narrowed, survivors)
        survivors, narrowed_after, relaxed = _enforce_min_values_full(world, narrowed, launchable, best_effort)
    else:
        raise Refused("no instance type satisfied resources, requirements and offerings")
    if not survivors:
        raise Refused("minValues requirement is not met")
    return Claim(claim.index, claim.template, narrowed_after, survivors, total, ports, attached, held, relaxed)


def _filter(
    world: World,
    requirements: Requirements,
    types: list[InstanceType],
    total: Resources,
    ports: list[supply.Port],
    template: Template | None = None,
) -> list[InstanceType]:
    """Types that still meet the requirements, have an available offering, and hold everything with daemons."""
    result = []
    for item in types:
        if not item.requirements.intersects(requirements):
            continue
        offerings = supply.available_offerings(item, requirements, world.rules.well_known)
        if not offerings:
            continue
        daemons = supply.daemons_for_type(template, item, world.daemons, world.rules) if template else []
        if supply.ports_conflict(ports, [p for d in daemons for p in supply.host_ports(d)]):
            continue
        overhead = resources.total(resources.pod_requests(d) for d in daemons)
        if supply.fits_type(item, offerings, resources.add(total, overhead)):
            result.append(item)
    return result


def _reserve(
    world: World, claim: Claim, requirements: Requirements, types: list[InstanceType]
) -> tuple[frozenset[str], list[InstanceType]]:
    """Reservations the claim would hold, and the types that can really be launched; raises Deferred or Refused."""
    well_known = world.rules.well_known
    free = world.reservation_units()
    for other in world.claims:
        if other is not claim and other.index != claim.index:
            for key in other.held:
                free[key] = free.get(key, 0) - 1
    nonfull: set[str] = set()
    full = fallback = False
    for item in types:
        for o in supply.available_offerings(item, requirements, well_known):
            if o.capacity_type != labels.RESERVED or not world.settings.reserved_capacity:
                fallback = fallback or o.capacity_type != labels.RESERVED
                continue
            if o.reservation_capacity > 0 or o.reservation_id in world.credit:
                nonfull.add(o.reservation_id)
            else:
                full = True
    held = frozenset(key for key in nonfull if free.get(key, 0) > 0 or key in claim.held)
    if world.strict_reserved and nonfull and not held:
        raise Deferred("reserved capacity is being used up by other claims")
    if not nonfull and full and not fallback:
        if world.strict_reserved:
            raise Deferred("all compatible reserved offerings are full and no on-demand or spot fallback is available")
        raise Refused("all compatible reserved offerings are full")
    if world.strict_reserved and claim.held and not held:
        raise Deferred("the claim would lose its reservation")
    launchable = [t for t in types if _launchable(world, t, requirements, held)]
    if not launchable:
        raise Refused("no launchable offering")
    return held, launchable


def _launchable(world: World, item: InstanceType, requirements: Requirements, held: frozenset[str]) -> bool:
    for o in supply.available_offerings(item, requirements, world.rules.well_known):
        if o.capacity_type != labels.RESERVED:
            return True
        # A reservation without a unit in hand is not the claim's to launch from.
        if o.reservation_id in held or (not world.settings.reserved_capacity and o.reservation_capacity > 0):
            return True
    return False


def _enforce_min_values(
    world: World, requirements: Requirements, types: list[InstanceType], best_effort: bool
) -> tuple[list[InstanceType], Requirements]:
    survivors, narrowed, _ = _enforce_min_values_full(world, requirements, types, best_effort)
    return survivors, narrowed


def _enforce_min_values_full(
    world: World, requirements: Requirements, types: list[InstanceType], best_effort: bool
) -> tuple[list[InstanceType], Requirements, bool]:
    relaxed = False
    result = requirements
    for item in requirements.values():
        if item.min_values is None:
            continue
        values = {v for t in types for v in t.requirements.get_or_exists(item.key).values if item.allows(v)}
        if len(values) >= item.min_values:
            continue
        if not best_effort:
            return [], requirements, False
        relaxed = True
        lowered = Requirement(item.key, item.values, item.complement, item.gte, item.lte, len(values))
        result = Requirements([*(r for r in result.values() if r.key != item.key), lowered])
    return types, result, relaxed


def _emit(world: World, plan: ReferencePlan) -> None:
    for claim in world.claims:
        requirements = claim.requirements.without(labels.HOSTNAME)
        if claim.held:
            requirements = requirements.merged([requirement(labels.CAPACITY_TYPE, "In", [labels.RESERVED])])
            if world.settings.reservation_id_label:
                requirements = requirements.merged(
                    [requirement(world.settings.reservation_id_label, "In", sorted(claim.held))]
                )
        priced = []
        for item in claim.types:
            if not _launchable(world, item, requirements, claim.held):
                continue
            cheapest = item.cheapest(requirements, world.rules.well_known)
            priced.append(
                (cheapest.price if cheapest and cheapest.price is not None else float("inf"), item.name, item)
            )
        priced.sort(key=lambda entry: (entry[0], entry[1]))
        kept = [item for _, _, item in priced[: world.settings.max_instance_types]]
        if not _enforce_min_values(world, requirements, kept, world.settings.min_values_policy == "BestEffort")[0]:
            for pod in claim.pods:
                plan.failed[pod.key] = TOO_FEW_VALUES
            continue
        price = priced[0][0]
        plan.claims.append(
            ReferenceClaim(
                claim.template.pool.name,
                [item.name for item in kept],
                requirements.without(labels.REGISTERED, labels.INITIALIZED),
                claim.requests,
                [p.key for p in claim.pods],
                None if price == float("inf") else price,
                sorted(claim.held),
                claim.relaxed_min_values,
            )
        )
    plan.existing = {t.view.name: [p.key for p in t.pods] for t in world.targets if t.pods}
