"""What an API server fills into a pod's spec: defaults, requests from limits, priority, default tolerations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykarpenter.sim.store.admission.resource_lists import with_canonical_amounts
from pykarpenter.sim.store.entries import Json
from pykarpenter.sim.store.refusals import forbidden
from pykarpenter.sim.store.resources import Resource

if TYPE_CHECKING:
    from pykarpenter.sim.store.store import Store

DEFAULT_TOLERATION_S = 300
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
_SPEC_DEFAULTS: Json = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "terminationGracePeriodSeconds": 30,
    "schedulerName": "default-scheduler",
    "securityContext": {},
}
_CONTAINER_DEFAULTS: Json = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}


def defaulted_spec(spec: Json) -> Json:
    """A pod spec, of a pod or of a template, with Kubernetes' defaults."""
    result = {**_SPEC_DEFAULTS, **spec}
    for field in ("containers", "initContainers"):
        if field in spec:
            result[field] = [_defaulted_container(container) for container in spec[field]]
    return result


def _defaulted_container(container: Json) -> Json:
    result = with_canonical_amounts({**_CONTAINER_DEFAULTS, **container})
    if "imagePullPolicy" not in result:
        _, colon, tag = str(container.get("image", "")).rpartition("/")[2].partition(":")
        result["imagePullPolicy"] = "Always" if not colon or tag == "latest" else "IfNotPresent"
    if ports := container.get("ports"):
        result["ports"] = [{"protocol": "TCP", **port} for port in ports]
    return result


def requests_from_limits(spec: Json) -> Json:
    """Of pods alone, not of templates: a limit without a request is also the request."""
    result = {"enableServiceLinks": True, **spec}
    for field in ("containers", "initContainers"):
        if field in spec:
            result[field] = [_requesting(container) for container in spec[field]]
    return result


def _requesting(container: Json) -> Json:
    resources = container.get("resources") or {}
    limits = resources.get("limits")
    if not limits:
        return container
    requests = {**limits, **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": requests}}


def with_default_tolerations(spec: Json) -> Json:
    """Pods stay five minutes on a node that is not ready or not reachable, unless they say otherwise."""
    tolerations = list(spec.get("tolerations") or ())
    for key in (NOT_READY, UNREACHABLE):
        if not any(_tolerates_eviction_by(toleration, key) for toleration in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": DEFAULT_TOLERATION_S}
            )
    return {**spec, "tolerations": tolerations}


def _tolerates_eviction_by(toleration: Json, key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")


def with_priority(store: Store, resource: Resource, name: str, spec: Json) -> Json:
    """The priority of the pod's class, or of the default class; raises Forbidden for a class that is not there."""
    classes = store.resource("scheduling.k8s.io", "priorityclasses")
    class_name = spec.get("priorityClassName", "")
    if class_name:
        found = store.find(classes, class_name)
        if found is None:
            raise forbidden(resource, name, f"no PriorityClass with name {class_name} was found")
        chosen: Json | None = found.obj
    else:
        defaults = [entry.obj for entry in store.list_page(classes).entries if entry.obj.get("globalDefault")]
        chosen = min(defaults, key=lambda obj: obj.get("value", 0)) if defaults else None
    result = dict(spec)
    priority = chosen.get("value", 0) if chosen is not None else 0
    if spec.get("priority") not in (None, priority):
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission "
            f"controller computed {priority} from the given PriorityClass name"
        )
        raise forbidden(resource, name, why)
    result["priority"] = priority
    result["preemptionPolicy"] = (chosen or {}).get("preemptionPolicy") or "PreemptLowerPriority"
    if chosen is not None:
        result["priorityClassName"] = chosen["metadata"]["name"]
    return result


def quality_of_service(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort, from cpu and memory of all containers."""
    every = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    any_set, guaranteed = False, bool(every)
    for container in every:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            any_set = any_set or name in requests or name in limits
            guaranteed = guaranteed and name in limits and requests.get(name, limits[name]) == limits[name]
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"
