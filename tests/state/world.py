"""Short forms of the objects that cluster state is fed with."""

from __future__ import annotations

from typing import Any

import msgspec

from pykarpenter.api import kinds, labels
from pykarpenter.api.kinds import Kind
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.state.cluster import ClusterState
from pykarpenter.state.ledger import Promise

KWOK = ("karpenter.kwok.sh", "KWOKNodeClass")
CLASS_LABEL = "karpenter.kwok.sh/kwoknodeclass"
CLASS_REF = {"group": KWOK[0], "kind": KWOK[1], "name": "default"}


def pod(name: str, node: str = "", *, cpu: str = "1", uid: str = "", phase: str = "Pending", **meta: Any) -> Pod:
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}", **meta},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase},
    }
    return msgspec.convert(body, Pod)


def daemon_pod(name: str, node: str, created: str, **meta: Any) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "ds", "controller": True}
    return pod(name, node, ownerReferences=[owner], creationTimestamp=created, **meta)


def node(
    name: str,
    *,
    provider_id: str | None = None,
    pool: str = "",
    stage: str = "initialized",
    taints: list[dict[str, str]] | None = None,
    deleting: bool = False,
    conditions: list[dict[str, Any]] | None = None,
    **resources: str,
) -> Node:
    found = {labels.ZONE: "z1"}
    if pool:
        found |= {labels.NODEPOOL: pool, CLASS_LABEL: "default", labels.INSTANCE_TYPE: "m-4x"}
        if stage in ("registered", "initialized"):
            found[labels.REGISTERED] = "true"
        if stage == "initialized":
            found[labels.INITIALIZED] = "true"
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "labels": found}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    amounts = resources or {"cpu": "4", "memory": "8Gi", "pods": "110"}
    body = {
        "metadata": metadata,
        "spec": {"providerID": f"kwok://{name}" if provider_id is None else provider_id, "taints": taints or []},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions or []},
    }
    return msgspec.convert(body, Node)


def claim(
    name: str,
    *,
    pool: str = "pool",
    provider_id: str = "",
    requests: dict[str, str] | None = None,
    capacity: dict[str, str] | None = None,
    promised: str = "",
    conditions: dict[str, str] | None = None,
    deleting: bool = False,
    uid: str = "",
    **spec: Any,
) -> NodeClaim:
    metadata: dict[str, Any] = {
        "name": name,
        "uid": uid or f"uid-{name}",
        "labels": {labels.NODEPOOL: pool, CLASS_LABEL: "default"},
        "annotations": {labels.PROMISED_CAPACITY: promised} if promised else {},
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    amounts = capacity or ({"cpu": "4", "memory": "8Gi", "pods": "110"} if provider_id else {})
    body = {
        "metadata": metadata,
        "spec": {"nodeClassRef": CLASS_REF, "resources": {"requests": requests or {"cpu": "1", "pods": "1"}}, **spec},
        "status": {
            "providerID": provider_id,
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": kind, "status": status} for kind, status in (conditions or {}).items()],
        },
    }
    return msgspec.convert(body, NodeClaim)


def pool(name: str = "pool", **limits: str) -> NodePool:
    body = {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"limits": limits, "template": {"spec": {"nodeClassRef": CLASS_REF}}},
    }
    return msgspec.convert(body, NodePool)


def promise(name: str, pool_name: str = "pool", **capacity: int) -> Promise:
    return Promise(name, pool_name, {"nodes": 1, **capacity})


_KINDS: dict[type, Kind[Any]] = {kind.type: kind for kind in kinds.ALL if kind not in (kinds.CONFIG_MAP, kinds.CRD)}


def observe(state: ClusterState, *objects: Any) -> None:
    for item in objects:
        state.observe(_KINDS[type(item)], None, item)


def delete(state: ClusterState, *objects: Any) -> None:
    for item in objects:
        state.observe(_KINDS[type(item)], item, None)


def cluster(*objects: Any) -> ClusterState:
    state = ClusterState(frozenset({KWOK}))
    observe(state, *objects)
    return state
