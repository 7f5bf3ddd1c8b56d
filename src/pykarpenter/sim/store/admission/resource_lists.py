"""Resource lists: what an API server refuses in requests, limits and capacities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykarpenter.api.quantity import InvalidQuantity, parse_quantity
from pykarpenter.kube.errors import ApiError, BadRequest
from pykarpenter.sim.schema.field_errors import FieldError, invalid_value, required
from pykarpenter.sim.store.entries import Json
from pykarpenter.sim.store.metadata import qualified_name_problem

_NATIVE = ("cpu", "memory", "ephemeral-storage", "storage", "pods")
_CONTAINER = ("cpu", "memory", "ephemeral-storage")
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
    for name, value in requests.items():
        limit = limits.get(name)
        exact = not is_native(name) or name.startswith("hugepages-")
        if limit is None:
            if exact:
                yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif exact and parse_quantity(value) != parse_quantity(limit):
            yield invalid_value(f"{path}.requests", str(value), f"must be equal to {name} limit of {limit}")
        elif parse_quantity(value) > parse_quantity(limit):
            yield invalid_value(
                f"{path}.requests", str(value), f"must be less than or equal to {name} limit of {limit}"
            )


def _name_errors(path: str, name: str) -> Iterator[FieldError]:
    if problem := qualified_name_problem(name):
        yield invalid_value(path, name, problem)
    elif "/" not in name and name not in _CONTAINER and not name.startswith("hugepages-"):
        if name not in _NATIVE:
            yield invalid_value(path, name, "must be a standard resource type or fully qualified")
        yield invalid_value(path, name, "must be a standard resource for containers")
