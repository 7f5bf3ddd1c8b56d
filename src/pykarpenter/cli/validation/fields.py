"""Field paths of objects: what stands at a path, and which fields a schema knows there."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from typing import Any

_INDEX = re.compile(r"\[(\d+)\]")
ABSENT = object()


def value_at(body: Any, path: str) -> Any:
    """The value at a path such as `spec.requirements[1].key`; ABSENT when there is none.

    Keys of maps may contain dots and slashes themselves, so the longest key that fits is taken.
    """
    if not path:
        return body
    if isinstance(body, list):
        match = _INDEX.match(path)
        if match is None or int(match.group(1)) >= len(body):
            return ABSENT
        return value_at(body[int(match.group(1))], path[match.end() :].removeprefix("."))
    if not isinstance(body, dict):
        return ABSENT
    for key in sorted((key for key in body if isinstance(key, str)), key=len, reverse=True):
        rest = path.removeprefix(key)
        if path.startswith(key) and (not rest or rest[0] in ".["):
            found = value_at(body[key], rest.removeprefix("."))
            if found is not ABSENT:
                return found
    return ABSENT


def known_fields(schema: dict[str, Any], path: str) -> list[str]:
    """The fields that a schema has beside the one at the path."""
    place = schema
    for part in _INDEX.sub(".[]", path).split(".")[:-1]:
        place = place.get("items", {}) if part == "[]" else place.get("properties", {}).get(part, {})
    return sorted(place.get("properties", {}))


def overlaps(left: str, right: str) -> bool:
    """Whether two paths name the same place, or one lies within the other; everything lies within `spec`."""
    short, long = sorted((left, right), key=len)
    if len(long) == len(short):
        return long == short
    return short != "spec" and long.startswith(short) and long[len(short)] in ".["


def without(body: dict[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """A copy of the object without the fields at the paths; items of lists stay, so that indexes do not move."""
    result = copy.deepcopy(body)
    for path in paths:
        parent, name = value_at(result, path.rpartition(".")[0]), path.rpartition(".")[2]
        if isinstance(parent, dict):
            parent.pop(name, None)
    return result
