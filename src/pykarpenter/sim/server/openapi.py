"""OpenAPI documents of what is served: enough for kubectl's explain, apply, diff and field validation.

Schemas of built-in kinds come from the bundled data, those of custom kinds from their definitions.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from pykarpenter.sim.schema import kubernetes
from pykarpenter.sim.server.discovery import groups
from pykarpenter.sim.store import Resource, Store

Json = dict[str, Any]

_V2_PREFIX, _V3_PREFIX = "#/definitions/", "#/components/schemas/"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
# The parameters that kubectl looks for before it relies on them.
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")
# OpenAPI v2 in its binary form, without any path or definition: `swagger: "2.0"` and an empty `info`.
V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2_EMPTY = b"\x0a\x032.0\x12\x00"
_VERBS = {"get": "get", "post": "create", "put": "update", "patch": "patch", "delete": "delete"}


def schema_name(resource: Resource) -> str:
    """The name of a kind's schema: upstream's, or the reversed group of a custom kind."""
    known = kubernetes.definition_name(resource.group, resource.version, resource.kind)
    if known is not None:
        return known
    reversed_group = ".".join(reversed(resource.group.split(".")))
    return f"{reversed_group}.{resource.version}.{resource.kind}"


def _kind(resource: Resource) -> Json:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _custom_definition(resource: Resource) -> Json:
    assert resource.custom is not None
    schema = dict(resource.custom.schema)
    schema["properties"] = {
        "apiVersion": {"type": "string", "description": "The versioned schema of this object."},
        "kind": {"type": "string", "description": "The kind of this object."},
        **(schema.get("properties") or {}),
        "metadata": {"$ref": _V2_PREFIX + _OBJECT_META, "description": "Standard object's metadata."},
    }
    return {**schema, "x-kubernetes-group-version-kind": [_kind(resource)]}


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        found = set()
        for key, item in value.items():
            if key == "$ref" and isinstance(item, str):
                found.add(item.removeprefix(_V2_PREFIX))
            else:
                found |= _references(item)
        return found
    if isinstance(value, list):
        return set().union(*(_references(item) for item in value))
    return set()


def _closure(schemas: Json) -> Json:
    """The schemas and everything they refer to."""
    found, waiting = dict(schemas), list(schemas.values())
    while waiting:
        for name in sorted(_references(waiting.pop())):
            if name not in found:
                found[name] = kubernetes.definitions()[name]
                waiting.append(found[name])
    return dict(sorted(found.items()))


def _definitions(resources: list[Resource]) -> Json:
    schemas: Json = {}
    for resource in resources:
        name = schema_name(resource)
        if resource.custom is not None:
            schemas[name] = _custom_definition(resource)
        elif name in kubernetes.definitions():
            schemas[name] = kubernetes.definitions()[name]
    return _closure(schemas)


def _paths(resource: Resource, parameter: Any, response: Any) -> Json:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    collection = f"{root}{scope}/{resource.plural}"

    def operation(verb: str, *parameters: str) -> Json:
        return {
            "operationId": f"{_VERBS[verb]}-{resource.group}-{resource.version}-{resource.plural}",
            "parameters": [parameter(name) for name in parameters],
            "responses": {"200": response(resource)},
            "x-kubernetes-group-version-kind": _kind(resource),
        }

    return {
        collection: {
            "get": operation("get"),
            "post": operation("post", *_WRITE_PARAMETERS),
            "delete": operation("delete"),
        },
        f"{collection}/{{name}}": {
            "get": operation("get"),
            "put": operation("put", *_WRITE_PARAMETERS),
            "patch": operation("patch", *_WRITE_PARAMETERS, "force"),
            "delete": operation("delete", "dryRun"),
        },
    }


def _info() -> Json:
    return {"title": "pykarpenter embedded cluster", "version": "v1.36.0"}


def v2(store: Store) -> Json:
    """One document for everything."""

    def parameter(name: str) -> Json:
        return {"name": name, "in": "query", "type": "boolean" if name == "force" else "string", "uniqueItems": True}

    def response(resource: Resource) -> Json:
        return {"description": "OK", "schema": {"$ref": _V2_PREFIX + schema_name(resource)}}

    resources = store.resources()
    paths: Json = {}
    for resource in resources:
        paths |= _paths(resource, parameter, response)
    return {"swagger": "2.0", "info": _info(), "paths": paths, "definitions": _definitions(resources)}


def _as_v3(value: Any) -> Any:
    """A v2 schema in v3 form: references stand alone, so what stood beside one moves out of its way."""
    if isinstance(value, list):
        return [_as_v3(item) for item in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    if isinstance(reference, str):
        target = {"$ref": reference.replace(_V2_PREFIX, _V3_PREFIX)}
        beside = {key: _as_v3(item) for key, item in value.items() if key != "$ref"}
        return {**beside, "allOf": [target]} if beside else target
    return {key: _as_v3(item) for key, item in value.items()}


def v3(store: Store, group: str, version: str) -> Json | None:
    """The document of one group version, or None when it is not served."""
    resources = groups(store).get(group, {}).get(version)
    if resources is None:
        return None

    def parameter(name: str) -> Json:
        kind = "boolean" if name == "force" else "string"
        return {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}

    def response(resource: Resource) -> Json:
        content = {"schema": {"$ref": _V3_PREFIX + schema_name(resource)}}
        return {"description": "OK", "content": {"application/json": content}}

    paths: Json = {}
    for resource in resources:
        paths |= _paths(resource, parameter, response)
    schemas = {name: _as_v3(schema) for name, schema in _definitions(resources).items()}
    return {"openapi": "3.0.0", "info": _info(), "paths": paths, "components": {"schemas": schemas}}


def v3_index(store: Store) -> Json:
    """Where each group version's document is; the hash lets clients keep what they have read."""
    paths = {}
    for group, versions in groups(store).items():
        for version, resources in versions.items():
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={_digest(resources)}"}
    return {"paths": paths}


def _digest(resources: list[Resource]) -> str:
    """Changes when a kind comes, goes or gets another schema; built-in schemas never change."""
    facts = [
        (schema_name(resource), resource.plural, resource.custom.schema if resource.custom is not None else None)
        for resource in resources
    ]
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest().upper()
