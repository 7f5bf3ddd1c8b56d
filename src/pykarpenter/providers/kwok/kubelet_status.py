"""What a simulated kubelet writes: a Node that is Ready, a pod that runs, completes or has stopped.

Pure: object and time in, patch out. A patch carries the version it was made from and keeps the conditions of others,
such as the scheduler's, or faults that tests inject.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from pykarpenter.api import labels
from pykarpenter.api.duration import InvalidDuration, parse_duration
from pykarpenter.api.meta import Condition, Object, condition_status, find_condition
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import format_micro_timestamp, format_timestamp, parse_optional_timestamp

# KWOK's own label: a Node so marked keeps the Ready condition that somebody gave it.
STAGE_LABEL = "kwok.x-k8s.io/stage"
UNHEALTHY_STAGE = "unhealthy"
# Ours, on pods: run this long, then succeed; take this long to stop.
COMPLETES_AFTER = f"{labels.OWN_GROUP}/completes-after"
STOPS_AFTER = f"{labels.OWN_GROUP}/stops-after"

LEASE_NAMESPACE = "kube-node-lease"
LEASE_DURATION_S = 40

_NODE_CONDITIONS = (
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
_POD_CONDITIONS = ("Initialized", "Ready", "ContainersReady")


def keeps_its_readiness(node: Node) -> bool:
    return node.metadata.labels.get(STAGE_LABEL) == UNHEALTHY_STAGE


def is_dead(node: Node) -> bool:
    """A machine that somebody declared lost: its kubelet answers nothing, so its pods neither start nor stop."""
    return keeps_its_readiness(node) and condition_status(node.status.conditions, "Ready") == "Unknown"


def is_unfit(node: Node) -> bool:
    """Whether the Node lacks what its kubelet owes it: a Ready condition (unless others hold it), a boot ID."""
    if keeps_its_readiness(node):
        return False
    return condition_status(node.status.conditions, "Ready") != "True" or not node.status.node_info.boot_id


def node_status_patch(node: Node, now: float) -> dict[str, Any]:
    stamp = format_timestamp(now)
    own = [
        {
            "type": kind,
            "status": wanted,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": stamp,
            "lastTransitionTime": _transition(node.status.conditions, kind, wanted, stamp),
        }
        for kind, wanted, reason, message in _NODE_CONDITIONS
    ]
    status: dict[str, Any] = {
        "phase": "Running",
        "conditions": _beside(node.status.conditions, own),
        "addresses": [{"type": "Hostname", "address": node.name}],
    }
    if not node.status.node_info.boot_id:
        # A reboot gives another one, which must not be taken back.
        status["nodeInfo"] = {
            "bootID": f"kwok-{node.uid}",
            "kubeletVersion": "pykarpenter-kubelet",
            "architecture": node.metadata.labels.get(labels.ARCH, ""),
            "operatingSystem": node.metadata.labels.get(labels.OS, ""),
        }
    return _locked(node, status)


def _locked(obj: Object, status: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": obj.metadata.resource_version}, "status": status}


def _beside(present: list[Condition], own: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Our conditions and, before them, those of others; a merge patch replaces the whole list."""
    ours = {condition["type"] for condition in own}
    return [*(msgspec.to_builtins(c) for c in present if c.type not in ours), *own]


def _transition(conditions: list[Condition], kind: str, wanted: str, stamp: str) -> str:
    present = find_condition(conditions, kind)
    if present is not None and present.status == wanted and present.last_transition_time:
        return present.last_transition_time
    return stamp


def lease_spec(node: Node, now: float) -> dict[str, Any]:
    return {
        "holderIdentity": node.name,
        "leaseDurationSeconds": LEASE_DURATION_S,
        "renewTime": format_micro_timestamp(now),
    }


def lease_body(node: Node, now: float) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node.name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": lease_spec(node, now),
    }


def running_patch(pod: Pod, now: float) -> dict[str, Any]:
    stamp = format_timestamp(now)
    own = [{"type": kind, "status": "True", "lastTransitionTime": stamp} for kind in _POD_CONDITIONS]
    status = {
        "phase": "Running",
        "startTime": stamp,
        "podIP": _address(pod),
        "conditions": _beside(pod.status.conditions, own),
        "containerStatuses": _container_statuses(pod, {"running": {"startedAt": stamp}}, ready=True),
    }
    return _locked(pod, status)


def finished_patch(pod: Pod, now: float, *, succeeded: bool) -> dict[str, Any]:
    stamp = format_timestamp(now)
    state = {"terminated": {"exitCode": 0 if succeeded else 137, "finishedAt": stamp}}
    own = [
        {"type": kind, "status": "False", "reason": "PodCompleted", "lastTransitionTime": stamp}
        for kind in ("Ready", "ContainersReady")
    ]
    status = {
        "phase": "Succeeded" if succeeded else "Failed",
        "conditions": _beside(pod.status.conditions, own),
        "containerStatuses": _container_statuses(pod, state, ready=False),
    }
    return _locked(pod, status)


def _container_statuses(pod: Pod, state: dict[str, Any], *, ready: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": c.name,
            "image": c.image,
            "imageID": "",
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "state": state,
        }
        for c in pod.spec.containers
    ]


def _address(pod: Pod) -> str:
    digest = hashlib.sha256(pod.uid.encode()).digest()
    return f"10.{digest[0]}.{digest[1]}.{1 + digest[2] % 254}"


def stops_at(pod: Pod, default_s: float) -> float:
    """When a deleted pod's containers have exited: after its own time to stop, at the latest when grace is over."""
    end = parse_optional_timestamp(pod.metadata.deletion_timestamp) or 0.0
    begun = end - (pod.metadata.deletion_grace_period_seconds or 0)
    return min(end, begun + _annotated(pod, STOPS_AFTER, default_s))


def completes_at(pod: Pod) -> float | None:
    """When a running pod succeeds by itself; None for one that runs on."""
    if COMPLETES_AFTER not in pod.metadata.annotations:
        return None
    started = parse_optional_timestamp(pod.status.start_time)
    return None if started is None else started + _annotated(pod, COMPLETES_AFTER, 0.0)


def _annotated(pod: Pod, key: str, default_s: float) -> float:
    try:
        return max(0.0, parse_duration(pod.metadata.annotations.get(key, "")))
    except InvalidDuration:
        return default_s
