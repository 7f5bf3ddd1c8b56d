"""Resource lists: what an API server refuses in requests, limits and capacities."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from pykarpenter.api.quantity import InvalidQuantity, parse_quantity
from pykarpenter.kube.errors import ApiError, BadRequest
from pykarpenter.sim.schema.field_errors import FieldError, forbidden_field, invalid_value, required
from pykarpenter.sim.store.entries import Json
from pykarpenter.sim.store.metadata import qualified_name_problem

_NATIVE = ("cpu", "memory", "ephemeral-storage", "storage", "pods")
_CONTAINER = ("cpu", "memory", "ephemeral-storage")
_HUGE = "hugepages-"
_BINARY = 1024
_BINARY_UNITS: tuple[str, ...] = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL_UNITS: tuple[str, ...] = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_SYNTAX = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def unreadable_quantity(kind: str, version: str, path: str, value: Any) -> ApiError:
    """A quantity that is no number fails before validation, while the object is being read."""
    # Upstream leaves path and value out; whoever has many containers needs them.
    return BadRequest(f'{kind} in version "{version}" cannot be handled as a {kind}: {path}: {value!r}: {_SYNTAX}')


def first_unreadable(path: str, quantities: Json | None) -> tuple[str, Any] | None:
    for name, value in (quantities or {}).items():
        try:
            parse_quantity(value)
        except InvalidQuantity:
            return f"{path}.{name}", value
    return None


def with_canonical_amounts(container: Json) -> Json:
    """A container whose requests and limits are written as an API server writes them."""
    resources = container.get("resources") or {}
    written = {
        field: {name: _canonical(value) for name, value in resources[field].items()}
        for field in ("limits", "requests")
        if resources.get(field)
    }
    if all(written[field] == resources[field] for field in written):
        return container
    return {**container, "resources": {**resources, **written}}


@lru_cache(maxsize=4096)
def _canonical(value: str | float) -> str:
    """The same amount without fraction and with the largest unit of its family; a text with an exponent stays."""
    text = str(value)
    suffix = text.lstrip("+-0123456789.")
    amount = parse_quantity(value)
    if suffix[:1] in ("e", "E") and suffix not in ("E", "Ei"):
        return text
    binary = suffix.endswith("i") and abs(amount) >= _BINARY and amount.denominator == 1
    step, units = (_BINARY, _BINARY_UNITS) if binary else (1000, _DECIMAL_UNITS)
    amount *= 1 if binary else 10**9
    number, place = math.ceil(amount), 0
    while number and number % step == 0 and place + 1 < len(units):
        number, place = number // step, place + 1
    return f"{number}{units[place]}" if number else "0"


def is_native(name: str) -> bool:
    return "/" not in name or name.rpartition("/")[0].endswith("kubernetes.io")


def negative_amounts(path: str, quantities: Json | None) -> Iterator[FieldError]:
    for name, value in (quantities or {}).items():
        if parse_quantity(value) < 0:
            yield invalid_value(f"{path}.{name}", str(value), "must be greater than or equal to 0")


def requirement_errors(path: str, resources: Json) -> Iterator[FieldError]:
    """Refusals in one container's requests and limits."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, quantities in (("limits", limits), ("requests", requests)):
        for name, value in quantities.items():
            where = f"{path}.{field}[{name}]"
            yield from _name_errors(where, name)
            if parse_quantity(value) < 0:
                yield invalid_value(where, str(value), "must be greater than or equal to 0")
            elif not is_native(name) and parse_quantity(value).denominator != 1:
                yield invalid_value(where, str(value), "must be an integer")
            elif name.startswith(_HUGE) and not _whole_pages(name, value):
                detail = f"{value} is not positive integer multiple of {name}"
                yield invalid_value(where, str(value), detail)
    for name, value in requests.items():
        limit = limits.get(name)
        exact = not is_native(name) or name.startswith(_HUGE)
        if limit is None:
            if exact:
                yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif exact and parse_quantity(value) != parse_quantity(limit):
            yield invalid_value(f"{path}.requests", str(value), f"must be equal to {name} limit of {limit}")
        elif parse_quantity(value) > parse_quantity(limit):
            yield invalid_value(
                f"{path}.requests", str(value), f"must be less than or equal to {name} limit of {limit}"
            )
    named = {*limits, *requests}
    if any(name.startswith(_HUGE) for name in named) and not named & {"cpu", "memory"}:
        yield forbidden_field(path, "HugePages require cpu or memory")


def _whole_pages(name: str, value: Any) -> bool:
    """Huge pages come whole."""
    size = first_unreadable("", {name: name.removeprefix(_HUGE)}) is None and parse_quantity(name.removeprefix(_HUGE))
    return not size or parse_quantity(value) % size == 0


def _name_errors(path: str, name: str) -> Iterator[FieldError]:
    if problem := qualified_name_problem(name):
        yield invalid_value(path, name, problem)
    elif "/" not in name and name not in _CONTAINER and not name.startswith(_HUGE):
        if name not in _NATIVE:
            yield invalid_value(path, name, "must be a standard resource type or fully qualified")
        yield invalid_value(path, name, "must be a standard resource for containers")
