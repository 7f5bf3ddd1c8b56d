"""Nodes and the objects that describe what hangs on them: CSI drivers, attachments, leases, events."""

from __future__ import annotations

import msgspec

from pykarpenter.api.meta import Condition, Object, ObjectMeta, Wire
from pykarpenter.api.pods import Quantities


class Taint(Wire):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Wire):
    provider_id: str = msgspec.field(name="providerID", default="")
    taints: list[Taint] = []
    unschedulable: bool = False


class NodeSystemInfo(Wire):
    boot_id: str = msgspec.field(name="bootID", default="")
    kubelet_version: str = ""


class NodeStatus(Wire):
    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: list[Condition] = []
    phase: str = ""
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(Object):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class VolumeNodeResources(Wire):
    count: int | None = None


class CSINodeDriver(Wire):
    name: str = ""
    node_id: str = msgspec.field(name="nodeID", default="")
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Wire):
    drivers: list[CSINodeDriver] = []


class CSINode(Object):
    spec: CSINodeSpec = CSINodeSpec()


class VolumeAttachmentSource(Wire):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Wire):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(Object):
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


class LeaseSpec(Wire):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object):
    spec: LeaseSpec = LeaseSpec()


class ObjectReference(Wire):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class EventSource(Wire):
    component: str = ""


class Event(Wire):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    source: EventSource = EventSource()
