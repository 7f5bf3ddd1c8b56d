"""Which columns kubectl shows of each built-in kind, and how each cell is read from an object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pykarpenter.api.timestamps import parse_timestamp
from pykarpenter.sim.server.durations import age, human_duration
from pykarpenter.sim.store.conditions import find_condition
from pykarpenter.sim.store.entries import Json, lookup
from pykarpenter.sim.store.scale import selector_text

Cell = Callable[[Json, float], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and its cell; `wide` shows only with -o wide."""

    name: str
    cell: Cell
    type: str = "string"
    format: str = ""
    wide: bool = False


def _at(*path: str, absent: Any = "<none>") -> Cell:
    def cell(obj: Json, now: float) -> Any:
        found = lookup(obj, path)
        return absent if found in (None, "") else found

    return cell


def _role(obj: Json, now: float) -> str:
    return f"{lookup(obj, ('roleRef', 'kind'))}/{lookup(obj, ('roleRef', 'name'))}"


def _count(*path: str) -> Cell:
    return lambda obj, now: lookup(obj, path) or 0


def _keys(*path: str) -> Cell:
    return lambda obj, now: len(lookup(obj, path) or ())


NAME = Column("Name", _at("metadata", "name"), format="name")
AGE = Column("Age", lambda obj, now: age(obj["metadata"].get("creationTimestamp"), now))


def _pod_status(pod: Json, now: float) -> str:
    status = pod.get("status") or {}
    reason = status.get("reason") or status.get("phase") or "Unknown"
    scheduled = find_condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        reason = waiting.get("reason") or ended.get("reason") or reason
    if "deletionTimestamp" in pod["metadata"]:
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str({"Succeeded": "Completed"}.get(reason, reason))


def _pod_ready(pod: Json, now: float) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    ready, total = sum(bool(item.get("ready")) for item in statuses), len(pod["spec"].get("containers") or ())
    if not statuses:
        # Simulated kubelets report readiness without container statuses.
        condition = find_condition(pod, "Ready")
        ready = total if condition is not None and condition.get("status") == "True" else 0
    return f"{ready}/{total}"


def _pod_restarts(pod: Json, now: float) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return str(sum(item.get("restartCount", 0) for item in statuses))


def _readiness_gates(pod: Json, now: float) -> str:
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
    passed = sum((find_condition(pod, gate) or {}).get("status") == "True" for gate in gates)
    return f"{passed}/{len(gates)}" if gates else "<none>"


def _node_status(node: Json, now: float) -> str:
    ready = find_condition(node, "Ready")
    words = ["Unknown"] if ready is None else ["Ready" if ready.get("status") == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: Json, now: float) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix) and key != prefix)
    return ",".join(roles) or "<none>"


def _node_address(kind: str) -> Cell:
    def cell(node: Json, now: float) -> str:
        for address in (node.get("status") or {}).get("addresses") or ():
            if address.get("type") == kind:
                return str(address["address"])
        return "<none>"

    return cell


def _of(ready: tuple[str, ...], wanted: tuple[str, ...], default: int = 0) -> Cell:
    def cell(obj: Json, now: float) -> str:
        total = lookup(obj, wanted)
        return f"{lookup(obj, ready) or 0}/{default if total is None else total}"

    return cell


def _containers(field: str) -> Cell:
    def cell(obj: Json, now: float) -> str:
        containers = lookup(obj, ("spec", "template", "spec", "containers")) or ()
        return ",".join(str(item.get(field, "")) for item in containers)

    return cell


def _selector(obj: Json, now: float) -> str:
    selector = lookup(obj, ("spec", "selector"))
    return selector_text(selector) if selector else "<none>"


_TEMPLATE = (
    Column("Containers", _containers("name"), wide=True),
    Column("Images", _containers("image"), wide=True),
    Column("Selector", _selector, wide=True),
)


def _integer(name: str, *path: str) -> Column:
    return Column(name, _count(*path), "integer")


