"""The schemas of Kubernetes' built-in kinds: types, list keys and descriptions, from a bundled data file.

They say how patches merge lists, who can own which field, which fields are unknown and which values have the wrong
type. Loaded on first use.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

Schema = dict[str, Any]
Json = dict[str, Any]

DATA_FILE = files("pykarpenter.sim.schema") / "data" / "kubernetes.json.gz"
_PREFIX = "#/definitions/"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


@cache
def definitions() -> dict[str, Schema]:
    """All definitions by name, in OpenAPI v2 form. Shared: not to be changed."""
    with DATA_FILE.open("rb") as data:
        found: dict[str, Schema] = msgspec.json.decode(gzip.decompress(data.read()))
    return found


@cache
def _names() -> dict[tuple[str, str, str], str]:
    found = {}
    for name, definition in definitions().items():
        for kind in definition.get("x-kubernetes-group-version-kind") or ():
            found[(kind["group"], kind["version"], kind["kind"])] = name
    return found


def definition_name(group: str, version: str, kind: str) -> str | None:
    return _names().get((group, version, kind))


def root_schema(group: str, version: str, kind: str) -> Schema | None:
    """The schema of a built-in kind, or None."""
    name = definition_name(group, version, kind)
    return definitions()[name] if name is not None else None


def resolve(schema: Schema) -> Schema:
    """The schema a reference stands for; anything else stands for itself."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    return definitions()[reference.removeprefix(_PREFIX)]


def member(schema: Schema | None, key: str) -> Schema | None:
    """The schema of a member of an object, unresolved: list keys and patch strategies stand beside the reference."""
    if schema is None:
        return None
    schema = resolve(schema)
    found = (schema.get("properties") or {}).get(key)
    if found is not None:
        return found  # type: ignore[no-any-return]
    extra = schema.get("additionalProperties")
    return extra if isinstance(extra, dict) else None


def items(schema: Schema | None) -> Schema | None:
    return resolve(schema).get("items") if schema is not None else None


def unknown_fields(schema: Schema, value: Any, path: str = "") -> list[str]:
    """Paths of members that a kind does not have."""
    schema = resolve(schema)
    if isinstance(value, list):
        below = schema.get("items")
        if below is None:
            return []
        return [found for index, item in enumerate(value) for found in unknown_fields(below, item, f"{path}[{index}]")]
    if not isinstance(value, dict) or not (schema.get("properties") or schema.get("additionalProperties")):
        return []
    unknown: list[str] = []
    for key, item in value.items():
        below, where = member(schema, key), f"{path}.{key}" if path else key
        unknown += [where] if below is None else unknown_fields(below, item, where)
    return unknown


def without_fields(value: Any, paths: set[str], path: str = "") -> Any:
    """The value without the members at the given paths."""
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            where = f"{path}.{key}" if path else key
            if where not in paths:
                kept[key] = without_fields(item, paths, where)
        return kept
    if isinstance(value, list):
        return [without_fields(item, paths, f"{path}[{index}]") for index, item in enumerate(value)]
    return value


@cache
def _type_checker(name: str) -> Any:
    """A compiled check of types alone; what is required or allowed is each kind's own validation.

    By the fourth draft, in which 1.0 is no integer: an API server does not read it as one either.
    """
    import jsonschema_rs

    types = {key: _types_only(definition) for key, definition in definitions().items()}
    types[_QUANTITY] = {"type": ["string", "number"]}
    types[_INT_OR_STRING] = {"type": ["integer", "string"]}
    # Definitions leave these open, but a schema inside a schema must be one.
    nested = {"$ref": f"#/definitions/{_EXTENSIONS}.JSONSchemaProps"}
    types[f"{_EXTENSIONS}.JSONSchemaPropsOrArray"] = nested
    types[f"{_EXTENSIONS}.JSONSchemaPropsOrBool"] = {"anyOf": [nested, {"type": "boolean"}]}
    return jsonschema_rs.Draft4Validator({"$ref": f"#/definitions/{name}", "definitions": types})


def _types_only(schema: Schema) -> Schema:
    kept: Schema = {}
    for key in ("type", "$ref"):
        if key in schema:
            kept[key] = schema[key]
    if schema.get("type") == "integer" and (bounds := _RANGES.get(schema.get("format", ""))):
        kept["minimum"], kept["maximum"] = bounds
    if "properties" in schema:
        kept["properties"] = {key: _types_only(below) for key, below in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            kept[key] = _types_only(schema[key])
    return kept


def type_problem(group: str, version: str, kind: str, obj: Json) -> str:
    """What has the wrong type, as `path: found X, expected Y`, or nothing."""
    name = definition_name(group, version, kind)
    return _problem(name, obj) if name is not None else ""


def metadata_problem(meta: Json) -> str:
    """The same for the metadata of any object."""
    return _problem(_OBJECT_META, meta, ".metadata")


def _problem(name: str, value: Json, prefix: str = "") -> str:
    checker = _type_checker(name)
    if checker.is_valid(value):
        return ""
    for error in checker.iter_errors(value):
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
        return f"{(prefix + path).lstrip('.')}: {error.message}"
    return ""
