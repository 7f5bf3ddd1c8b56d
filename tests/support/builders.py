"""Builders of pods, nodes, pools and snapshots for tests: short to call, plain to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pykarpenter.api import labels as keys
from pykarpenter.api.meta import Condition, LabelSelector, ObjectMeta, OwnerReference
from pykarpenter.api.nodepool import (
    NodeClaimTemplate,
    NodeClaimTemplateSpec,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    NodePoolStatus,
    TemplateMetadata,
)
from pykarpenter.api.nodes import Node, NodeSpec, NodeStatus, Taint
from pykarpenter.api.pods import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    PodTemplateSpec,
    PreferredSchedulingTerm,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from pykarpenter.api.quantity import available
from pykarpenter.api.workloads import DaemonSet, DaemonSetSpec
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.requirements import Requirement, Requirements
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView

ZONES = ("zone-a", "zone-b", "zone-c")
UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable")
READY = Condition(type="Ready", status="True")


def make_pod(
    name: str = "pod",
    cpu: str = "1",
    memory: str = "1Gi",
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    owner: OwnerReference | None = None,
    ports: Sequence[int] = (),
    **spec: Any,
) -> Pod:
    """A pending pod that the scheduler gave up on."""
    wanted = requests if requests is not None else {"cpu": cpu, "memory": memory}
    main = Container(
        name="main",
        resources=ResourceRequirements(requests=dict(wanted)),
        ports=[ContainerPort(container_port=port, host_port=port) for port in ports],
    )
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-{namespace}-{name}",
            labels=dict(labels or {}),
            annotations=dict(annotations or {}),
            owner_references=[owner] if owner is not None else [],
        ),
        spec=PodSpec(containers=spec.pop("containers", [main]), **spec),
        status=PodStatus(phase="Pending", conditions=[UNSCHEDULABLE]),
    )


def make_pods(count: int, name: str = "pod", **fields: Any) -> list[Pod]:
    return [make_pod(f"{name}-{index:04d}", **fields) for index in range(count)]


def bound_pod(name: str, node: str, cpu: str = "1", memory: str = "1Gi", **fields: Any) -> Pod:
    """A pod that runs on a node."""
    pod = make_pod(name, cpu, memory, node_name=node, **fields)
    return Pod(metadata=pod.metadata, spec=pod.spec, status=PodStatus(phase="Running"))


def expression(key: str, operator: str, *values: str, min_values: int | None = None) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=list(values), min_values=min_values)


def required_terms(*terms: Sequence[NodeSelectorRequirement]) -> Affinity:
    """Required node affinity; the terms are alternatives."""
    listed = [NodeSelectorTerm(match_expressions=list(term)) for term in terms]
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=listed)))


def preferred_terms(*terms: tuple[int, Sequence[NodeSelectorRequirement]]) -> Affinity:
    listed = [
        PreferredSchedulingTerm(weight=weight, preference=NodeSelectorTerm(match_expressions=list(term)))
        for weight, term in terms
    ]
    return Affinity(node_affinity=NodeAffinity(preferred=listed))


def affinity_term(key: str, selector: Mapping[str, str] | None, **fields: Any) -> PodAffinityTerm:
    chosen = LabelSelector(match_labels=dict(selector)) if selector is not None else None
    return PodAffinityTerm(topology_key=key, label_selector=chosen, **fields)


def near(*terms: PodAffinityTerm) -> Affinity:
    return Affinity(pod_affinity=PodAffinity(required=list(terms)))


def apart(*terms: PodAffinityTerm) -> Affinity:
    return Affinity(pod_anti_affinity=PodAffinity(required=list(terms)))


def weighted(term: PodAffinityTerm, weight: int = 1) -> WeightedPodAffinityTerm:
    return WeightedPodAffinityTerm(weight=weight, pod_affinity_term=term)


def spread(key: str, selector: Mapping[str, str] | None, skew: int = 1, **fields: Any) -> TopologySpreadConstraint:
    chosen = LabelSelector(match_labels=dict(selector)) if selector is not None else None
    return TopologySpreadConstraint(max_skew=skew, topology_key=key, label_selector=chosen, **fields)


def tolerate(key: str = "", effect: str = "", operator: str = "Exists", value: str = "") -> Toleration:
    return Toleration(key=key, operator=operator, value=value, effect=effect)


def make_pool(
    name: str = "default",
    *,
    requirements: Sequence[NodeSelectorRequirement] = (),
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    startup_taints: Sequence[Taint] = (),
    limits: Mapping[str, str] | None = None,
    weight: int | None = None,
    replicas: int | None = None,
    ready: bool = True,
    annotations: Mapping[str, str] | None = None,
) -> NodePool:
    return NodePool(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}"),
        spec=NodePoolSpec(
            template=NodeClaimTemplate(
                metadata=TemplateMetadata(labels=dict(labels or {}), annotations=dict(annotations or {})),
                spec=NodeClaimTemplateSpec(
                    node_class_ref=NodeClassReference(group="karpenter.kwok.sh", kind="KWOKNodeClass", name="default"),
                    requirements=list(requirements),
                    taints=list(taints),
                    startup_taints=list(startup_taints),
                ),
            ),
            limits=dict(limits or {}),
            weight=weight,
            replicas=replicas,
        ),
        status=NodePoolStatus(conditions=[READY] if ready else []),
    )


def make_offering(
    zone: str,
    capacity_type: str = "on-demand",
    price: float | None = 1.0,
    *,
    reservation: str = "",
    reservation_capacity: int = 0,
    reservation_label: str = "test/reservation-id",
    **fields: Any,
) -> Offering:
    items = [
        Requirement(keys.ZONE, frozenset({zone})),
        Requirement(keys.CAPACITY_TYPE, frozenset({capacity_type})),
    ]
    if reservation:
        items.append(Requirement(reservation_label, frozenset({reservation})))
    return Offering(
        Requirements(items), price, reservation_id=reservation, reservation_capacity=reservation_capacity, **fields
    )


def make_type(
    name: str = "small",
    cpu: str = "4",
    memory: str = "16Gi",
    *,
    pods: str = "110",
    price: float = 1.0,
    zones: Sequence[str] = ZONES,
    capacity_types: Sequence[str] = ("on-demand", "spot"),
    offerings: Sequence[Offering] | None = None,
    arch: str = "amd64",
    extra: Mapping[str, str] | None = None,
    extra_labels: Mapping[str, Sequence[str]] | None = None,
    **fields: Any,
) -> InstanceType:
    """A type with offerings in every zone and capacity type; spot costs 70 %."""
    offered = offerings
    if offered is None:
        offered = [
            make_offering(zone, kind, price if kind == "on-demand" else price * 0.7)
            for zone in zones
            for kind in capacity_types
        ]
    single: dict[str, set[str]] = {
        keys.INSTANCE_TYPE: {name},
        keys.ARCH: {arch},
        keys.OS: {"linux"},
        keys.ZONE: {offering.zone for offering in offered},
        keys.CAPACITY_TYPE: {offering.capacity_type for offering in offered},
    }
    for key, values in (extra_labels or {}).items():
        single[key] = set(values)
    return InstanceType(
        name=name,
        requirements=Requirements(Requirement(key, frozenset(values)) for key, values in single.items()),
        offerings=tuple(offered),
        capacity=available({"cpu": cpu, "memory": memory, "pods": pods, **(extra or {})}),
        **fields,
    )


def make_node(
    name: str = "node-1",
    cpu: str = "4",
    memory: str = "16Gi",
    *,
    zone: str = "zone-a",
    pool: str = "",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    pods: Sequence[Pod] = (),
    extra: Mapping[str, str] | None = None,
    **fields: Any,
) -> NodeView:
    """An initialized machine with its Node; `pool` makes it managed by that NodePool."""
    found = {keys.HOSTNAME: name, keys.ZONE: zone, keys.OS: "linux", keys.ARCH: "amd64", **(labels or {})}
    if pool:
        found[keys.NODEPOOL] = pool
    quantities = {"cpu": cpu, "memory": memory, "pods": "110", **(extra or {})}
    node = Node(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", labels=found),
        spec=NodeSpec(provider_id=f"test://{name}", taints=list(taints)),
        status=NodeStatus(capacity=dict(quantities), allocatable=dict(quantities), conditions=[READY]),
    )
    return NodeView(
        name=name,
        provider_id=f"test://{name}",
        node=fields.pop("node", node),
        labels=found,
        taints=tuple(taints),
        capacity=available(quantities),
        allocatable=available(quantities),
        pods=tuple(pods),
        managed=bool(pool),
        **fields,
    )


def make_daemon_set(name: str = "agent", cpu: str = "100m", memory: str = "128Mi", **spec: Any) -> DaemonSet:
    template = make_pod(name, cpu, memory, **spec)
    return DaemonSet(
        metadata=ObjectMeta(name=name, namespace="kube-system", uid=f"uid-ds-{name}"),
        spec=DaemonSetSpec(template=PodTemplateSpec(metadata=template.metadata, spec=template.spec)),
    )


def daemon_owner(name: str = "agent") -> OwnerReference:
    return OwnerReference(api_version="apps/v1", kind="DaemonSet", name=name, uid=f"uid-ds-{name}", controller=True)


def make_snapshot(
    pods: Sequence[Pod] = (),
    *,
    pools: Sequence[NodePool] | None = None,
    types: Sequence[InstanceType] | Mapping[str, tuple[InstanceType, ...]] | None = None,
    nodes: Sequence[NodeView] = (),
    **fields: Any,
) -> ClusterSnapshot:
    """A snapshot; without pools there is one called default, and every pool offers the same types."""
    listed = list(pools) if pools is not None else [make_pool()]
    offered = types if types is not None else [make_type()]
    by_pool = dict(offered) if isinstance(offered, Mapping) else {pool.name: tuple(offered) for pool in listed}
    return ClusterSnapshot(
        now=fields.pop("now", 1_000_000.0),
        pods=tuple(pods),
        nodes=tuple(nodes),
        node_pools=tuple(listed),
        instance_types=by_pool,
        **fields,
    )
