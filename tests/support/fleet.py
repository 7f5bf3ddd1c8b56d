"""A small fleet for disruption tests, in a few words, with the plain packer as its engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec

from pykarpenter.api import labels
from pykarpenter.api.meta import Condition, LabelSelector, ObjectMeta, OwnerReference
from pykarpenter.api.nodepool import (
    Budget,
    Disruption,
    NodeClaim,
    NodeClaimSpec,
    NodeClaimStatus,
    NodeClaimTemplate,
    NodeClaimTemplateSpec,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    NodePoolStatus,
)
from pykarpenter.api.nodes import Node, NodeSpec, NodeStatus, Taint
from pykarpenter.api.pods import (
    Container,
    NodeSelectorRequirement,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Toleration,
)
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.api.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.disruption.commands import DisruptionClass
from pykarpenter.core.disruption.engine import PackingSimulations
from pykarpenter.core.disruption.prices import options_of, with_options
from pykarpenter.core.disruption.settings import DisruptionSettings, Memory
from pykarpenter.core.disruption.simulation import Answer, Question, Simulation, SimulationError
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.requirements import Requirements, requirement
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView
from tests.reference.conversion import as_launch_plan
from tests.reference.packer import pack_reference

# 2026-01-14 12:00:00 UTC, a Wednesday.
NOON = 1768392000.0
GI = 2**30
RESERVATION = "example.com/reservation-id"
CLASS = NodeClassReference(group="karpenter.test.sh", kind="TestNodeClass", name="default")
OWNERS = {
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "Node": "v1",
}


def condition(kind: str, status: str = "True", reason: str = "", since: float = NOON - 3600) -> Condition:
    return Condition(type=kind, status=status, reason=reason or kind, last_transition_time=format_timestamp(since))


class Fleet:
    """Everything a disruption decision reads, built step by step."""

    engine = "plain"

    def __init__(self, now: float = NOON) -> None:
        self.now = now
        self.pools: dict[str, NodePool] = {}
        self.types: dict[str, InstanceType] = {}
        self.nodes: dict[str, NodeView] = {}
        self.pending: list[Pod] = []
        self.buffer_pods: list[Pod] = []
        self.pdbs: list[PodDisruptionBudget] = []
        self.promised: dict[str, dict[str, int]] = {}
        self.memory = Memory()
        self.unknown_types: set[str] = set()

    def pool(
        self,
        name: str = "default",
        *,
        budgets: list[Budget] | list[str] | None = None,
        after: str = "0s",
        policy: str = "WhenEmptyOrUnderutilized",
        replicas: int | None = None,
        limits: dict[str, Any] | None = None,
        weight: int | None = None,
        capacity_types: list[str] | None = None,
        requirements: list[NodeSelectorRequirement] | None = None,
        ready: bool = True,
        conditions: list[Condition] | None = None,
    ) -> NodePool:
        wanted = list(requirements or [])
        if capacity_types:
            wanted.append(NodeSelectorRequirement(key=labels.CAPACITY_TYPE, operator="In", values=capacity_types))
        listed = budgets if budgets is None else [Budget(nodes=b) if isinstance(b, str) else b for b in budgets]
        self.pools[name] = NodePool(
            metadata=ObjectMeta(name=name, uid=f"pool-{name}"),
            spec=NodePoolSpec(
                template=NodeClaimTemplate(spec=NodeClaimTemplateSpec(node_class_ref=CLASS, requirements=wanted)),
                disruption=Disruption(consolidate_after=after, consolidation_policy=policy, budgets=listed),
                replicas=replicas,
                limits=limits or {},
                weight=weight,
            ),
            status=NodePoolStatus(conditions=[condition("Ready", "True" if ready else "False"), *(conditions or [])]),
        )
        return self.pools[name]

    def type(
        self,
        name: str,
        *,
        cpu: float = 4,
        gi: float = 16,
        price: float | None = 1.0,
        spot: float | None = None,
        zones: tuple[str, ...] = ("zone-1",),
        reserved: tuple[str, int] | None = None,
        available: bool = True,
        on_demand: bool = True,
        unpriced: bool = False,
    ) -> InstanceType:
        offerings: list[Offering] = []
        for zone in zones:
            if on_demand:
                offerings.append(_offering(zone, labels.ON_DEMAND, None if unpriced else price, available))
            if spot is not None:
                offerings.append(_offering(zone, labels.SPOT, spot, available))
            if reserved is not None:
                identity, units = reserved
                offerings.append(_offering(zone, labels.RESERVED, 0.001, available, identity, units))
        kinds = sorted({o.capacity_type for o in offerings})
        self.types[name] = InstanceType(
            name=name,
            requirements=Requirements(
                [
                    requirement(labels.INSTANCE_TYPE, "In", [name]),
                    requirement(labels.ARCH, "In", ["amd64"]),
                    requirement(labels.OS, "In", ["linux"]),
                    requirement(labels.ZONE, "In", list(zones)),
                    requirement(labels.CAPACITY_TYPE, "In", kinds),
                ]
            ),
            offerings=tuple(offerings),
            capacity={"cpu": int(cpu * 1000), "memory": int(gi * GI), "pods": 110},
        )
        return self.types[name]

    def node(
        self,
        name: str,
        *,
        pool: str = "default",
        type: str = "m",
        zone: str = "zone-1",
        capacity_type: str = labels.ON_DEMAND,
        pods: list[Pod] | tuple[Pod, ...] = (),
        conditions: list[Condition] | None = None,
        consolidatable: bool = True,
        drifted: float | None = None,
        annotations: dict[str, str] | None = None,
        claim_annotations: dict[str, str] | None = None,
        grace: str | None = None,
        created: float | None = None,
        last_pod_event: float | None = None,
        expire_after: str | None = "720h",
        reservation: str = "",
        extra_labels: dict[str, str] | None = None,
        node_conditions: list[Condition] | None = None,
        taints: tuple[Taint, ...] = (),
        managed: bool = True,
        claim: bool = True,
        **view: Any,
    ) -> NodeView:
        kind = self.types.get(type)
        values = {
            labels.NODEPOOL: pool,
            labels.INSTANCE_TYPE: type,
            labels.ZONE: zone,
            labels.CAPACITY_TYPE: capacity_type,
            labels.ARCH: "amd64",
            labels.OS: "linux",
            labels.HOSTNAME: name,
            CLASS.label_key: CLASS.name,
            **({RESERVATION: reservation} if reservation else {}),
            **(extra_labels or {}),
        }
        values = {key: value for key, value in values.items() if value}
        born = format_timestamp(self.now - 7200 if created is None else created)
        found = [condition("Launched"), condition("Registered")]
        if view.get("initialized", True):
            found.append(condition("Initialized"))
        if consolidatable:
            found.append(condition("Consolidatable"))
        if drifted is not None:
            found.append(condition("Drifted", reason="NodePoolDrifted", since=drifted))
        node_claim = NodeClaim(
            metadata=ObjectMeta(
                name=f"claim-{name}",
                uid=f"claim-uid-{name}",
                creation_timestamp=born,
                labels=values,
                annotations=claim_annotations or {},
            ),
            spec=NodeClaimSpec(node_class_ref=CLASS, termination_grace_period=grace, expire_after=expire_after),
            status=NodeClaimStatus(
                node_name=name,
                provider_id=f"test://{name}",
                conditions=[*found, *(conditions or [])],
                last_pod_event_time=None if last_pod_event is None else format_timestamp(last_pod_event),
            ),
        )
        node = Node(
            metadata=ObjectMeta(
                name=name, uid=f"node-uid-{name}", labels=values, annotations=annotations or {}, creation_timestamp=born
            ),
            spec=NodeSpec(provider_id=f"test://{name}", taints=list(taints)),
            status=NodeStatus(conditions=[condition("Ready"), *(node_conditions or [])]),
        )
        if any(c.type == "Ready" for c in node_conditions or []):
            node = msgspec.structs.replace(node, status=NodeStatus(conditions=list(node_conditions or [])))
        capacity = dict(kind.capacity) if kind is not None else {"cpu": 4000, "memory": 16 * GI, "pods": 110}
        self.nodes[name] = NodeView(
            name=name,
            provider_id=f"test://{name}",
            node=node,
            claim=node_claim if claim else None,
            labels=values,
            annotations=annotations or {},
            taints=taints,
            capacity=capacity,
            allocatable=dict(capacity),
            pods=tuple(sorted((on(pod, name) for pod in pods), key=lambda p: p.key)),
            managed=managed,
            **view,
        )
        return self.nodes[name]

    def pdb(
        self,
        name: str,
        match: dict[str, str],
        *,
        allowed: int = 0,
        max_unavailable: int | str | None = None,
        min_available: int | str | None = None,
        policy: str | None = None,
        namespace: str = "default",
    ) -> None:
        self.pdbs.append(
            PodDisruptionBudget(
                metadata=ObjectMeta(name=name, namespace=namespace),
                spec=PodDisruptionBudgetSpec(
                    selector=LabelSelector(match_labels=match),
                    max_unavailable=max_unavailable,
                    min_available=min_available,
                    unhealthy_pod_eviction_policy=policy,
                ),
                status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
            )
        )

    def snapshot(self) -> ClusterSnapshot:
        types = tuple(self.types[name] for name in sorted(self.types))
        return ClusterSnapshot(
            now=self.now,
            revision=1,
            pods=tuple(self.pending),
            buffer_pods=tuple(self.buffer_pods),
            nodes=tuple(self.nodes.values()),
            node_pools=tuple(self.pools.values()),
            instance_types={name: types for name in self.pools if name not in self.unknown_types},
            pdbs=tuple(self.pdbs),
            promised=self.promised,
        )

    def settings(self, **gates: Any) -> DisruptionSettings:
        return DisruptionSettings(reservation_id_label=RESERVATION, label_rules=RULES, **gates)

    def world(self, **gates: Any) -> World:
        return World(self.snapshot(), self.settings(**gates), self.memory)

    def simulation(self) -> Recorded:
        """The engine that the test runs with: the plain reference or the fast one."""
        return Recorded(ENGINES[self.engine](self.snapshot()))


RULES = dataclasses.replace(labels.DEFAULT_RULES, well_known=labels.WELL_KNOWN | {RESERVATION})
_CLOSED = Taint(key="test.example.com/closed", effect="NoSchedule")


class PlainSimulation:
    """The reference packer as an engine: slow, obvious, and with every rule asked anew.

    Machines that are closed to moved pods carry a taint that all other pods are made to tolerate.
    """

    def __init__(self, snapshot: ClusterSnapshot, settings: PackingSettings | None = None) -> None:
        self.snapshot = snapshot
        self.settings = settings or PackingSettings(label_rules=RULES, reservation_id_label=RESERVATION)

    def ask(self, question: Question) -> Answer:
        nodes = [
            dataclasses.replace(
                _closed(view) if view.name in question.closed else view,
                pods=tuple(_tolerant(pod) for pod in view.pods) if view.marked_for_deletion else view.pods,
            )
            for view in self.snapshot.nodes
            if view.name not in question.removed
        ]
        asked = dataclasses.replace(
            self.snapshot,
            nodes=tuple(nodes),
            pods=(*(_tolerant(pod) for pod in self.snapshot.pods), *(_moved(pod) for pod in question.pods)),
            buffer_pods=tuple(_tolerant(pod) for pod in self.snapshot.buffer_pods),
        )
        plan = pack_reference(
            asked,
            self.settings,
            credit={question.credit: 1} if question.credit else None,
            strict_reserved=bool(question.credit),
        )
        if any("no dynamic nodepools" in text for text in plan.failed.values()):
            raise SimulationError("no NodePool can provision: none is dynamic, Ready and not being deleted")
        launch = as_launch_plan(asked, plan)
        failed = {key: refusal.text() for key, refusal in launch.unschedulable.items()}
        failed.update(dict.fromkeys(launch.deferred, "waits for reserved capacity"))
        claims = tuple(dataclasses.replace(c, choice=self._choice(c)) for c in launch.claims)
        return Answer(claims, launch.existing, failed)

    def _choice(self, claim: Any) -> Any:
        types = {t.name: t for t in self.snapshot.instance_types[claim.node_pool]}
        return with_options(claim, options_of(claim, types, self.settings.label_rules)).choice


class Recorded:
    """A simulation that remembers what it was asked."""

    def __init__(self, engine: Simulation) -> None:
        self.engine = engine
        self.asked: list[Question] = []

    def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        return self.engine.ask(question)


def fast_engine(snapshot: ClusterSnapshot) -> Simulation:
    return PackingSimulations(PackingSettings(label_rules=RULES, reservation_id_label=RESERVATION))(snapshot)


ENGINES: dict[str, Callable[[ClusterSnapshot], Simulation]] = {"plain": PlainSimulation, "fast": fast_engine}


def _closed(view: NodeView) -> NodeView:
    """The machine with the taint, which the reference packer reads from its Node."""
    assert view.node is not None
    spec = msgspec.structs.replace(view.node.spec, taints=[*view.node.spec.taints, _CLOSED])
    return dataclasses.replace(view, taints=(*view.taints, _CLOSED), node=msgspec.structs.replace(view.node, spec=spec))


def _tolerant(pod: Pod) -> Pod:
    extra = Toleration(key=_CLOSED.key, operator="Exists")
    return msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, tolerations=[*pod.spec.tolerations, extra])
    )


def _moved(pod: Pod) -> Pod:
    """A pod that has not started yet may go to machines that are closed to running ones."""
    return _tolerant(freed(pod)) if pod.status.phase == "Pending" else freed(pod)


def freed(pod: Pod) -> Pod:
    """A bound pod as it looks to a scheduler that has to place it anew."""
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp=None),
        spec=msgspec.structs.replace(pod.spec, node_name=""),
        status=PodStatus(conditions=[Condition(type="PodScheduled", status="False", reason="Unschedulable")]),
    )


def on(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


def pod(
    name: str,
    *,
    cpu: float = 1,
    gi: float = 1,
    owner: str = "ReplicaSet",
    annotations: dict[str, str] | None = None,
    match: dict[str, str] | None = None,
    priority: int | None = None,
    deleting: bool = False,
    started: float | None = NOON - 3600,
    phase: str = "Running",
    ready: bool = True,
    namespace: str = "default",
    **spec: Any,
) -> Pod:
    """A running pod; without an owner when `owner` is empty."""
    references = [OwnerReference(api_version=OWNERS.get(owner, ""), kind=owner, name=f"{name}-owner", controller=True)]
    wanted = {"cpu": f"{int(cpu * 1000)}m", "memory": str(int(gi * GI))}
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"pod-uid-{namespace}-{name}",
            labels=match or {"app": name},
            annotations=annotations or {},
            owner_references=references if owner else [],
            creation_timestamp=format_timestamp(NOON - 3600),
            deletion_timestamp=format_timestamp(NOON) if deleting else None,
        ),
        spec=PodSpec(
            containers=[Container(name="main", resources=ResourceRequirements(requests=wanted))],
            priority=priority,
            **spec,
        ),
        status=PodStatus(
            phase=phase,
            start_time=None if started is None else format_timestamp(started),
            conditions=[Condition(type="Ready", status="True" if ready else "False")],
        ),
    )


def pending(name: str, **options: Any) -> Pod:
    """A pod that the scheduler found no node for."""
    made = pod(name, phase="Pending", **options)
    return msgspec.structs.replace(
        made,
        status=PodStatus(
            phase="Pending", conditions=[Condition(type="PodScheduled", status="False", reason="Unschedulable")]
        ),
    )


def _offering(
    zone: str, capacity_type: str, price: float | None, available: bool, reservation: str = "", units: int = 0
) -> Offering:
    identity = (
        requirement(RESERVATION, "In", [reservation]) if reservation else requirement(RESERVATION, "DoesNotExist")
    )
    return Offering(
        requirements=Requirements(
            [
                requirement(labels.ZONE, "In", [zone]),
                requirement(labels.CAPACITY_TYPE, "In", [capacity_type]),
                identity,
            ]
        ),
        price=price,
        available=available,
        reservation_capacity=units,
        reservation_id=reservation,
    )


def candidate(world: World, name: str, disruption_class: DisruptionClass = DisruptionClass.GRACEFUL) -> Candidate:
    judged = world.judge(world.by_name[name], disruption_class)
    assert isinstance(judged, Candidate), judged
    return judged
