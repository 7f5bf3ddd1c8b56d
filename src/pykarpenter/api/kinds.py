"""The registry of kinds: where each lives on an API server and which wire type decodes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pykarpenter.api import devices, extras, meta, nodepool, nodes, pods, storage, workloads

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One kind of object: its group, version, plural, scope and wire type."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    type: type[T]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path on an API server; without a namespace it is the collection across all of them."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        tail = f"/{name}" if name else ""
        sub = f"/{subresource}" if subresource else ""
        return f"{root}{scope}/{self.plural}{tail}{sub}"


POD = Kind("", "v1", "Pod", "pods", True, pods.Pod)
NODE = Kind("", "v1", "Node", "nodes", False, nodes.Node)
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", False, workloads.Namespace)
SERVICE = Kind("", "v1", "Service", "services", True, workloads.Service)
EVENT = Kind("", "v1", "Event", "events", True, nodes.Event)
PVC = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, storage.PersistentVolumeClaim)
PV = Kind("", "v1", "PersistentVolume", "persistentvolumes", False, storage.PersistentVolume)
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", True, meta.ConfigMap)
POD_TEMPLATE = Kind("", "v1", "PodTemplate", "podtemplates", True, workloads.PodTemplate)
REPLICATION_CONTROLLER = Kind(
    "", "v1", "ReplicationController", "replicationcontrollers", True, workloads.ReplicationController
)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", True, workloads.Deployment)
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets", True, workloads.ReplicaSet)
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets", True, workloads.StatefulSet)
DAEMON_SET = Kind("apps", "v1", "DaemonSet", "daemonsets", True, workloads.DaemonSet)
JOB = Kind("batch", "v1", "Job", "jobs", True, workloads.Job)
PDB = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, workloads.PodDisruptionBudget)
PRIORITY_CLASS = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, workloads.PriorityClass)
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", False, storage.StorageClass)
CSI_NODE = Kind("storage.k8s.io", "v1", "CSINode", "csinodes", False, nodes.CSINode)
VOLUME_ATTACHMENT = Kind("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", False, nodes.VolumeAttachment)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases", True, nodes.Lease)
CRD = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False, meta.Object)
RESOURCE_CLAIM = Kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", True, devices.ResourceClaim)
RESOURCE_CLAIM_TEMPLATE = Kind(
    "resource.k8s.io",
    "v1",
    "ResourceClaimTemplate",
    "resourceclaimtemplates",
    True,
    devices.ResourceClaimTemplate,
)
RESOURCE_SLICE = Kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", False, devices.ResourceSlice)
DEVICE_CLASS = Kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", False, devices.DeviceClass)
NODE_POOL = Kind("karpenter.sh", "v1", "NodePool", "nodepools", False, nodepool.NodePool)
NODE_CLAIM = Kind("karpenter.sh", "v1", "NodeClaim", "nodeclaims", False, nodepool.NodeClaim)
NODE_OVERLAY = Kind("karpenter.sh", "v1alpha1", "NodeOverlay", "nodeoverlays", False, extras.NodeOverlay)
CAPACITY_BUFFER = Kind(
    "autoscaling.x-k8s.io", "v1beta1", "CapacityBuffer", "capacitybuffers", True, extras.CapacityBuffer
)
KWOK_NODE_CLASS = Kind(
    "karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses", False, nodepool.KWOKNodeClass
)
SIM_NODE_CLASS = Kind("pykarpenter.sh", "v1alpha1", "SimNodeClass", "simnodeclasses", False, nodepool.SimNodeClass)

ALL: tuple[Kind[Any], ...] = (
    POD,
    NODE,
    NAMESPACE,
    SERVICE,
    EVENT,
    PVC,
    PV,
    CONFIG_MAP,
    POD_TEMPLATE,
    REPLICATION_CONTROLLER,
    DEPLOYMENT,
    REPLICA_SET,
    STATEFUL_SET,
    DAEMON_SET,
    JOB,
    PDB,
    PRIORITY_CLASS,
    STORAGE_CLASS,
    CSI_NODE,
    VOLUME_ATTACHMENT,
    LEASE,
    CRD,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
    DEVICE_CLASS,
    NODE_POOL,
    NODE_CLAIM,
    NODE_OVERLAY,
    CAPACITY_BUFFER,
    KWOK_NODE_CLASS,
    SIM_NODE_CLASS,
)

BY_KIND: dict[tuple[str, str], Kind[Any]] = {(kind.group, kind.kind): kind for kind in ALL}


def node_class_kind(group: str, version: str, kind: str, plural: str) -> Kind[nodepool.NodeClass]:
    """The kind of a provider's class, of which the core reads only identity and readiness."""
    return Kind(group, version, kind, plural, False, nodepool.NodeClass)
