"""What no cluster would have admitted in pods and workloads, as far as it would make a decision about them wrong.

Reads documents as they were written. It is no API server: fields that no decision reads are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pykarpenter.api.quantity import InvalidQuantity, parse_quantity
from pykarpenter.api.timestamps import parse_timestamp
from pykarpenter.api.validation import Problem

_POD_SPECS: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "Pod"): ("spec",),
    ("", "PodTemplate"): ("template", "spec"),
    ("", "ReplicationController"): ("spec", "template", "spec"),
    ("apps", "Deployment"): ("spec", "template", "spec"),
    ("apps", "ReplicaSet"): ("spec", "template", "spec"),
    ("apps", "StatefulSet"): ("spec", "template", "spec"),
    ("apps", "DaemonSet"): ("spec", "template", "spec"),
    ("batch", "Job"): ("spec", "template", "spec"),
}
_COUNTS = ("replicas", "parallelism", "completions")
_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_TOLERATIONS = ("", "Exists", "Equal", "Gt", "Lt")


def has_pods(group: str, kind: str) -> bool:
    """Whether the kind is, or makes, pods that machines are bought for."""
    return (group, kind) in _POD_SPECS


def workload_problems(group: str, kind: str, body: Mapping[str, Any]) -> Iterator[Problem]:
    """Every problem of a pod or of what makes pods; none for other kinds."""
    path = _POD_SPECS.get((group, kind))
    if path is None:
        return
    found: Any = body
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    meta = body.get("metadata")
    # A workload that a cluster has taken in may be shown without its template; its pods are what counts.
    if found is not None or path == ("spec",) or not (isinstance(meta, dict) and meta.get("uid")):
        yield from _pod_spec(found, ".".join(path))
    spec = body.get("spec")
    for name in _COUNTS:
        count = spec.get(name) if isinstance(spec, dict) else None
        if isinstance(count, int) and count < 0:
            yield Problem(f"spec.{name}", count, "must not be negative")


def _pod_spec(spec: Any, path: str) -> Iterator[Problem]:
    if spec is None:
        yield Problem(f"{path}.containers", None, "a pod needs at least one container")
    if not isinstance(spec, dict):
        return
    if not spec.get("containers"):
        yield Problem(f"{path}.containers", spec.get("containers"), "a pod needs at least one container")
    for name in ("containers", "initContainers"):
        for index, container in enumerate(_items(spec.get(name))):
            yield from _resources(container.get("resources"), f"{path}.{name}[{index}].resources")
    yield from _resources(spec.get("resources"), f"{path}.resources")
    yield from quantity_problems(spec.get("overhead"), f"{path}.overhead")
    for index, constraint in enumerate(_items(spec.get("topologySpreadConstraints"))):
        yield from _constraint(constraint, f"{path}.topologySpreadConstraints[{index}]")
    for index, toleration in enumerate(_items(spec.get("tolerations"))):
        operator = toleration.get("operator")
        if isinstance(operator, str) and operator not in _TOLERATIONS:
            message = f"use one of {', '.join(o for o in _TOLERATIONS if o)}"
            yield Problem(f"{path}.tolerations[{index}].operator", operator, message)


def _constraint(constraint: dict[str, Any], path: str) -> Iterator[Problem]:
    skew = constraint.get("maxSkew")
    if skew is None or (isinstance(skew, int) and skew < 1):
        yield Problem(f"{path}.maxSkew", skew, "must be at least 1")
    if not constraint.get("topologyKey"):
        yield Problem(f"{path}.topologyKey", constraint.get("topologyKey"), "must name a node label")
    if constraint.get("whenUnsatisfiable") not in _ACTIONS:
        message = f"use {' or '.join(_ACTIONS)}"
        yield Problem(f"{path}.whenUnsatisfiable", constraint.get("whenUnsatisfiable"), message)
    domains = constraint.get("minDomains")
    if isinstance(domains, int) and domains < 1:
        yield Problem(f"{path}.minDomains", domains, "must be at least 1")


def _items(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; what is none keeps its place, so that the others keep their numbers."""
    return [item if isinstance(item, dict) else {} for item in value] if isinstance(value, list) else []


def _resources(resources: Any, path: str) -> Iterator[Problem]:
    if isinstance(resources, dict):
        for name in ("requests", "limits"):
            yield from quantity_problems(resources.get(name), f"{path}.{name}")


def quantity_problems(quantities: Any, path: str) -> Iterator[Problem]:
    """Every amount must be a quantity that is not negative."""
    for name, value in quantities.items() if isinstance(quantities, dict) else ():
        try:
            amount = parse_quantity(value)
        except (InvalidQuantity, TypeError):
            yield Problem(f"{path}.{name}", value, "expected a quantity such as 500m, 2 or 1Gi")
            continue
        if amount < 0:
            yield Problem(f"{path}.{name}", value, "must not be negative")


def time_problems(data: Mapping[str, Any]) -> Iterator[Problem]:
    """Times that an API server would not have let in; one that is absent or null is fine."""
    metadata, status = _mapping(data.get("metadata")), _mapping(data.get("status"))
    found = [(f"metadata.{name}", metadata.get(name)) for name in ("creationTimestamp", "deletionTimestamp")]
    found += [(f"status.{name}", status.get(name)) for name in ("startTime", "lastPodEventTime")]
    conditions = status.get("conditions")
    for index, item in enumerate(conditions if isinstance(conditions, list) else ()):
        found.append((f"status.conditions[{index}].lastTransitionTime", _mapping(item).get("lastTransitionTime")))
    for path, value in found:
        if value and not _is_time(value):
            yield Problem(path, value, "expected a time such as 2026-01-14T12:00:00Z")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_time(value: Any) -> bool:
    try:
        parse_timestamp(value)
    except (ValueError, TypeError):
        return False
    return True
