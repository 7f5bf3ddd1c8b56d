"""An immutable view of the cluster: everything a decision may read, and nothing that can change under it.

Made by `state` from watched objects, by `plan` from files, by tests from builders. What is unknown is left out of a
mapping rather than given an empty value: a pool missing from `instance_types` has not been looked up yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pykarpenter.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.api.nodes import CSINode, Node, Taint
from pykarpenter.api.pods import Pod
from pykarpenter.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from pykarpenter.api.workloads import (
    DaemonSet,
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.resources import Resources

_NONE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """A machine as scheduling sees it: a Node, a NodeClaim whose Node has not appeared, or both merged.

    Labels, taints and allocatable already follow the rules for machines that are not registered, not initialized
    or rebooting. The same object is reused by later snapshots while nothing about the machine changed, so caches
    may key on its identity.
    """

    name: str
    provider_id: str = ""
    node: Node | None = None
    claim: NodeClaim | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: _NONE)
    annotations: Mapping[str, str] = field(default_factory=lambda: _NONE)
    taints: tuple[Taint, ...] = ()
    capacity: Resources = field(default_factory=dict)
    allocatable: Resources = field(default_factory=dict)
    # Bound pods that are not terminal, DaemonSet pods included, ordered by key.
    pods: tuple[Pod, ...] = ()
    # StatefulSet pods that have ended and are being deleted: they use nothing here, but each comes back under its name.
    returning: tuple[Pod, ...] = ()
    managed: bool = False
    registered: bool = True
    initialized: bool = True
    marked_for_deletion: bool = False
    rebooting: bool = False
    nominated_until: float = 0.0
    # Virtual capacity-buffer pods that the last provisioning pass placed here.
    buffer_pods: int = 0

    @property
    def pool_name(self) -> str:
        return self.labels.get("karpenter.sh/nodepool", "")


@dataclass(frozen=True, slots=True, eq=False)
class VolumeObjects:
    """Claims by `namespace/name`; volumes, classes and CSI nodes by name."""

    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    csi_nodes: Mapping[str, CSINode] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceObjects:
    """Dynamic resources: claims and templates by `namespace/name`, classes by name, all slices."""

    claims: Mapping[str, ResourceClaim] = field(default_factory=dict)
    templates: Mapping[str, ResourceClaimTemplate] = field(default_factory=dict)
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    slices: tuple[ResourceSlice, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SelectorObjects:
    """What default topology spread deduces selectors from."""

    services: tuple[Service, ...] = ()
    replica_sets: Mapping[str, ReplicaSet] = field(default_factory=dict)
    stateful_sets: Mapping[str, StatefulSet] = field(default_factory=dict)
    replication_controllers: Mapping[str, ReplicationController] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSnapshot:
    """One frozen instant of the cluster."""

    now: float
    revision: int = 0
    # Pods without a node, whatever their state; the decision itself picks the provisionable ones.
    pods: tuple[Pod, ...] = ()
    # Virtual pods of ready capacity buffers; they exist in no API.
    buffer_pods: tuple[Pod, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    node_pools: tuple[NodePool, ...] = ()
    # By pool name, overlays applied. A pool that is missing is unknown and skipped.
    instance_types: Mapping[str, tuple[InstanceType, ...]] = field(default_factory=dict)
    daemon_sets: tuple[DaemonSet, ...] = ()
    # The newest live pod of each DaemonSet, by the DaemonSet's UID.
    daemon_pods: Mapping[str, Pod] = field(default_factory=dict)
    pdbs: tuple[PodDisruptionBudget, ...] = ()
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    volumes: VolumeObjects = field(default_factory=VolumeObjects)
    devices: DeviceObjects = field(default_factory=DeviceObjects)
    selectors: SelectorObjects = field(default_factory=SelectorObjects)
    # Capacity promised by the ledger to claims that are not in `nodes` yet, by pool (`nodes` counts machines).
    promised: Mapping[str, Resources] = field(default_factory=dict)
