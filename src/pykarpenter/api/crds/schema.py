"""Small builders for structural OpenAPI schemas: what a CRD may say about a field, and nothing else.

Every builder takes the description first, because a field without one is of no use to `kubectl explain`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pykarpenter.api import patterns

Schema = dict[str, Any]


def rule(expression: str, message: str) -> Schema:
    """A CEL rule on the value `self`; with `oldSelf` in it, a rule about updates."""
    return {"rule": expression, "message": message}


def text(
    description: str,
    *,
    pattern: str | None = None,
    one_of: Sequence[str] | None = None,
    min_length: int | None = None,
    max_length: int | None = None,
    fmt: str | None = None,
    default: str | None = None,
    rules: Sequence[Schema] = (),
) -> Schema:
    return _schema(
        "string",
        description,
        pattern=pattern,
        enum=list(one_of) if one_of is not None else None,
        minLength=min_length,
        maxLength=max_length,
        format=fmt,
        default=default,
        rules=rules,
    )


def integer(
    description: str,
    *,
    fmt: str | None = "int64",
    minimum: int | None = None,
    maximum: int | None = None,
    default: int | None = None,
) -> Schema:
    return _schema("integer", description, format=fmt, minimum=minimum, maximum=maximum, default=default)


def struct(
    description: str,
    properties: Mapping[str, Schema],
    *,
    required: Sequence[str] = (),
    default: Any = None,
    rules: Sequence[Schema] = (),
) -> Schema:
    return _schema(
        "object",
        description,
        properties=dict(properties),
        required=sorted(required) or None,
        default=default,
        rules=rules,
    )


def array(
    description: str,
    items: Schema,
    *,
    max_items: int | None = None,
    list_type: str | None = "atomic",
    list_keys: Sequence[str] = (),
    default: Any = None,
) -> Schema:
    schema = _schema("array", description, items=items, maxItems=max_items, default=default)
    if list_type:
        schema["x-kubernetes-list-type"] = list_type
    if list_keys:
        schema["x-kubernetes-list-map-keys"] = list(list_keys)
    return schema


def mapping(
    description: str,
    values: Schema,
    *,
    max_properties: int | None = None,
    atomic: bool = False,
    rules: Sequence[Schema] = (),
) -> Schema:
    schema = _schema(
        "object", description, additionalProperties=values, maxProperties=max_properties, default=None, rules=rules
    )
    if atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def quantities(description: str, *, rules: Sequence[Schema] = ()) -> Schema:
    """A map of resource names to Kubernetes quantities, written as text or as an integer."""
    value = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": patterns.QUANTITY,
        "x-kubernetes-int-or-string": True,
    }
    return mapping(description, value, rules=rules)


def _schema(kind: str, description: str, *, rules: Sequence[Schema] = (), **facets: Any) -> Schema:
    schema: Schema = {"description": description, "type": kind}
    schema.update({name: value for name, value in facets.items() if value is not None})
    if rules:
        schema["x-kubernetes-validations"] = [dict(item) for item in rules]
    return schema
