"""Defaults and pruning by a structural schema.

What the schema does not know is dropped, nulls that it does not allow are read as absent, and defaults are filled in
wherever their parent exists. A subtree that is the stored one, untouched, is returned as it is: it went through here
before.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
# Every object has these, whatever its schema says.
_ROOT_FIELDS = ("apiVersion", "kind", "metadata")


def shaped(schema: Schema, value: Any, old: Any, path: str, unknown: list[str]) -> Any:
    """The value with defaults, without unknown fields; their paths are added to `unknown`."""
    if value is old and value is not None:
        return value
    if isinstance(value, dict):
        return _shaped_object(schema, value, old if isinstance(old, dict) else {}, path, unknown)
    if isinstance(value, list):
        items = schema.get("items")
        if not items:
            return value
        before = old if isinstance(old, list) and len(old) == len(value) else [None] * len(value)
        return [
            shaped(items, item, was, f"{path}[{index}]", unknown)
            for index, (item, was) in enumerate(zip(value, before, strict=True))
        ]
    return value


def _shaped_object(schema: Schema, value: dict[str, Any], old: dict[str, Any], path: str, unknown: list[str]) -> Any:
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    keeps_unknown = schema.get(PRESERVE) or extra is True
    result: dict[str, Any] = {}
    for key, item in value.items():
        below = properties.get(key) or (extra if isinstance(extra, dict) else None)
        where = f"{path}.{key}" if path else key
        if not path and key in _ROOT_FIELDS:
            result[key] = item
        elif below is None:
            if keeps_unknown:
                result[key] = item
            else:
                unknown.append(where)
        elif item is not None or below.get("nullable"):
            result[key] = shaped(below, item, old.get(key), where, unknown)
    for key, below in properties.items():
        if key not in result and "default" in below:
            default = below["default"]
            # Defaults are shared between objects: nothing in the store is ever changed in place.
            result[key] = shaped(below, default, None, f"{path}.{key}" if path else key, unknown)
    return result
