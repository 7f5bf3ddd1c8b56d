"""Workload kinds whose pods, selectors and replica counts decisions read; also PDBs, namespaces and services."""

from __future__ import annotations

from pykarpenter.api.meta import Condition, LabelSelector, Object, Wire
from pykarpenter.api.pods import PodTemplateSpec


class ReplicaSpec(Wire):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class ReplicaStatus(Wire):
    replicas: int = 0
    ready_replicas: int = 0


class Deployment(Object):
    spec: ReplicaSpec = ReplicaSpec()
    status: ReplicaStatus = ReplicaStatus()


class ReplicaSet(Object):
    spec: ReplicaSpec = ReplicaSpec()
    status: ReplicaStatus = ReplicaStatus()


class StatefulSet(Object):
    spec: ReplicaSpec = ReplicaSpec()
    status: ReplicaStatus = ReplicaStatus()


class ReplicationControllerSpec(Wire):
    replicas: int | None = None
    selector: dict[str, str] = {}
    template: PodTemplateSpec = PodTemplateSpec()


class ReplicationController(Object):
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class DaemonSetSpec(Wire):
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class DaemonSet(Object):
    spec: DaemonSetSpec = DaemonSetSpec()


class JobSpec(Wire):
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class JobStatus(Wire):
    active: int = 0
    succeeded: int = 0
    failed: int = 0


class Job(Object):
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class PodTemplate(Object):
    template: PodTemplateSpec = PodTemplateSpec()


class PodDisruptionBudgetSpec(Wire):
    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Wire):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0
    conditions: list[Condition] = []


class PodDisruptionBudget(Object):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class PriorityClass(Object):
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class Namespace(Object):
    pass


class ServiceSpec(Wire):
    selector: dict[str, str] | None = None


class Service(Object):
    spec: ServiceSpec = ServiceSpec()
