"""Pod admission: defaults, priority and tolerations on create, and the few fields that may change afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykarpenter.core.recent import Recent
from pykarpenter.sim.schema.field_errors import FieldError, forbidden_field, invalid_value
from pykarpenter.sim.store.admission.pod_defaults import (
    defaulted_spec,
    quality_of_service,
    requests_from_limits,
    with_default_tolerations,
    with_priority,
)
from pykarpenter.sim.store.admission.pod_validation import pod_spec_errors, unreadable_amount
from pykarpenter.sim.store.admission.resource_lists import unreadable_quantity
from pykarpenter.sim.store.conditions import with_condition
from pykarpenter.sim.store.entries import Json, encode
from pykarpenter.sim.store.refusals import invalid
from pykarpenter.sim.store.resources import Resource

if TYPE_CHECKING:
    from pykarpenter.sim.store.store import Store

# Specs that none of so many pods brought again are forgotten.
_REMEMBERED_SPECS = 1024
_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


class PodAdmission:
    """Pods of one workload bring the same spec again and again: it is checked once and then shared."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._specs: Recent[bytes, tuple[Json, str]] = Recent(_REMEMBERED_SPECS)
        self._classes_seen = -1
        self._admitted = 0

    def admit(self, resource: Resource, pod: Json) -> Json:
        """A pod as it is stored first; raises Invalid, BadRequest or Forbidden."""
        spec, quality = self._admitted_spec(resource, pod)
        admitted = {**pod, "spec": spec, "status": {"phase": "Pending", "qosClass": quality}}
        return with_condition(admitted, _GATED, self._store.timestamp()) if spec.get("schedulingGates") else admitted

    def _admitted_spec(self, resource: Resource, pod: Json) -> tuple[Json, str]:
        classes = self._store.table("scheduling.k8s.io", "priorityclasses").history.end
        if classes != self._classes_seen:
            self._specs = Recent(_REMEMBERED_SPECS)
            self._classes_seen = classes
        self._admitted += 1
        if self._admitted % _REMEMBERED_SPECS == 0:
            self._specs.turn()
        raw = pod.get("spec") or {}
        key = encode(raw)
        found = self._specs.get(key)
        if found is None:
            spec = self._checked(resource, pod["metadata"].get("name", ""), raw)
            found = self._specs.put(key, (spec, quality_of_service(spec)))
        return found

    def _checked(self, resource: Resource, name: str, raw: Json) -> Json:
        unreadable = unreadable_amount(raw, "spec")
        if unreadable is not None:
            raise unreadable_quantity("Pod", "v1", *unreadable)
        spec = requests_from_limits(defaulted_spec(raw))
        spec = with_default_tolerations(with_priority(self._store, resource, name, spec))
        errors = pod_spec_errors(spec)
        if errors:
            raise invalid(resource, name, errors)
        return spec


def check_update(resource: Resource, pod: Json, old: Json, subresource: str) -> None:
    """A pod's spec is fixed but for images, deadline, more tolerations and fewer gates; raises Invalid.

    The resize subresource changes what containers request, and nothing else.
    """
    spec, was = pod.get("spec") or {}, old["spec"]
    if spec is was or spec == was:
        return
    unreadable = unreadable_amount(spec, "spec")
    if unreadable is not None:
        raise unreadable_quantity("Pod", "v1", *unreadable)
    errors = pod_spec_errors(spec)
    if not errors:
        errors = _resize_errors(spec, was) if subresource == "resize" else _change_errors(spec, was)
    if errors:
        raise invalid(resource, old["metadata"]["name"], errors)


def _change_errors(spec: Json, was: Json) -> list[FieldError]:
    for field in ("containers", "initContainers"):
        if len(spec.get(field) or ()) != len(was.get(field) or ()):
            return [forbidden_field(f"spec.{field}", "pod updates may not add or remove containers")]
    gates = [gate["name"] for gate in was.get("schedulingGates") or ()]
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate["name"] not in gates:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            return [forbidden_field(f"spec.schedulingGates[{index}].name", detail)]
    tolerations = spec.get("tolerations") or []
    if any(toleration not in tolerations for toleration in was.get("tolerations") or ()):
        return [
            forbidden_field("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
        ]
    if gates and any((spec.get("nodeSelector") or {}).get(key) != value for key, value in _selector(was)):
        return [
            invalid_value(
                "spec.nodeSelector", spec.get("nodeSelector"), "only additions are allowed (no mutations or deletions)"
            )
        ]
    free = {"schedulingGates", "tolerations", "activeDeadlineSeconds"} | (
        {"nodeSelector", "affinity"} if gates else set()
    )
    if _fixed_part(spec, free) != _fixed_part(was, free):
        return [forbidden_field("spec", f"pod updates may not change fields other than {_UPDATABLE}")]
    return []


def _resize_errors(spec: Json, was: Json) -> list[FieldError]:
    if _fixed_part(spec, set(), "resources") == _fixed_part(was, set(), "resources"):
        return []
    return [forbidden_field("spec", "only cpu and memory resources are mutable")]


def _selector(spec: Json) -> list[tuple[str, str]]:
    return list((spec.get("nodeSelector") or {}).items())


def _fixed_part(spec: Json, free: set[str], free_in_containers: str = "image") -> Json:
    fixed = {key: value for key, value in spec.items() if key not in free}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{**container, free_in_containers: None} for container in fixed[field]]
    return fixed
