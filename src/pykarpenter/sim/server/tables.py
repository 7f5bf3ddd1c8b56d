"""Objects as Tables: the rows and columns that kubectl prints without knowing a kind."""

from __future__ import annotations

from typing import Any

from pykarpenter.sim.server import json_path
from pykarpenter.sim.server.columns import COLUMNS, NAME, PLAIN, Column
from pykarpenter.sim.server.durations import age
from pykarpenter.sim.store import Entry, Resource
from pykarpenter.sim.store.entries import Json
from pykarpenter.sim.store.resources import PrinterColumn

_INCLUDES = ("None", "Metadata", "Object")


def _custom_column(column: PrinterColumn) -> Column:
    def cell(obj: Json, now: float) -> Any:
        try:
            found = [value for value in json_path.find(column.json_path, obj) if value is not None]
        except ValueError:
            return None
        if not found:
            return None
        if column.type == "date":
            return age(str(found[0]), now)
        if len(found) > 1 or column.type == "string":
            return " ".join(_text(value) for value in found)
        return found[0]

    return Column(column.name, cell, column.type, column.format, wide=column.priority > 0)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def columns_of(resource: Resource) -> tuple[Column, ...]:
    if resource.custom is None:
        return COLUMNS.get(resource.plural, PLAIN)
    if not resource.columns:
        return PLAIN
    return (NAME, *(_custom_column(column) for column in resource.columns))


def rows(resource: Resource, entries: list[Entry], now: float, include: str) -> list[Json]:
    columns = columns_of(resource)
    return [
        {"cells": [column.cell(entry.obj, now) for column in columns], "object": _included(entry, include)}
        for entry in entries
    ]


def _included(entry: Entry, include: str) -> Json | None:
    if include == "Object":
        return entry.obj
    if include == "None":
        return None
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": entry.metadata,
    }


def scale_table(scale: Json, now: float) -> Json:
    """The Table of one Scale, whatever kind it belongs to."""
    columns, meta = COLUMNS["scales"], scale["metadata"]
    row = {"cells": [column.cell(scale, now) for column in columns], "object": scale}
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": meta.get("resourceVersion", "")},
        "columnDefinitions": _headings(columns),
        "rows": [row],
    }


def _headings(columns: tuple[Column, ...]) -> list[Json]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.name,
            "priority": int(column.wide),
        }
        for column in columns
    ]


def table(
    resource: Resource, entries: list[Entry], meta: Json, now: float, include: str, *, heading: bool = True
) -> Json:
    """A Table; without the heading it is a further event of a watch."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": _headings(columns_of(resource)) if heading else None,
        "rows": rows(resource, entries, now, include if include in _INCLUDES else "Metadata"),
    }
