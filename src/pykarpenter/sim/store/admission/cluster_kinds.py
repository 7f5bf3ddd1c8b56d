"""Nodes, budgets, priorities, leases, maps and storage: defaults and refusals of the kinds that scheduling rests on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from pykarpenter.api.quantity import parse_quantity
from pykarpenter.sim.schema.field_errors import (
    FieldError,
    forbidden_field,
    invalid_value,
    not_supported,
    quoted,
    required,
)
from pykarpenter.sim.store.admission.pod_defaults import NOT_READY
from pykarpenter.sim.store.admission.pod_validation import effect_errors, selector_errors
from pykarpenter.sim.store.admission.resource_lists import first_unreadable, negative_amounts, unreadable_quantity
from pykarpenter.sim.store.admission.shares import share_errors
from pykarpenter.sim.store.entries import Json
from pykarpenter.sim.store.metadata import SUBDOMAIN, SUBDOMAIN_RULE, label_value_problem, qualified_name_problem
from pykarpenter.sim.store.refusals import invalid
from pykarpenter.sim.store.resources import Resource

_ACCESS_MODES = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]
_MAP_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_MAP_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_HIGHEST_USER_PRIORITY = 1_000_000_000
_Errors = Callable[[Json, Json | None], Iterator[FieldError]]


def admit(resource: Resource, obj: Json, old: Json | None) -> Json:
    """The object with defaults; raises Invalid or BadRequest."""
    if resource.plural == "nodes":
        obj = _node(resource, obj)
    elif old is None and resource.plural in _DEFAULTS:
        obj = {**_DEFAULTS[resource.plural], **obj}
    elif resource.plural == "persistentvolumeclaims" and old is None:
        obj = {**obj, "spec": {"volumeMode": "Filesystem", **(obj.get("spec") or {})}}
    check = _CHECKS.get(resource.plural)
    if check is not None:
        errors = list(check(obj, old))
        if errors:
            raise invalid(resource, obj["metadata"].get("name", ""), errors)
    return obj


_DEFAULTS: dict[str, Json] = {
    "priorityclasses": {"preemptionPolicy": "PreemptLowerPriority"},
    "storageclasses": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
}


def _node(resource: Resource, node: Json) -> Json:
    status = node.get("status") or {}
    for field in ("capacity", "allocatable"):
        unreadable = first_unreadable(f"status.{field}", status.get(field))
        if unreadable is not None:
            raise unreadable_quantity(resource.kind, resource.version, *unreadable)
    if status.get("capacity") and not status.get("allocatable"):
        node = {**node, "status": {**status, "allocatable": status["capacity"]}}
    return node


def not_ready(node: Json) -> Json:
    """A new node takes no pods until the node controller has seen it ready."""
    spec = node.get("spec") or {}
    taints = spec.get("taints") or []
    if any((taint.get("key"), taint.get("effect")) == (NOT_READY, "NoSchedule") for taint in taints):
        return node
    return {**node, "spec": {**spec, "taints": [*taints, {"key": NOT_READY, "effect": "NoSchedule"}]}}


def _node_errors(node: Json, old: Json | None) -> Iterator[FieldError]:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    for field in ("capacity", "allocatable"):
        yield from negative_amounts(f"status.{field}", status.get(field))
    if old is None or spec is not old.get("spec"):
        # Taints under metadata: the path is upstream's, odd as it is.
        yield from _taint_errors(spec.get("taints") or [], "metadata.taints")
    provider_id = ((old or {}).get("spec") or {}).get("providerID")
    if provider_id and spec.get("providerID") != provider_id:
        detail = 'node updates may not change providerID except from "" to valid'
        yield forbidden_field("spec.providerID", detail)


def _taint_errors(taints: list[Json], path: str) -> Iterator[FieldError]:
    seen = []
    for index, taint in enumerate(taints):
        where, key, effect = f"{path}[{index}]", taint.get("key", ""), taint.get("effect", "")
        if problem := qualified_name_problem(key):
            yield invalid_value(f"{where}.key", key, problem)
        if problem := label_value_problem(taint.get("value", "")):
            yield invalid_value(f"{where}.value", taint["value"], problem)
        if effect:
            yield from effect_errors(effect, f"{where}.effect")
        else:
            yield required(f"{where}.effect")
        if (key, effect) in seen:
            shown = {"Key": key, "Value": taint.get("value", ""), "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            message = f"Duplicate value: {quoted(shown)}: taints must be unique by key and effect pair"
            yield FieldError(where, "FieldValueDuplicate", message)
        seen.append((key, effect))


def with_default_class(claim: Json, classes: list[Json]) -> Json:
    """A claim that names no class gets the default one, the newest where there are several."""
    spec = claim.get("spec") or {}
    if spec.get("storageClassName") is not None:
        return claim
    defaults = [c for c in classes if (c["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"]
    if not defaults:
        return claim
    newest = max(defaults, key=lambda c: (c["metadata"].get("creationTimestamp", ""), c["metadata"]["name"]))
    return {**claim, "spec": {**spec, "storageClassName": newest["metadata"]["name"]}}


def _budget_errors(budget: Json, old: Json | None) -> Iterator[FieldError]:
    spec = budget.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        shown = {
            "MinAvailable": spec["minAvailable"],
            "Selector": spec.get("selector"),
            "MaxUnavailable": spec["maxUnavailable"],
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        yield invalid_value("spec", shown, "minAvailable and maxUnavailable cannot be both set")
    for field in ("minAvailable", "maxUnavailable"):
        yield from share_errors(spec.get(field), f"spec.{field}")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy not in (None, "AlwaysAllow", "IfHealthyBudget"):
        yield not_supported("spec.unhealthyPodEvictionPolicy", policy, ["AlwaysAllow", "IfHealthyBudget"])
    yield from selector_errors(spec.get("selector"), "spec.selector")


def _priority_errors(item: Json, old: Json | None) -> Iterator[FieldError]:
    value, name = item.get("value", 0), item["metadata"].get("name", "")
    if name.startswith("system-"):
        if name not in ("system-cluster-critical", "system-node-critical"):
            detail = (
                "priority class names with 'system-' prefix are reserved for system use only. error: "
                f"{name} is not a known system priority class"
            )
            yield forbidden_field("metadata.name", detail)
    elif value > _HIGHEST_USER_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}"
        yield forbidden_field("value", detail)
    if old is not None and old.get("value", 0) != value:
        yield forbidden_field("value", "may not be changed in an update.")
    if item.get("preemptionPolicy") not in (None, "PreemptLowerPriority", "Never"):
        yield not_supported("preemptionPolicy", item["preemptionPolicy"], ["PreemptLowerPriority", "Never"])


def _claim_errors(claim: Json, old: Json | None) -> Iterator[FieldError]:
    """Wrong values alone: a snapshot keeps of a claim only what scheduling reads, so modes and size may be absent."""
    spec = claim.get("spec") or {}
    if old is not None and spec is old.get("spec"):
        return
    modes, mode, name = (
        spec.get("accessModes") or [],
        spec.get("volumeMode", "Filesystem"),
        spec.get("storageClassName"),
    )
    for asked in modes:
        if asked not in _ACCESS_MODES:
            yield not_supported("spec.accessModes", asked, _ACCESS_MODES)
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is not None and parse_quantity(size) <= 0:
        yield invalid_value("spec.resources[storage]", str(size), "must be greater than zero")
    if name and not SUBDOMAIN.fullmatch(name):
        yield invalid_value("spec.storageClassName", name, SUBDOMAIN_RULE)
    if mode not in ("Block", "Filesystem"):
        yield not_supported("spec.volumeMode", mode, ["Block", "Filesystem"])


def _lease_errors(lease: Json, old: Json | None) -> Iterator[FieldError]:
    seconds = (lease.get("spec") or {}).get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")


def _map_errors(item: Json, old: Json | None) -> Iterator[FieldError]:
    for field in ("data", "binaryData"):
        for key in item.get(field) or ():
            if not _MAP_KEY.fullmatch(key):
                yield invalid_value(f"{field}[{key}]", key, _MAP_KEY_RULE)


def _storage_class_errors(item: Json, old: Json | None) -> Iterator[FieldError]:
    if not item.get("provisioner"):
        yield required("provisioner")
    elif problem := qualified_name_problem(item["provisioner"].lower()):
        yield invalid_value("provisioner", item["provisioner"], problem)
    if item.get("volumeBindingMode") not in (None, "Immediate", "WaitForFirstConsumer"):
        choices = ["Immediate", "WaitForFirstConsumer"]
        yield not_supported("volumeBindingMode", item["volumeBindingMode"], choices)
    if item.get("reclaimPolicy") not in (None, "Delete", "Retain"):
        yield not_supported("reclaimPolicy", item["reclaimPolicy"], ["Delete", "Retain"])


_CHECKS: dict[str, _Errors] = {
    "configmaps": _map_errors,
    "secrets": _map_errors,
    "leases": _lease_errors,
    "persistentvolumeclaims": _claim_errors,
    "nodes": _node_errors,
    "poddisruptionbudgets": _budget_errors,
    "priorityclasses": _priority_errors,
    "storageclasses": _storage_class_errors,
}
KINDS = frozenset({*_CHECKS, *_DEFAULTS})
