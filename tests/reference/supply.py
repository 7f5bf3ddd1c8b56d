"""What pods can be put on: NodePool templates, existing nodes and claims being built."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from pykarpenter.api import labels
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.nodes import Taint
from pykarpenter.api.pods import Affinity, NodeAffinity, Pod
from pykarpenter.api.quantity import available
from pykarpenter.api.workloads import DaemonSet
from pykarpenter.core import resources
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.requirements import Requirements, from_expressions, from_labels, requirement
from pykarpenter.core.resources import Resources
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView
from pykarpenter.core.taints import first_untolerated
from tests.reference.machine import taints_that_count
from tests.reference.selection import is_daemon
from tests.reference.volumes import drivers, merge_drivers

Port = tuple[str, int, str]


def host_ports(pod: Pod) -> list[Port]:
    return [
        (p.host_ip or "0.0.0.0", p.host_port, p.protocol or "TCP")
        for c in pod.spec.containers
        for p in c.ports
        if p.host_port
    ]


def ports_conflict(one: list[Port], other: list[Port]) -> bool:
    wild = ("0.0.0.0", "::")
    return any(
        a[1] == b[1] and a[2] == b[2] and (a[0] == b[0] or a[0] in wild or b[0] in wild) for a in one for b in other
    )


@dataclass
class Template:
    pool: NodePool
    requirements: Requirements
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    types: list[InstanceType]
    remaining: Resources | None


@dataclass
class Existing:
    view: NodeView
    requirements: Requirements
    available: Resources
    ports: list[Port]
    volumes: dict[str, set[str]]
    pods: list[Pod] = field(default_factory=list)
    is_existing: bool = True

    @property
    def taints(self) -> tuple[Taint, ...]:
        return taints_that_count(self.view)


@dataclass
class Claim:
    index: int
    template: Template
    requirements: Requirements
    types: list[InstanceType]
    requests: Resources
    ports: list[Port]
    volumes: dict[str, set[str]]
    held: frozenset[str] = frozenset()
    relaxed_min_values: bool = False
    pods: list[Pod] = field(default_factory=list)
    is_existing: bool = False

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.template.taints

    @property
    def hostname(self) -> str:
        return f"hostname-placeholder-{self.index:04d}"


def usable_pools(snapshot: ClusterSnapshot, managed: frozenset[tuple[str, str]] | None) -> list[NodePool]:
    found = []
    for pool in snapshot.node_pools:
        reference = pool.spec.template.spec.node_class_ref
        if managed is not None and (reference.group, reference.kind) not in managed:
            continue
        if pool.is_static or pool.is_deleting or condition_status(pool.status.conditions, "Ready") != "True":
            continue
        found.append(pool)
    found.sort(key=lambda p: p.name, reverse=True)
    found.sort(key=lambda p: -(p.spec.weight or 0))
    return found


def template_for(pool: NodePool, snapshot: ClusterSnapshot, rules: labels.LabelRules) -> Template:
    spec = pool.spec.template.spec
    values = dict(pool.spec.template.metadata.labels)
    values[labels.NODEPOOL] = pool.name
    values[spec.node_class_ref.label_key] = spec.node_class_ref.name
    requirements = from_expressions(spec.requirements, rules).merged(from_labels(values, rules).values())
    requirements = requirements.merged(
        [requirement(labels.REGISTERED, "In", ["true"]), requirement(labels.INITIALIZED, "In", ["true"])]
    )
    return Template(
        pool,
        requirements,
        values,
        tuple(spec.taints),
        list(snapshot.instance_types.get(pool.name, ())),
        _remaining(pool, snapshot),
    )


def _remaining(pool: NodePool, snapshot: ClusterSnapshot) -> Resources | None:
    if not pool.spec.limits:
        return None
    usage: Resources = {}
    for node in snapshot.nodes:
        if node.pool_name == pool.name and not node.marked_for_deletion:
            usage = resources.add(usage, node.capacity, {"nodes": 1})
    usage = resources.add(usage, snapshot.promised.get(pool.name, {}))
    return {name: amount - usage.get(name, 0) for name, amount in available(pool.spec.limits).items()}


def available_offerings(item: InstanceType, requirements: Requirements, well_known: frozenset[str]) -> list[Offering]:
    return [o for o in item.offerings if o.available and requirements.compatible(o.requirements, well_known)]


def fits_type(item: InstanceType, offerings: list[Offering], total: Resources) -> bool:
    return any(resources.fits(total, item.allocatable(o)) for o in offerings)


def daemon_pod(daemon_set: DaemonSet, snapshot: ClusterSnapshot) -> Pod:
    """The newest live pod, else the template with limits as requests; the template's node affinity in both cases."""
    template = daemon_set.spec.template
    live = snapshot.daemon_pods.get(daemon_set.uid)
    spec = live.spec if live is not None else with_limits_as_requests(template.spec)
    wanted = template.spec.affinity.node_affinity if template.spec.affinity else None
    required = wanted.required if wanted else None
    current = spec.affinity or Affinity()
    node = msgspec.structs.replace(current.node_affinity or NodeAffinity(), required=required)
    spec = msgspec.structs.replace(spec, affinity=msgspec.structs.replace(current, node_affinity=node))
    return Pod(metadata=daemon_set.metadata, spec=spec, status=live.status if live is not None else Pod().status)


