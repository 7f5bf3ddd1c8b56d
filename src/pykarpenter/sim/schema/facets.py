"""Validation by a structural schema: types, enums, patterns, bounds, required fields, list keys.

Messages and paths are those of an API server. A value that equals the stored one passes even if the schema has become
stricter since (ratcheting).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any

from pykarpenter.sim.schema.field_errors import (
    NO_PATH,
    FieldError,
    duplicate,
    invalid_value,
    not_supported,
    quoted,
    required,
    too_long,
    too_many,
    type_invalid,
)
from pykarpenter.sim.schema.structural import INT_OR_STRING, Schema

_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


@lru_cache(maxsize=512)
def _pattern(text: str) -> re.Pattern[str]:
    # RE2 and Python agree on what CRD patterns use, but for `$`, which in Python also matches before a final newline.
    return re.compile(re.sub(r"(?<!\\)\$", r"\\Z", text))


def json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _type_error(schema: Schema, value: Any, path: str) -> FieldError | None:
    found = json_type(value)
    if found == "number" and schema.get("type") == "integer" and "format" in schema:
        return type_invalid(path, "float64", f'{path} in body must be of type {schema["format"]}: "float64"')
    wanted: list[str] = ["integer", "string"] if schema.get(INT_OR_STRING) else [schema.get("type", "")]
    if wanted == [""]:
        return None
    if found in wanted or (found == "null" and schema.get("nullable")) or (found == "integer" and "number" in wanted):
        return None
    return type_invalid(path or NO_PATH, found, f'{path} in body must be of type {",".join(wanted)}: "{found}"')


def violations(schema: Schema, value: Any, old: Any, path: str = "") -> Iterator[FieldError]:
    """Everything in a value that the schema refuses."""
    if value is not None and (value is old or value == old):
        return
    wrong = _type_error(schema, value, path)
    if wrong is not None:
        yield wrong
        yield from _format_violations(schema, value, path)
        yield from _combined_violations(schema, value, path)
        return
    if value is None:
        return
    if "enum" in schema and value not in schema["enum"]:
        yield not_supported(path, value, schema["enum"])
    if isinstance(value, str):
        yield from _string_violations(schema, value, path)
    elif isinstance(value, dict):
        yield from _object_violations(schema, value, old if isinstance(old, dict) else {}, path)
    elif isinstance(value, list):
        yield from _list_violations(schema, value, old if isinstance(old, list) else [], path)
    elif not isinstance(value, bool):
        yield from _number_violations(schema, value, path)
    yield from _combined_violations(schema, value, path)


def _string_violations(schema: Schema, value: str, path: str) -> Iterator[FieldError]:
    """The first of length and pattern that is broken, as an API server tells it; a wrong format beside it."""
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if longest is not None and len(value) > longest:
        yield too_long(path, longest)
    elif shortest is not None and len(value) < shortest:
        yield invalid_value(path, value, f"{path} in body should be at least {shortest} chars long")
    elif pattern is not None and not _pattern(pattern).search(value):
        yield invalid_value(path, value, f"{path} in body should match '{pattern}'")
    if schema.get("format") == "date-time" and not _is_date_time(value):
        yield type_invalid(path, value, f"{path} in body must be of type date-time: {quoted(value)}")


def _is_date_time(text: str) -> bool:
    try:
        return "T" in text.upper() and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)


def _number_violations(schema: Schema, value: float, path: str) -> Iterator[FieldError]:
    if (low := schema.get("minimum")) is not None:
        if schema.get("exclusiveMinimum") and value <= low:
            yield invalid_value(path, value, f"{path} in body should be greater than {_plain(low)}")
        elif value < low:
            yield invalid_value(path, value, f"{path} in body should be greater than or equal to {_plain(low)}")
    if (high := schema.get("maximum")) is not None:
        if schema.get("exclusiveMaximum") and value >= high:
            yield invalid_value(path, value, f"{path} in body should be less than {_plain(high)}")
        elif value > high:
            yield invalid_value(path, value, f"{path} in body should be less than or equal to {_plain(high)}")
    if (factor := schema.get("multipleOf")) and value % factor:
        yield invalid_value(path, value, f"{path} in body should be a multiple of {_plain(factor)}")
    yield from _format_violations(schema, value, path)


def _format_violations(schema: Schema, value: Any, path: str) -> Iterator[FieldError]:
    """A number outside the range its format allows; the server says so without a path of its own."""
    bounds = _RANGES.get(schema.get("format", ""))
    if bounds is None or isinstance(value, bool) or not isinstance(value, int | float):
        return
    if not (bounds[0] <= value <= bounds[1] and float(value).is_integer()):
        detail = f"Checked value must be of type integer with format {schema['format']} in {path}"
        yield invalid_value(NO_PATH, "", detail)


def _object_violations(schema: Schema, value: Schema, old: Schema, path: str) -> Iterator[FieldError]:
    if (most := schema.get("maxProperties")) is not None and len(value) > most:
        yield too_many(path, len(value), most)
    if (least := schema.get("minProperties")) is not None and len(value) < least:
        yield invalid_value(path, len(value), f"{path} in body should have at least {least} properties")
    for key in schema.get("required") or ():
        if key not in value:
            yield required(f"{path}.{key}" if path else key)
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    for key, item in value.items():
        below = properties.get(key) or (extra if isinstance(extra, dict) else None)
        if below is not None and not (not path and key == "metadata"):
            yield from violations(below, item, old.get(key), f"{path}.{key}" if path else key)


def _list_violations(schema: Schema, value: list[Any], old: list[Any], path: str) -> Iterator[FieldError]:
    if (most := schema.get("maxItems")) is not None and len(value) > most:
        yield too_many(path, len(value), most)
    if (least := schema.get("minItems")) is not None and len(value) < least:
        yield invalid_value(path, len(value), f"{path} in body should have at least {least} items")
    if items := schema.get("items"):
        for index, item in enumerate(value):
            was = old[index] if index < len(old) else None
            yield from violations(items, item, was, f"{path}[{index}]")
    yield from _duplicate_items(schema, value, path)


def _duplicate_items(schema: Schema, value: list[Any], path: str) -> Iterator[FieldError]:
    """Lists that are sets, or maps by some of their keys, hold no two of the same."""
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or ()
    if kind not in ("set", "map"):
        return
    seen = []
    for index, item in enumerate(value):
        if kind == "map":
            item = {key: item[key] for key in keys if key in item} if isinstance(item, dict) else item
        if item in seen:
            yield duplicate(f"{path}[{index}]", item)
        seen.append(item)


def _combined_violations(schema: Schema, value: Any, path: str) -> Iterator[FieldError]:
    for part in schema.get("allOf") or ():
        yield from violations(part, value, None, path)
    if (choices := schema.get("anyOf")) and all(any(violations(part, value, None, path)) for part in choices):
        yield invalid_value(NO_PATH, "", f'"{path}" must validate at least one schema (anyOf)')
        yield from violations(choices[0], value, None, path)
    if choices := schema.get("oneOf"):
        valid = sum(not any(violations(part, value, None, path)) for part in choices)
        if valid != 1:
            found = "Found none valid" if not valid else f"Found {valid} valid alternatives"
            detail = f'"{path}" must validate one and only one schema (oneOf). {found}'
            yield invalid_value(NO_PATH, "", detail)
    if "not" in schema and not any(violations(schema["not"], value, None, path)):
        yield invalid_value(NO_PATH, "", f'"{path}" must not validate the schema (not)')
