"""The scale subresource: one small object for the replicas of any kind that has them."""

from __future__ import annotations

from typing import Any

from pykarpenter.sim.schema.field_errors import FieldError, invalid_value
from pykarpenter.sim.schema.kubernetes import type_problem
from pykarpenter.sim.store.entries import Json, lookup
from pykarpenter.sim.store.refusals import bad_request, conflict, invalid, not_found
from pykarpenter.sim.store.resources import Resource, ScalePaths

_SCALE = Resource("autoscaling", "v1", "Scale", "scales", True)
_OPERATORS = {"In": "in", "NotIn": "notin"}


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split(".") if part)


def paths_of(resource: Resource, name: str) -> ScalePaths:
    """Where the kind keeps its replicas; raises NotFound when it has none."""
    if resource.scale is None:
        raise not_found(resource, name)
    return resource.scale


def scale_of(resource: Resource, obj: Json) -> Json:
    """The Scale of an object."""
    meta = obj["metadata"]
    paths = paths_of(resource, meta["name"])
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Json = {"replicas": lookup(obj, _parts(paths.status_replicas)) or 0}
    selector = lookup(obj, _parts(paths.selector)) if paths.selector else None
    if selector:
        status["selector"] = selector if isinstance(selector, str) else selector_text(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"replicas": lookup(obj, _parts(paths.spec_replicas)) or 0},
        "status": status,
    }


def selector_text(selector: Json) -> str:
    """A selector object in the form of a query."""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for term in selector.get("matchExpressions") or ():
        if term["operator"] in _OPERATORS:
            terms.append(f"{term['key']} {_OPERATORS[term['operator']]} ({','.join(term.get('values') or ())})")
        else:
            terms.append(term["key"] if term["operator"] == "Exists" else f"!{term['key']}")
    return ",".join(terms)


def replica_errors(paths: ScalePaths, obj: Json) -> list[FieldError]:
    """What an API server refuses in the replicas of a custom object, whatever its schema allows."""
    value = lookup(obj, _parts(paths.spec_replicas))
    if not isinstance(value, int) or isinstance(value, bool) or 0 <= value < 2**31:
        return []
    wrong = "should be a non-negative integer" if value < 0 else "should be less than or equal to 2147483647"
    return [invalid_value(paths.spec_replicas, value, wrong)]


def with_replicas(resource: Resource, obj: Json, scale: Json) -> Json:
    """The object with the replicas of a Scale; raises Invalid, BadRequest or Conflict."""
    name = obj["metadata"]["name"]
    problem = type_problem("autoscaling", "v1", "Scale", scale)
    if problem:
        raise bad_request(f'Scale in version "v1" cannot be handled as a Scale: {problem}')
    version = (scale.get("metadata") or {}).get("resourceVersion")
    if version and version != obj["metadata"]["resourceVersion"]:
        raise conflict(resource, name)
    replicas = int((scale.get("spec") or {}).get("replicas") or 0)
    if replicas < 0:
        error = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid(_SCALE, name, [error])
    return _with(obj, _parts(paths_of(resource, name).spec_replicas), replicas)


def _with(obj: Json, path: tuple[str, ...], value: Any) -> Json:
    if len(path) == 1:
        return {**obj, path[0]: value}
    return {**obj, path[0]: _with(obj.get(path[0]) or {}, path[1:], value)}
