"""Replays any plan and names each rule it breaks: written from the specification, sharing nothing with the engine.

It looks at machines as kube-scheduler will see them: for every type and offering a claim allows, the labels such a
machine would carry, what would run on it, and whether some order of placing the pods keeps every topology rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pykarpenter.api import labels as keys
from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.nodes import Taint
from pykarpenter.api.pods import NodeSelectorRequirement, Pod
from pykarpenter.api.quantity import available
from pykarpenter.core import resources
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.plans import LaunchPlan, PlannedClaim
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView
from tests.reference import ordering
from tests.reference.machine import (
    Machine,
    allows,
    claim_machine,
    conflicting_ports,
    existing_machine,
    machine_labels,
    node_affinity_holds,
    pod_host_ports,
    taints_that_count,
    tolerated,
)
from tests.reference.selection import claim_names, provisionable
from tests.reference.volumes import drivers, merge_drivers


@dataclass
class Report:
    """Broken rules, each as `rule: what`."""

    problems: list[str] = field(default_factory=list)

    def add(self, rule: str, what: str) -> None:
        self.problems.append(f"{rule}: {what}")


def validate(snapshot: ClusterSnapshot, settings: PackingSettings, plan: LaunchPlan) -> list[str]:
    """Every rule the plan breaks; an empty list accepts it."""
    report = Report()
    pods = _pods_by_key(snapshot)
    _each_pod_once(snapshot, plan, pods, report)
    machines: list[Machine] = []
    for index, claim in enumerate(plan.claims):
        machines.append(_check_claim(snapshot, settings, claim, index, pods, report))
    for placement in plan.existing:
        view = next((n for n in snapshot.nodes if n.name == placement.node), None)
        if view is None or view.marked_for_deletion:
            report.add("existing", f"{placement.node} cannot take pods")
            continue
        machines.append(_check_existing(snapshot, settings, view, placement.pods, pods, report))
    _check_limits(snapshot, plan, report)
    _check_reservations(snapshot, settings, plan, report)
    for problem in ordering.replay(snapshot, settings, machines):
        report.add("topology", problem)
    return report.problems


def _pods_by_key(snapshot: ClusterSnapshot) -> dict[str, Pod]:
    found = {p.key: p for p in snapshot.pods}
    found.update({p.key: p for n in snapshot.nodes if n.marked_for_deletion for p in n.pods})
    found.update({p.key: p for p in snapshot.buffer_pods})
    return found


def _each_pod_once(snapshot: ClusterSnapshot, plan: LaunchPlan, pods: Mapping[str, Pod], report: Report) -> None:
    placed = [p for c in plan.claims for p in c.pods] + [p for e in plan.existing for p in e.pods]
    for key in sorted({p for p in placed if placed.count(p) > 1}):
        report.add("once", f"{key} is placed twice")
    for key in placed:
        if key not in pods:
            report.add("once", f"{key} is not in the batch")
    answered = {*placed, *plan.unschedulable, *plan.deferred, *plan.ignored}
    for pod in snapshot.pods:
        if provisionable(pod) and pod.key not in answered:
            report.add("once", f"{pod.key} got no answer")


def _check_claim(
    snapshot: ClusterSnapshot,
    settings: PackingSettings,
    claim: PlannedClaim,
    index: int,
    pods: Mapping[str, Pod],
    report: Report,
) -> Machine:
    name = f"claim {index} ({claim.node_pool})"
    pool = next(p for p in snapshot.node_pools if p.name == claim.node_pool)
    mine = [pods[key] for key in claim.pods if key in pods]
    if pool.is_static or pool.is_deleting:
        report.add("pool", f"{name}: the pool takes no new machines")
    if not 1 <= len(claim.instance_types) <= settings.max_instance_types:
        report.add("emission", f"{name}: {len(claim.instance_types)} instance types")
    types = {t.name: t for t in snapshot.instance_types[claim.node_pool]}
    for pod in mine:
        if not tolerated(pod.spec.tolerations, pool.spec.template.spec.taints):
            report.add("taints", f"{name}: {pod.key} tolerates not all taints")
    if conflicting_ports([pod_host_ports(p) for p in mine]):
        report.add("ports", f"{name}: host ports collide")
    combinations = 0
    for type_name in claim.instance_types:
        item = types.get(type_name)
        if item is None:
            report.add("emission", f"{name}: unknown type {type_name}")
            continue
        found = _check_type(snapshot, settings, claim, pool, item, mine, name, report)
        if not found:
            report.add("offering", f"{name}: {type_name} has no launchable offering that fits")
        combinations += found
    _check_min_values(claim, pool, types, settings, name, report)
    needs = {t: _needs_of_type(snapshot, claim, pool, types[t], mine) for t in claim.instance_types if t in types}
    _check_emission(claim, types, needs, name, report)
    return claim_machine(claim, index, pool, types, mine)


def _needs_of_type(
    snapshot: ClusterSnapshot, claim: PlannedClaim, pool: NodePool, item: InstanceType, mine: list[Pod]
) -> resources.Resources:
    """What pods and DaemonSets ask of a type: a DaemonSet counts for the type when any of its machines would get it."""
    daemons: dict[str, Pod] = {}
    for offering in item.offerings:
        if _offering_allowed(pool.spec.template.spec.requirements, offering):
            values = machine_labels(claim, pool, item, offering)
            daemons.update({d.key: d for d in _daemons_on(snapshot, pool.spec.template.spec.taints, values)})
    return resources.total(resources.pod_requests(p) for p in (*mine, *daemons.values()))


def _check_emission(
    claim: PlannedClaim,
    types: Mapping[str, InstanceType],
    needs: Mapping[str, resources.Resources],
    name: str,
    report: Report,
) -> None:
    """Cheapest first, and overlays that changed one of the types are named."""
    kept = [types[t] for t in claim.instance_types if t in types]
    # An offering with less capacity than its type may be too small for the pods: such a price may be left out.
    ways = [[_price(item, claim, wanted) for item in kept] for wanted in (needs, None)]
    if not any(prices == sorted(prices) for prices in ways):
        report.add("emission", f"{name}: types are not in the order of their prices")
    if claim.choice.price is not None and all(claim.choice.price != prices[0] for prices in ways):
        report.add("emission", f"{name}: chosen at {claim.choice.price}, the cheapest offering is {ways[0][0]}")
    for key, applied in (
        (keys.PRICE_OVERLAY_APPLIED, any(o.price_overlaid for item in kept for o in item.offerings)),
        (keys.CAPACITY_OVERLAY_APPLIED, any(item.capacity_overlaid for item in kept)),
    ):
        if (claim.annotations.get(key) == "true") is not applied:
            report.add("emission", f"{name}: annotation {key} is wrong")


def _price(item: InstanceType, claim: PlannedClaim, needs: Mapping[str, resources.Resources] | None) -> float:
    offered = [
        o
        for o in item.offerings
        if o.launchable
        and _offering_allowed(claim.requirements, o)
        and (needs is None or resources.fits(needs[item.name], item.allocatable(o)))
    ]
    return min((o.price for o in offered if o.price is not None), default=float("inf"))


def _check_type(
    snapshot: ClusterSnapshot,
    settings: PackingSettings,
    claim: PlannedClaim,
    pool: NodePool,
    item: InstanceType,
    mine: list[Pod],
    name: str,
    report: Report,
) -> int:
    """Offerings of the type on which everything holds; each pod is asked on each offering that fits."""
    good = 0
    attached = merge_drivers(*(drivers(p, snapshot) for p in mine))
    for driver, claims in attached.items():
        if len(claims) > item.volume_attachment_limits.get(driver, len(claims)):
            report.add("volume-limit", f"{name}: {item.name} attaches at most {item.volume_attachment_limits[driver]}")
    for offering in item.offerings:
        if not offering.launchable or not _offering_allowed(claim.requirements, offering):
            continue
        values = machine_labels(claim, pool, item, offering)
        daemons = _daemons_on(snapshot, pool.spec.template.spec.taints, values)
        total = resources.total(resources.pod_requests(p) for p in (*mine, *daemons))
        if not resources.fits(total, item.allocatable(offering)):
            continue
        if conflicting_ports([pod_host_ports(p) for p in (*mine, *daemons)]):
            continue
        good += 1
        for pod in mine:
            if not node_affinity_holds(pod, values):
                report.add("requirements", f"{name}: {pod.key} refuses {item.name} in {offering.zone}")
            if not _volumes_reachable(snapshot, pod, values):
                report.add("volumes", f"{name}: {pod.key} has a volume elsewhere than {offering.zone}")
        for expression in pool.spec.template.spec.requirements:
            if not allows(expression, values):
                report.add("requirements", f"{name}: {item.name} breaks the pool's {expression.key}")
    return good


def _offering_allowed(expressions: Iterable[NodeSelectorRequirement], offering: Offering) -> bool:
    for expression in expressions:
        requirement = offering.requirements.get(expression.key)
        if requirement is None or requirement.complement:
            continue
        if not any(allows(expression, {expression.key: {v}}) for v in requirement.values):
            return False
    return True


def _daemons_on(snapshot: ClusterSnapshot, taints: Iterable[Taint], values: Mapping[str, set[str]]) -> list[Pod]:
    from tests.reference.supply import daemon_pod

    hard = [t for t in taints if t.effect != "PreferNoSchedule"]
    found = []
    for daemon_set in snapshot.daemon_sets:
        pod = daemon_pod(daemon_set, snapshot)
        if tolerated(pod.spec.tolerations, hard) and node_affinity_holds(pod, values):
            found.append(pod)
    return found


def _volumes_reachable(snapshot: ClusterSnapshot, pod: Pod, values: Mapping[str, set[str]]) -> bool:
    for key in claim_names(pod):
        claim = snapshot.volumes.claims.get(key)
        if claim is None:
            return False
        terms: list[list[NodeSelectorRequirement]] = []
        if claim.spec.volume_name:
            volume = snapshot.volumes.volumes.get(claim.spec.volume_name)
            if volume is None:
                return False
            affinity = volume.spec.node_affinity
            local = volume.spec.local is not None or volume.spec.host_path is not None
            for term in affinity.required.node_selector_terms if affinity and affinity.required else []:
                terms.append([e for e in term.match_expressions if not (local and e.key == keys.HOSTNAME)])
        else:
            storage_class = snapshot.volumes.classes.get(claim.spec.storage_class_name or "")
            for topology in storage_class.allowed_topologies if storage_class else []:
                terms.append(
                    [
                        NodeSelectorRequirement(key=e.key, operator="In", values=e.values)
                        for e in topology.match_label_expressions
                    ]
                )
        if terms and not any(all(allows(e, values) for e in term) for term in terms):
            return False
    return True


def _check_min_values(
    claim: PlannedClaim,
    pool: NodePool,
    types: Mapping[str, InstanceType],
    settings: PackingSettings,
    name: str,
    report: Report,
) -> None:
    if settings.min_values_policy != "Strict":
        return
    for expression in pool.spec.template.spec.requirements:
        if expression.min_values is None:
            continue
        key = keys.DEFAULT_RULES.normalise(expression.key)
        narrowed = [e for e in claim.requirements if e.key == key]
        values = set()
        for type_name in claim.instance_types:
            item = types.get(type_name)
            requirement = item.requirements.get(key) if item else None
            for value in requirement.values if requirement else ():
                if all(allows(e, {key: {value}}) for e in narrowed):
                    values.add(value)
        if len(values) < expression.min_values:
            report.add("min-values", f"{name}: {len(values)} values of {key}, {expression.min_values} wanted")


def _check_existing(
    snapshot: ClusterSnapshot,
    settings: PackingSettings,
    view: NodeView,
    placed: Iterable[str],
    pods: Mapping[str, Pod],
    report: Report,
) -> Machine:
    mine = [pods[key] for key in placed if key in pods]
    values = {key: {value} for key, value in view.labels.items()}
    for pod in mine:
        if not tolerated(pod.spec.tolerations, taints_that_count(view)):
            report.add("taints", f"{view.name}: {pod.key} tolerates not all taints")
        if not node_affinity_holds(pod, values):
            report.add("requirements", f"{view.name}: {pod.key} refuses its labels")
        if not _volumes_reachable(snapshot, pod, values):
            report.add("volumes", f"{view.name}: {pod.key} has a volume elsewhere")
    if conflicting_ports([pod_host_ports(p) for p in (*view.pods, *mine)]):
        report.add("ports", f"{view.name}: host ports collide")
    total = resources.total(resources.pod_requests(p) for p in (*view.pods, *mine))
    if not resources.fits(resources.add(total, _daemons_to_come(snapshot, view, values)), view.allocatable):
        report.add("resources", f"{view.name}: more than it has")
    _check_attachments(snapshot, view, mine, report)
    return existing_machine(view, mine)


def _daemons_to_come(snapshot: ClusterSnapshot, view: NodeView, values: Mapping[str, set[str]]) -> resources.Resources:
    """What DaemonSets will still ask of a node beyond what their pods there have already."""
    wanted = resources.total(resources.pod_requests(p) for p in _daemons_on(snapshot, taints_that_count(view), values))
    there = resources.total(
        resources.pod_requests(p) for p in view.pods if any(o.kind == "DaemonSet" for o in p.metadata.owner_references)
    )
    return {name: max(amount - there.get(name, 0), 0) for name, amount in wanted.items()}


def _check_attachments(snapshot: ClusterSnapshot, view: NodeView, mine: list[Pod], report: Report) -> None:
    attached = merge_drivers(*(drivers(p, snapshot) for p in (*view.pods, *mine)))
    wanted = merge_drivers(*(drivers(p, snapshot) for p in mine))
    csi = snapshot.volumes.csi_nodes.get(view.node.name if view.node else view.name)
    published = {d.name: d.allocatable for d in csi.spec.drivers} if csi else {}
    for driver in wanted:
        limit = None
        if driver in published:
            resource = published[driver]
            limit = resource.count if resource is not None else None
        else:
            for item in snapshot.instance_types.get(view.pool_name, ()):
                if item.name == view.labels.get(keys.INSTANCE_TYPE):
                    limit = item.volume_attachment_limits.get(driver)
        if limit is not None and len(attached[driver]) > limit:
            report.add("volume-limit", f"{view.name}: {len(attached[driver])} volumes of {driver}, at most {limit}")


def _check_limits(snapshot: ClusterSnapshot, plan: LaunchPlan, report: Report) -> None:
    for pool in snapshot.node_pools:
        limits = available(pool.spec.limits)
        mine = [c for c in plan.claims if c.node_pool == pool.name]
        if not limits or not mine:
            continue
        types = {t.name: t for t in snapshot.instance_types[pool.name]}
        usage = dict(snapshot.promised.get(pool.name, {}))
        for node in snapshot.nodes:
            if node.pool_name == pool.name and not node.marked_for_deletion:
                usage = resources.add(usage, node.capacity, {"nodes": 1})
        for claim in mine:
            # A machine counts as its offering makes it, whichever the claim can be bought as.
            most = resources.maximum(
                *(
                    {**types[t].capacity, **o.capacity_override}
                    for t in claim.instance_types
                    if t in types
                    for o in types[t].offerings
                    if o.launchable
                    and _offering_allowed(claim.requirements, o)
                    and resources.fits(claim.requests, types[t].allocatable(o))
                )
            )
            usage = resources.add(usage, most, {"nodes": 1})
        for name, limit in limits.items():
            if usage.get(name, 0) > limit:
                report.add("limits", f"{pool.name}: {name} {usage[name]} above {limit}")


def _check_reservations(snapshot: ClusterSnapshot, settings: PackingSettings, plan: LaunchPlan, report: Report) -> None:
    """Claims pinned to reserved capacity must fit into the units of their reservations, one machine each."""
    if not settings.reservation_id_label:
        return
    units: dict[str, int] = {}
    for types in snapshot.instance_types.values():
        for item in types:
            for o in item.offerings:
                if o.reservation_id:
                    units[o.reservation_id] = min(
                        units.get(o.reservation_id, o.reservation_capacity), o.reservation_capacity
                    )
    held: dict[str, int] = {}
    for claim in plan.claims:
        for expression in claim.requirements:
            if expression.key == settings.reservation_id_label and expression.operator == "In":
                for value in expression.values:
                    held[value] = held.get(value, 0) + 1
    for key, count in held.items():
        if count > units.get(key, 0):
            report.add("reservations", f"{key}: {count} claims hold {units.get(key, 0)} units")
