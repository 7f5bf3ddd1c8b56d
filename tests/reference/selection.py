"""Which pods take part: provisionable ones, those of leaving nodes, and those refused by validation."""

from __future__ import annotations

import re

from pykarpenter.api import labels
from pykarpenter.api.duration import InvalidDuration, parse_duration
from pykarpenter.api.meta import LabelSelector
from pykarpenter.api.pods import NodeSelectorRequirement, Pod
from pykarpenter.api.timestamps import parse_timestamp
from pykarpenter.api.workloads import PodDisruptionBudget
from pykarpenter.core.snapshot import ClusterSnapshot

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
QUALIFIED = re.compile(
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$"
)
VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?$")


def owned_by(pod: Pod, api_version: str, kind: str) -> bool:
    return any(o.api_version == api_version and o.kind == kind for o in pod.metadata.owner_references)


def is_daemon(pod: Pod) -> bool:
    return owned_by(pod, "apps/v1", "DaemonSet")


def is_mirror(pod: Pod) -> bool:
    return owned_by(pod, "v1", "Node")


def is_terminal(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def provisionable(pod: Pod) -> bool:
    unschedulable = any(c.type == "PodScheduled" and c.reason == "Unschedulable" for c in pod.status.conditions)
    return (
        unschedulable
        and not pod.spec.node_name
        and not pod.status.nominated_node_name
        and not is_daemon(pod)
        and not is_mirror(pod)
    )


def protected(pod: Pod, now: float) -> bool:
    """An active do-not-disrupt annotation: `true`, or a duration that has not passed since the start."""
    value = pod.metadata.annotations.get(labels.DO_NOT_DISRUPT)
    if value is None:
        return False
    if value == "true":
        return True
    try:
        seconds = parse_duration(value)
    except InvalidDuration:
        return False
    if seconds <= 0:
        return False
    return pod.status.start_time is None or now - parse_timestamp(pod.status.start_time) < seconds


def selector_matches(selector: LabelSelector | None, values: dict[str, str]) -> bool:
    """Kubernetes' label selector; None selects nothing, an empty one everything, an invalid one nothing."""
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if values.get(key) != value:
            return False
    for expression in selector.match_expressions:
        present = expression.key in values
        if expression.operator == "In":
            ok = present and values[expression.key] in expression.values
        elif expression.operator == "NotIn":
            ok = not present or values[expression.key] not in expression.values
        elif expression.operator == "Exists":
            ok = present
        elif expression.operator == "DoesNotExist":
            ok = not present
        else:
            ok = False
        if not ok:
            return False
    return True


def fully_blocking(pdb: PodDisruptionBudget) -> bool:
    return pdb.spec.max_unavailable in (0, "0", "0%") or pdb.spec.min_available == "100%"


def leaving_pods(snapshot: ClusterSnapshot) -> list[Pod]:
    """Pods of nodes marked for deletion that will need a place again."""
    found: list[Pod] = []
    for node in snapshot.nodes:
        if not node.marked_for_deletion:
            continue
        for pod in node.pods:
            if is_terminal(pod) or is_daemon(pod) or is_mirror(pod):
                continue
            if pod.is_deleting and not owned_by(pod, "apps/v1", "StatefulSet"):
                continue
            if protected(pod, snapshot.now):
                continue
            if any(
                fully_blocking(p)
                and p.namespace == pod.namespace
                and selector_matches(p.spec.selector, pod.metadata.labels)
                for p in snapshot.pdbs
            ):
                continue
            found.append(pod)
    return found


def expression_problem(expression: NodeSelectorRequirement, rules: labels.LabelRules) -> str | None:
    key = rules.normalise(expression.key)
    if expression.operator not in OPERATORS:
        return f"operator {expression.operator!r}"
    if not QUALIFIED.match(key) or len(key.rpartition("/")[2]) > 63:
        return f"key {key!r} is not a qualified name"
    if rules.is_restricted(key):
        return f"key {key!r} is restricted"
    if any(not VALUE.match(v) for v in expression.values):
        return f"values {expression.values!r}"
    if expression.operator == "In" and not expression.values:
        return "In needs values"
    if expression.operator in ("Gt", "Lt", "Gte", "Lte"):
        only = expression.values[0] if len(expression.values) == 1 else ""
        if not (only.isascii() and only.isdigit()):
            return f"{expression.operator} needs one non-negative integer"
    if (
        key == labels.CAPACITY_TYPE
        and expression.operator == "In"
        and not any(v in labels.CAPACITY_TYPES for v in expression.values)
    ):
        return "no known capacity type"
    return None


def pod_problem(pod: Pod, snapshot: ClusterSnapshot, rules: labels.LabelRules) -> str | None:
    """Why a pending pod is dropped before packing; `opted out` is the case without an event."""
    if opted_out(pod, rules):
        return "opted out"
    selector = [NodeSelectorRequirement(key=k, operator="In", values=[v]) for k, v in pod.spec.node_selector.items()]
    for expression in selector:
        problem = expression_problem(expression, rules)
        if problem:
            return problem
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is not None and affinity.required is not None:
        for term in affinity.required.node_selector_terms:
            if term.match_fields:
                return "matchFields"
            for expression in term.match_expressions:
                problem = expression_problem(expression, rules)
                if problem:
                    return problem
    return volume_problem(pod, snapshot)


def opted_out(pod: Pod, rules: labels.LabelRules) -> bool:
    expressions: list[NodeSelectorRequirement] = []
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is not None:
        if affinity.required is not None and affinity.required.node_selector_terms:
            expressions += affinity.required.node_selector_terms[0].match_expressions
        if affinity.preferred:
            heaviest = max(affinity.preferred, key=lambda term: term.weight)
            expressions += heaviest.preference.match_expressions
    return any(e.key == labels.NODEPOOL and e.operator == "DoesNotExist" for e in expressions)


def claim_names(pod: Pod) -> list[str]:
    """Keys of the PersistentVolumeClaims of a pod, ephemeral ones by their derived name."""
    names: list[str] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            names.append(f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}")
        elif volume.ephemeral is not None:
            names.append(f"{pod.namespace}/{pod.name}-{volume.name}")
    return names


def volume_problem(pod: Pod, snapshot: ClusterSnapshot) -> str | None:
    volumes = snapshot.volumes
    for key in claim_names(pod):
        claim = volumes.claims.get(key)
        if claim is None:
            return f"claim {key} not found"
        if claim.is_deleting or claim.status.phase == "Lost":
            return f"claim {key} deleting or lost"
        if claim.spec.volume_name:
            volume = volumes.volumes.get(claim.spec.volume_name)
            if volume is None or volume.is_deleting:
                return f"volume {claim.spec.volume_name} missing or deleting"
            if labels.BIND_COMPLETED not in claim.metadata.annotations:
                return f"claim {key} is still binding"
            continue
        name = claim.spec.storage_class_name
        if not name:
            return f"claim {key} is unbound and names no storage class"
        storage_class = volumes.classes.get(name)
        if storage_class is None:
            return f"storage class {name} not found"
        if (storage_class.volume_binding_mode or "Immediate") == "Immediate":
            return f"storage class {name} binds immediately"
    return None
