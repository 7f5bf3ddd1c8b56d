"""Plain bodies for the behaviours, and reads that keep every field."""

from __future__ import annotations

from typing import Any

from pykarpenter.api import kinds
from pykarpenter.kube.contract import KubeApi
from pykarpenter.kube.errors import NotFound
from pykarpenter.sim.views import RawObject, whole

CONFIG_MAP = kinds.CONFIG_MAP
EVENT = kinds.EVENT
NODE = whole(kinds.NODE)
NODE_CLAIM = whole(kinds.NODE_CLAIM)
NODE_CLASS = whole(kinds.KWOK_NODE_CLASS)
NODE_POOL = whole(kinds.NODE_POOL)
PDB = whole(kinds.PDB)
POD = whole(kinds.POD)


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def pod(name: str, cpu: str = "10m", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def node(name: str, cpu: str) -> dict[str, Any]:
    """A Node that says it is ready: nothing plays its kubelet, which takes a minute to matter."""
    resources = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
        },
    }


def budget(name: str, app: str, min_available: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}},
    }


def owned_by(owner: Any, *, kind: str = "ConfigMap", uid: str = "", blocks: bool = False) -> list[dict[str, Any]]:
    reference = {"apiVersion": "v1", "kind": kind, "name": owner.metadata.name, "uid": uid or owner.metadata.uid}
    return [{**reference, "blockOwnerDeletion": True} if blocks else reference]


async def find(api: KubeApi, kind: kinds.Kind[Any], name: str, namespace: str = "") -> RawObject | None:
    try:
        found: RawObject = await api.get(kind, name, namespace)
    except NotFound:
        return None
    return found