def _job_duration(job: Json, now: float) -> str:
    status = job.get("status") or {}
    if not status.get("startTime"):
        return ""
    end = status.get("completionTime")
    return human_duration((parse_timestamp(end) if end else now) - parse_timestamp(status["startTime"]))


def _job_state(job: Json, now: float) -> str:
    for condition, word in (("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended")):
        if (find_condition(job, condition) or {}).get("status") == "True":
            return word
    return "Terminating" if "deletionTimestamp" in job["metadata"] else "Running"


def _event_object(event: Json, now: float) -> str:
    involved = event.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _event_last_seen(event: Json, now: float) -> str:
    last = event.get("lastTimestamp") or lookup(event, ("series", "lastObservedTime")) or event.get("eventTime")
    return age(last or event.get("firstTimestamp") or event["metadata"].get("creationTimestamp"), now)


def _access_modes(obj: Json, now: float) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    modes = lookup(obj, ("spec", "accessModes")) or ()
    return ",".join(short.get(mode, mode) for mode in modes)


def _claim(volume: Json, now: float) -> str:
    claim = lookup(volume, ("spec", "claimRef")) or {}
    return f"{claim['namespace']}/{claim['name']}" if claim.get("name") else ""


def _ports(service: Json, now: float) -> str:
    ports = lookup(service, ("spec", "ports")) or ()
    return ",".join(f"{port['port']}/{port.get('protocol', 'TCP')}" for port in ports) or "<none>"


def _yes_no(*path: str) -> Cell:
    return lambda obj, now: bool(lookup(obj, path))