def with_limits_as_requests(spec):
    def fill(container):
        merged = {**container.resources.limits, **container.resources.requests}
        return msgspec.structs.replace(
            container, resources=msgspec.structs.replace(container.resources, requests=merged)
        )

    return msgspec.structs.replace(
        spec,
        containers=[fill(c) for c in spec.containers],
        init_containers=[fill(c) for c in spec.init_containers],
    )


def daemon_terms(pod: Pod, rules: labels.LabelRules) -> list[Requirements]:
    base = from_labels(pod.spec.node_selector, rules)
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None or affinity.required is None or not affinity.required.node_selector_terms:
        return [base]
    return [
        base.merged(from_expressions(t.match_expressions, rules).values())
        for t in affinity.required.node_selector_terms
    ]


def hard(taints: tuple[Taint, ...]) -> list[Taint]:
    return [t for t in taints if t.effect != "PreferNoSchedule"]


def daemons_for_type(template: Template, item: InstanceType, daemons: list[Pod], rules: labels.LabelRules) -> list[Pod]:
    found = []
    for pod in daemons:
        if first_untolerated(hard(template.taints), pod.spec.tolerations) is not None:
            continue
        if any(
            template.requirements.compatible(t, rules.well_known) and item.requirements.intersects(t)
            for t in daemon_terms(pod, rules)
        ):
            found.append(pod)
    return found


def existing_target(
    view: NodeView, daemons: list[Pod], snapshot: ClusterSnapshot, rules: labels.LabelRules
) -> Existing:
    values = dict(view.labels)
    values.setdefault(labels.HOSTNAME, view.name)
    requirements = from_labels(values, rules)
    expected: Resources = {}
    for pod in daemons:
        if first_untolerated(hard(taints_that_count(view)), pod.spec.tolerations) is not None:
            continue
        if requirements.compatible(daemon_terms(pod, rules)[0]):
            expected = resources.add(expected, resources.pod_requests(pod))
    running = resources.total(resources.pod_requests(p) for p in view.pods if is_daemon(p))
    rest = {name: max(0, amount - running.get(name, 0)) for name, amount in expected.items()}
    used = resources.total(resources.pod_requests(p) for p in view.pods)
    free = resources.subtract(resources.subtract(view.allocatable, used), rest)
    return Existing(
        view,
        requirements,
        free,
        [port for p in view.pods for port in host_ports(p)],
        merge_drivers(*(drivers(p, snapshot) for p in view.pods)),
    )
