"""NodePool and NodeClaim, `karpenter.sh/v1`, as decisions read them."""

from __future__ import annotations

import msgspec

from pykarpenter.api.absence import ABSENT_LIST, ABSENT_MAP
from pykarpenter.api.meta import Condition, Object, Wire
from pykarpenter.api.nodes import Taint
from pykarpenter.api.pods import NodeSelectorRequirement, Quantities


class NodeClassReference(Wire):
    group: str = ""
    kind: str = ""
    name: str = ""

    @property
    def label_key(self) -> str:
        """The label that marks objects managed through this kind of class."""
        return f"{self.group}/{self.kind.lower()}"


class TemplateMetadata(Wire):
    labels: dict[str, str] = ABSENT_MAP
    annotations: dict[str, str] = ABSENT_MAP


class NodeClaimTemplateSpec(Wire):
    node_class_ref: NodeClassReference = NodeClassReference()
    requirements: list[NodeSelectorRequirement] = []
    taints: list[Taint] = ABSENT_LIST
    startup_taints: list[Taint] = ABSENT_LIST
    termination_grace_period: str | None = None
    expire_after: str | None = "720h"


class NodeClaimTemplate(Wire):
    metadata: TemplateMetadata = TemplateMetadata()
    spec: NodeClaimTemplateSpec = NodeClaimTemplateSpec()


class Budget(Wire):
    nodes: str = "10%"
    reasons: list[str] | None = None
    schedule: str | None = None
    duration: str | None = None


class Disruption(Wire):
    consolidate_after: str = "0s"
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    budgets: list[Budget] | None = None


class NodePoolSpec(Wire):
    template: NodeClaimTemplate = NodeClaimTemplate()
    disruption: Disruption = Disruption()
    limits: Quantities = {}
    weight: int | None = None
    replicas: int | None = None


class NodePoolStatus(Wire):
    resources: Quantities = {}
    nodes: int = 0
    node_class_observed_generation: int = 0
    conditions: list[Condition] = []


class NodePool(Object):
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()

    @property
    def is_static(self) -> bool:
        return self.spec.replicas is not None


class ClaimResources(Wire):
    requests: Quantities = {}


class NodeClaimSpec(Wire):
    node_class_ref: NodeClassReference = NodeClassReference()
    requirements: list[NodeSelectorRequirement] = []
    resources: ClaimResources = ClaimResources()
    taints: list[Taint] = ABSENT_LIST
    startup_taints: list[Taint] = ABSENT_LIST
    termination_grace_period: str | None = None
    expire_after: str | None = "720h"


class NodeClaimStatus(Wire):
    node_name: str = ""
    provider_id: str = msgspec.field(name="providerID", default="")
    image_id: str = msgspec.field(name="imageID", default="")
    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: list[Condition] = []
    last_pod_event_time: str | None = None


class NodeClaim(Object):
    spec: NodeClaimSpec = NodeClaimSpec()
    status: NodeClaimStatus = NodeClaimStatus()

    @property
    def pool_name(self) -> str:
        """The owning NodePool's name; empty for a standalone claim."""
        return self.metadata.labels.get("karpenter.sh/nodepool", "")


class NodeClassStatus(Wire):
    conditions: list[Condition] = []


class NodeClass(Object):
    """What the core reads of any provider's class: identity, generation and readiness."""

    status: NodeClassStatus = NodeClassStatus()


class KWOKNodeClassSpec(Wire):
    node_registration_delay: str | None = None


class KWOKNodeClass(Object):
    spec: KWOKNodeClassSpec = KWOKNodeClassSpec()
    status: NodeClassStatus = NodeClassStatus()


class SimNodeClassSpec(Wire):
    image: str = "sim-1"
    boot_delay: str | None = None


class SimNodeClass(Object):
    """The class of the embedded cluster's own cloud."""

    spec: SimNodeClassSpec = SimNodeClassSpec()
    status: NodeClassStatus = NodeClassStatus()