COLUMNS: dict[str, tuple[Column, ...]] = {
    "pods": (
        NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _pod_restarts),
        AGE,
        Column("IP", _at("status", "podIP"), wide=True),
        Column("Node", _at("spec", "nodeName"), wide=True),
        Column("Nominated Node", _at("status", "nominatedNodeName"), wide=True),
        Column("Readiness Gates", _readiness_gates, wide=True),
    ),
    "nodes": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", _at("status", "nodeInfo", "kubeletVersion", absent="")),
        Column("Internal-IP", _node_address("InternalIP"), wide=True),
        Column("External-IP", _node_address("ExternalIP"), wide=True),
        Column("OS-Image", _at("status", "nodeInfo", "osImage", absent="<unknown>"), wide=True),
        Column("Kernel-Version", _at("status", "nodeInfo", "kernelVersion", absent="<unknown>"), wide=True),
        Column(
            "Container-Runtime", _at("status", "nodeInfo", "containerRuntimeVersion", absent="<unknown>"), wide=True
        ),
    ),
    "namespaces": (NAME, Column("Status", _at("status", "phase")), AGE),
    "deployments": (
        NAME,
        Column("Ready", _of(("status", "readyReplicas"), ("spec", "replicas"), 1)),
        _integer("Up-to-date", "status", "updatedReplicas"),
        _integer("Available", "status", "availableReplicas"),
        AGE,
        *_TEMPLATE,
    ),
    "replicasets": (
        NAME,
        _integer("Desired", "spec", "replicas"),
        _integer("Current", "status", "replicas"),
        _integer("Ready", "status", "readyReplicas"),
        AGE,
        *_TEMPLATE,
    ),
    "statefulsets": (
        NAME,
        Column("Ready", _of(("status", "readyReplicas"), ("spec", "replicas"), 1)),
        AGE,
        *_TEMPLATE[:2],
    ),
    "daemonsets": (
        NAME,
        _integer("Desired", "status", "desiredNumberScheduled"),
        _integer("Current", "status", "currentNumberScheduled"),
        _integer("Ready", "status", "numberReady"),
        _integer("Up-to-date", "status", "updatedNumberScheduled"),
        _integer("Available", "status", "numberAvailable"),
        AGE,
        *_TEMPLATE,
    ),
    "jobs": (
        NAME,
        Column("Status", _job_state),
        Column("Completions", _of(("status", "succeeded"), ("spec", "completions"), 1)),
        Column("Duration", _job_duration),
        AGE,
        *_TEMPLATE,
    ),
    "poddisruptionbudgets": (
        NAME,
        Column("Min Available", _at("spec", "minAvailable", absent="N/A")),
        Column("Max Unavailable", _at("spec", "maxUnavailable", absent="N/A")),
        _integer("Allowed Disruptions", "status", "disruptionsAllowed"),
        AGE,
    ),
    "priorityclasses": (
        NAME,
        Column("Value", _count("value"), "integer"),
        Column("Global-Default", _yes_no("globalDefault"), "boolean"),
        AGE,
        Column("PreemptionPolicy", _at("preemptionPolicy")),
    ),
    "scales": (
        NAME,
        Column("Desired", _count("spec", "replicas"), "integer"),
        Column("Available", _count("status", "replicas"), "integer"),
        AGE,
    ),
    "roles": (NAME, Column("Created At", _at("metadata", "creationTimestamp"))),
    "clusterroles": (NAME, Column("Created At", _at("metadata", "creationTimestamp"))),
    "rolebindings": (NAME, Column("Role", _role), AGE),
    "clusterrolebindings": (NAME, Column("Role", _role), AGE),
    "services": (
        NAME,
        Column("Type", _at("spec", "type", absent="ClusterIP")),
        Column("Cluster-IP", _at("spec", "clusterIP")),
        Column("External-IP", lambda obj, now: "<none>"),
        Column("Port(s)", _ports),
        AGE,
        Column("Selector", _selector, wide=True),
    ),
    "events": (
        Column("Last Seen", _event_last_seen),
        Column("Type", _at("type", absent="")),
        Column("Reason", _at("reason", absent="")),
        Column("Object", _event_object),
        Column("Source", _at("source", "component", absent=""), wide=True),
        Column("Message", lambda obj, now: str(obj.get("message", "")).strip()),
        Column("Count", _count("count"), "integer", wide=True),
        Column("Name", _at("metadata", "name"), format="name", wide=True),
    ),
    "configmaps": (NAME, Column("Data", _keys("data"), "integer"), AGE),
    "secrets": (NAME, Column("Type", _at("type", absent="Opaque")), Column("Data", _keys("data"), "integer"), AGE),
    "leases": (NAME, Column("Holder", _at("spec", "holderIdentity", absent="")), AGE),
    "persistentvolumeclaims": (
        NAME,
        Column("Status", _at("status", "phase", absent="")),
        Column("Volume", _at("spec", "volumeName", absent="")),
        Column("Capacity", _at("status", "capacity", "storage", absent="")),
        Column("Access Modes", _access_modes),
        Column("StorageClass", _at("spec", "storageClassName", absent="")),
        AGE,
    ),
    "persistentvolumes": (
        NAME,
        Column("Capacity", _at("spec", "capacity", "storage", absent="")),
        Column("Access Modes", _access_modes),
        Column("Reclaim Policy", _at("spec", "persistentVolumeReclaimPolicy", absent="")),
        Column("Status", _at("status", "phase", absent="")),
        Column("Claim", _claim),
        Column("StorageClass", _at("spec", "storageClassName", absent="")),
        AGE,
    ),
    "storageclasses": (
        NAME,
        Column("Provisioner", _at("provisioner", absent="")),
        Column("ReclaimPolicy", _at("reclaimPolicy", absent="")),
        Column("VolumeBindingMode", _at("volumeBindingMode", absent="")),
        Column("AllowVolumeExpansion", _yes_no("allowVolumeExpansion"), "boolean"),
        AGE,
    ),
    "csinodes": (NAME, Column("Drivers", _keys("spec", "drivers"), "integer"), AGE),
    "customresourcedefinitions": (NAME, Column("Created At", _at("metadata", "creationTimestamp"))),
}
PLAIN = (NAME, AGE)
