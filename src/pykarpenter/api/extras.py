"""Gated kinds: NodeOverlay (`karpenter.sh/v1alpha1`) and CapacityBuffer (`autoscaling.x-k8s.io/v1beta1`)."""

from __future__ import annotations

from pykarpenter.api.meta import Condition, LocalObjectReference, Object, Wire
from pykarpenter.api.pods import NodeSelectorRequirement, Quantities


class NodeOverlaySpec(Wire):
    requirements: list[NodeSelectorRequirement] = []
    price: str | None = None
    price_adjustment: str | None = None
    capacity: Quantities = {}
    weight: int | None = None


class NodeOverlayStatus(Wire):
    conditions: list[Condition] = []


class NodeOverlay(Object):
    spec: NodeOverlaySpec = NodeOverlaySpec()
    status: NodeOverlayStatus = NodeOverlayStatus()


class ScalableReference(Wire):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class CapacityBufferSpec(Wire):
    provisioning_strategy: str = "buffer.x-k8s.io/active-capacity"
    pod_template_ref: LocalObjectReference | None = None
    scalable_ref: ScalableReference | None = None
    replicas: int | None = None
    percentage: int | None = None
    limits: Quantities = {}


class CapacityBufferStatus(Wire):
    pod_template_ref: LocalObjectReference | None = None
    replicas: int | None = None
    pod_template_generation: int | None = None
    provisioning_strategy: str = ""
    conditions: list[Condition] = []


class CapacityBuffer(Object):
    spec: CapacityBufferSpec = CapacityBufferSpec()
    status: CapacityBufferStatus = CapacityBufferStatus()
