"""The parts of a Pod that scheduling, draining and disruption read."""

from __future__ import annotations

import msgspec

from pykarpenter.api.meta import Condition, LabelSelector, Object, ObjectMeta, Wire

Quantities = dict[str, str | int | float]


class NodeSelectorRequirement(Wire):
    """One expression of a node selector; NodePool requirements add `minValues`."""

    key: str
    operator: str
    values: list[str] = []
    min_values: int | None = None


class NodeSelectorTerm(Wire):
    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(Wire):
    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(Wire):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Wire):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredSchedulingTerm] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=[]
    )


class PodAffinityTerm(Wire):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(Wire):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Wire):
    """Both `podAffinity` and `podAntiAffinity` have this shape."""

    required: list[PodAffinityTerm] = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=[])
    preferred: list[WeightedPodAffinityTerm] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=[]
    )


class Affinity(Wire):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Wire):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class TopologySpreadConstraint(Wire, omit_defaults=False):
    """Written out whole: a skew of one is what most have, and no cluster admits a constraint without it."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] = []


class ContainerPort(Wire):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class ContainerResourceClaim(Wire):
    name: str
    request: str = ""


class ResourceRequirements(Wire):
    requests: Quantities = {}
    limits: Quantities = {}
    claims: list[ContainerResourceClaim] = []


class Container(Wire):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: list[ContainerPort] = []
    restart_policy: str | None = None


class PersistentVolumeClaimVolumeSource(Wire):
    claim_name: str = ""
    read_only: bool = False


class EphemeralVolumeSource(Wire):
    volume_claim_template: EphemeralClaimTemplate | None = None


class EphemeralClaimTemplate(Wire):
    spec: EphemeralClaimSpec | None = None


class EphemeralClaimSpec(Wire):
    storage_class_name: str | None = None
    volume_name: str = ""


class Volume(Wire):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None


class PodResourceClaim(Wire):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGate(Wire):
    name: str = ""


class PodSpec(Wire):
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    containers: list[Container] = []
    init_containers: list[Container] = []
    resources: ResourceRequirements | None = None
    overhead: Quantities = {}
    volumes: list[Volume] = []
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    scheduler_name: str = ""
    scheduling_gates: list[PodSchedulingGate] = []
    resource_claims: list[PodResourceClaim] = []
    restart_policy: str = ""
    host_network: bool = False


class ContainerStatus(Wire):
    name: str = ""
    ready: bool = False
    allocated_resources: Quantities = {}
    resources: ResourceRequirements | None = None


class PodResourceClaimStatus(Wire):
    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(Wire):
    phase: str = ""
    conditions: list[Condition] = []
    nominated_node_name: str = ""
    start_time: str | None = None
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    resource_claim_statuses: list[PodResourceClaimStatus] = []
    resources: ResourceRequirements | None = None


class Pod(Object):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplateSpec(Wire):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
