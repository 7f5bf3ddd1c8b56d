"""Which kinds the store serves and how each behaves: scope, subresources, generation, status on create.

The built-in kinds are listed here; a CustomResourceDefinition adds its own while the store runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pykarpenter.api.kinds import Kind

if TYPE_CHECKING:
    from pykarpenter.sim.schema.custom import CustomSchema

ALL_CATEGORY = ("all",)


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where the scale subresource reads and writes, as dotted paths."""

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    selector: str = ".spec.selector"


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One column of a kind's table; priority above zero shows only with `-o wide`."""

    name: str
    type: str
    json_path: str
    description: str = ""
    format: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Resource:
    """One served kind."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    # Writes to the main resource leave status alone, writes to /status leave the rest alone.
    has_status: bool = False
    tracks_generation: bool = False
    # A client may set the status while creating; otherwise it starts as `initial_status`.
    keeps_status_on_create: bool = False
    initial_status: dict[str, Any] | None = None
    scale: ScalePaths | None = None
    # Of pods and nodes a status write may also carry labels and annotations.
    status_writes_metadata: bool = False
    custom: CustomSchema | None = None
    columns: tuple[PrinterColumn, ...] = field(default=())

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        if self.custom is not None:
            return self.custom.singular
        return self.kind.lower()

    @property
    def list_kind(self) -> str:
        return self.custom.list_kind if self.custom is not None else f"{self.kind}List"

    @property
    def qualified(self) -> str:
        """`plural.group`, the form in which error messages name a resource."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """`Kind.group`, the form in which validation errors name a kind."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


def _core(kind: str, plural: str, namespaced: bool, **how: Any) -> Resource:
    return Resource("", "v1", kind, plural, namespaced, **how)


def _workload(group: str, kind: str, plural: str, **how: Any) -> Resource:
    how = {"has_status": True, "tracks_generation": True, "categories": ALL_CATEGORY, **how}
    return Resource(group, "v1", kind, plural, True, **how)


_SCALE = ScalePaths()


def schemaless(kind: Kind[Any]) -> Resource:
    """A custom kind served without its CRD, `store.serve(schemaless(kind))`, for tests not about its schema."""
    return Resource(
        kind.group, kind.version, kind.kind, kind.plural, kind.namespaced, has_status=True, tracks_generation=True
    )


BUILTIN: tuple[Resource, ...] = (
    _core(
        "Pod",
        "pods",
        True,
        short_names=("po",),
        categories=ALL_CATEGORY,
        has_status=True,
        tracks_generation=True,
        status_writes_metadata=True,
    ),
    _core(
        "Node",
        "nodes",
        False,
        short_names=("no",),
        has_status=True,
        keeps_status_on_create=True,
        status_writes_metadata=True,
    ),
    _core(
        "Namespace",
        "namespaces",
        False,
        short_names=("ns",),
        has_status=True,
        initial_status={"phase": "Active"},
    ),
    _core(
        "Service",
        "services",
        True,
        short_names=("svc",),
        categories=ALL_CATEGORY,
        has_status=True,
        initial_status={"loadBalancer": {}},
    ),
    _core("Event", "events", True, short_names=("ev",)),
    _core("ConfigMap", "configmaps", True, short_names=("cm",)),
    _core("Secret", "secrets", True),
    _core("ServiceAccount", "serviceaccounts", True, short_names=("sa",)),
    _core("Endpoints", "endpoints", True, short_names=("ep",)),
    _core("PodTemplate", "podtemplates", True, tracks_generation=True),
    _core(
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        True,
        short_names=("pvc",),
        has_status=True,
        initial_status={"phase": "Pending"},
    ),
    _core(
        "PersistentVolume",
        "persistentvolumes",
        False,
        short_names=("pv",),
        has_status=True,
        initial_status={"phase": "Pending"},
    ),
    _workload("", "ReplicationController", "replicationcontrollers", short_names=("rc",), scale=_SCALE),
    _workload("apps", "Deployment", "deployments", short_names=("deploy",), scale=_SCALE),
    _workload("apps", "ReplicaSet", "replicasets", short_names=("rs",), scale=_SCALE),
    _workload("apps", "StatefulSet", "statefulsets", short_names=("sts",), scale=_SCALE),
    _workload("apps", "DaemonSet", "daemonsets", short_names=("ds",)),
    Resource("apps", "v1", "ControllerRevision", "controllerrevisions", True),
    _workload("batch", "Job", "jobs"),
    _workload("policy", "PodDisruptionBudget", "poddisruptionbudgets", short_names=("pdb",), categories=()),
    Resource(
        "scheduling.k8s.io",
        "v1",
        "PriorityClass",
        "priorityclasses",
        False,
        short_names=("pc",),
        tracks_generation=True,
    ),
    Resource("storage.k8s.io", "v1", "StorageClass", "storageclasses", False, short_names=("sc",)),
    Resource("storage.k8s.io", "v1", "CSINode", "csinodes", False),
    Resource("storage.k8s.io", "v1", "CSIDriver", "csidrivers", False),
    Resource(
        "storage.k8s.io",
        "v1",
        "VolumeAttachment",
        "volumeattachments",
        False,
        has_status=True,
        initial_status={"attached": False},
    ),
    Resource("coordination.k8s.io", "v1", "Lease", "leases", True),
    Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", True, tracks_generation=True),
    Resource("rbac.authorization.k8s.io", "v1", "Role", "roles", True),
    Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", True),
    Resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False),
    Resource("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", False),
    Resource(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        has_status=True,
        tracks_generation=True,
    ),
    Resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", True, has_status=True),
    Resource("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", True),
    Resource("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", False, tracks_generation=True),
    Resource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", False, tracks_generation=True),
)
