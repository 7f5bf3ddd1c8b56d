"""What is refused in the schema of a definition itself, so that later checks can rest on it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pykarpenter.sim.schema.field_errors import FieldError, invalid_value, not_supported, required
from pykarpenter.sim.schema.structural import INT_OR_STRING, PRESERVE, Schema

_TYPES = ["array", "boolean", "integer", "number", "object", "string"]


def schema_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    """Refusals in a schema whose own types are right."""
    kind = schema.get("type", "")
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    elif not kind and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        yield required(f"{path}.type", "must not be empty for specified object fields")
    if kind == "array" and not isinstance(schema.get("items"), dict):
        yield required(f"{path}.items", "must be specified")
    if (pattern := schema.get("pattern")) is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            yield invalid_value(f"{path}.pattern", pattern, f"must be a valid regular expression: {error}")
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        if not str(rule.get("rule") or "").strip():
            yield required(f"{path}.x-kubernetes-validations[{index}].rule", "rule is not specified")
    if schema.get("x-kubernetes-list-type") == "map" and not schema.get("x-kubernetes-list-map-keys"):
        yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
    for key, below in (schema.get("properties") or {}).items():
        yield from schema_errors(below, f"{path}.properties[{key}]")
    for key in ("items", "additionalProperties"):
        if isinstance(below := schema.get(key), dict):
            yield from schema_errors(below, f"{path}.{key}")
