"""The rights of the controllers: for every installation, for each gate and for the settings that read more kinds.

A provider's own come from its plug-in. `tests/rbac` derives the same from the calls in the code and fails on what is
missing here and on what is too much; the chart's roles are printed from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pykarpenter.cloud.permissions import OWN_NAMESPACE, READ, WATCH, Permission, definitions
from pykarpenter.runtime.settings import Settings

LEASE_NAME = "karpenter-leader-election"
# Which workloads were displaced when: remembered across restarts.
MEMORY_NAME = "pykarpenter-displaced"

CORE: tuple[Permission, ...] = (
    Permission("karpenter.sh", "nodepools", (*READ, "patch")),
    Permission("karpenter.sh", "nodepools/status", ("patch",)),
    Permission("karpenter.sh", "nodeclaims", (*READ, "create", "patch", "delete")),
    Permission("karpenter.sh", "nodeclaims/status", ("patch",)),
    Permission("", "nodes", (*READ, "patch", "delete")),
    Permission("", "pods", (*WATCH, "delete")),
    Permission("", "pods/eviction", ("create",)),
    Permission("", "events", ("create", "patch")),
    Permission("", "namespaces", WATCH),
    Permission("", "persistentvolumeclaims", WATCH),
    Permission("", "persistentvolumes", WATCH),
    Permission("apps", "daemonsets", WATCH),
    Permission("policy", "poddisruptionbudgets", WATCH),
    Permission("storage.k8s.io", "storageclasses", WATCH),
    Permission("storage.k8s.io", "csinodes", WATCH),
    Permission("storage.k8s.io", "volumeattachments", WATCH),
    definitions("nodepools.karpenter.sh", "nodeclaims.karpenter.sh"),
    # A name cannot be asked for when an object is created.
    Permission("coordination.k8s.io", "leases", ("create",), namespace=OWN_NAMESPACE),
    Permission("coordination.k8s.io", "leases", ("get", "patch"), (LEASE_NAME,), namespace=OWN_NAMESPACE),
    Permission("", "configmaps", ("create",), namespace=OWN_NAMESPACE),
    Permission("", "configmaps", ("get", "patch"), (MEMORY_NAME,), namespace=OWN_NAMESPACE),
)

# By gate: what it needs beyond the core. A gate that is not named here needs nothing more.
GATES: Mapping[str, tuple[Permission, ...]] = {
    "NodeOverlay": (
        definitions("nodeoverlays.karpenter.sh"),
        Permission("karpenter.sh", "nodeoverlays", WATCH),
        Permission("karpenter.sh", "nodeoverlays/status", ("patch",)),
    ),
    "CapacityBuffer": (
        definitions("capacitybuffers.autoscaling.x-k8s.io"),
        Permission("autoscaling.x-k8s.io", "capacitybuffers", WATCH),
        Permission("autoscaling.x-k8s.io", "capacitybuffers/status", ("patch",)),
        Permission("", "podtemplates", READ),
        Permission("apps", "deployments", READ),
        Permission("apps", "replicasets", READ),
        Permission("apps", "statefulsets", READ),
    ),
    "PodDeletionCostManagement": (Permission("", "pods", ("patch",)),),
}

# By setting, while it asks for more than the rest of the program.
SETTINGS: Mapping[str, tuple[Permission, ...]] = {
    "nominate-pods": (Permission("", "pods/status", ("patch",)),),
    "scheduler-config": (
        Permission("", "services", WATCH),
        Permission("", "replicationcontrollers", WATCH),
        Permission("apps", "replicasets", WATCH),
        Permission("apps", "statefulsets", WATCH),
    ),
    "ignore-dra-requests": (
        Permission("resource.k8s.io", "resourceclaims", WATCH),
        Permission("resource.k8s.io", "resourceclaimtemplates", WATCH),
        Permission("resource.k8s.io", "deviceclasses", WATCH),
        Permission("resource.k8s.io", "resourceslices", WATCH),
    ),
}


def needed_permissions(settings: Settings, provider: Iterable[Permission]) -> list[Permission]:
    """Everything that `pykarpenter run` needs with these settings and a provider's own permissions."""
    lease = (settings.leader_election_name,)
    needed = [replace(item, names=lease) if item.names == (LEASE_NAME,) else item for item in CORE]
    for gate in settings.feature_gates.enabled():
        needed.extend(GATES.get(gate, ()))
    if settings.nominate_pods:
        needed.extend(SETTINGS["nominate-pods"])
    if settings.scheduler_config:
        needed.extend(SETTINGS["scheduler-config"])
    if not settings.ignore_dra_requests:
        needed.extend(SETTINGS["ignore-dra-requests"])
    needed.extend(provider)
    return needed
