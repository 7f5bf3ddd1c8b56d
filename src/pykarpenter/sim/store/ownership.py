"""Who owns which field: the managedFields of an object, kept through applies and other writes.

Tracking costs a walk over the object, so it begins with the first write that names a manager: kubectl and every client
of the served cluster do, the embedded controllers do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykarpenter.sim.schema.kubernetes import Schema, root_schema
from pykarpenter.sim.store.entries import Json, with_metadata
from pykarpenter.sim.store.fieldsets import Path, differences, from_fields_v1, leaves, to_fields_v1
from pykarpenter.sim.store.resources import Resource

_OBJECT_META = {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}


@dataclass(frozen=True, slots=True)
class Owner:
    """A manager in one role: applying or updating, the object or a subresource."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""


@dataclass(slots=True)
class Holding:
    fields: set[Path]
    time: str


Owners = dict[Owner, Holding]


def merge_schema(resource: Resource) -> Schema | None:
    """The schema that says how a kind's lists and maps merge."""
    if resource.custom is None:
        return root_schema(resource.group, resource.version, resource.kind)
    properties = resource.custom.schema.get("properties") or {}
    return {**resource.custom.schema, "properties": {**properties, "metadata": _OBJECT_META}}


def read_owners(obj: Json) -> Owners:
    owners: Owners = {}
    for entry in obj["metadata"].get("managedFields") or ():
        if entry.get("manager"):
            owner = Owner(
                entry["manager"],
                entry.get("operation", "Update"),
                entry.get("apiVersion", ""),
                entry.get("subresource", ""),
            )
            owners[owner] = Holding(from_fields_v1(entry.get("fieldsV1") or {}), entry.get("time", ""))
    return owners


def _written(owners: Owners) -> list[Json]:
    entries = []
    for owner, holding in owners.items():
        if not holding.fields:
            continue
        entry: Json = {
            "manager": owner.manager,
            "operation": owner.operation,
            "apiVersion": owner.api_version,
            "time": holding.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(holding.fields),
        }
        if owner.subresource:
            entry["subresource"] = owner.subresource
        entries.append(entry)
    return entries


def with_owners(obj: Json, owners: Owners) -> Json:
    """The object with these owners written; unchanged holdings keep their time and make no difference."""
    entries = _written(owners)
    if entries == (obj["metadata"].get("managedFields") or []):
        return obj
    return with_metadata(obj, managedFields=entries) if entries else _without(obj)


def _without(obj: Json) -> Json:
    return with_metadata(obj, managedFields=None) if "managedFields" in obj["metadata"] else obj


def track(resource: Resource, obj: Json, old: Json | None, manager: str, subresource: str, timestamp: str) -> Json:
    """The object after a write that was not an apply: changed fields go over to the writer."""
    before: Any = old["metadata"].get("managedFields") if old is not None else None
    if old is not None and obj["metadata"].get("managedFields") != before:
        # A client that edits the entries themselves knows what it does; `[{}]` clears them.
        edited = [entry for entry in obj["metadata"].get("managedFields") or () if entry.get("manager")]
        return with_metadata(obj, managedFields=edited) if edited else _without(obj)
    if old is None:
        obj = _without(obj)
    if not manager and not before:
        return obj
    schema = merge_schema(resource)
    changed, removed = differences(leaves(schema, old) if old is not None else {}, leaves(schema, obj))
    if not changed and not removed:
        return obj
    owners = read_owners(obj)
    writer = Owner(manager, "Update", resource.api_version, subresource)
    for owner, holding in owners.items():
        if owner != writer:
            holding.fields -= changed | removed
    if manager:
        held = owners.setdefault(writer, Holding(set(), timestamp))
        fields = (held.fields | changed) - removed
        if fields != held.fields:
            held.fields, held.time = fields, timestamp
    return with_owners(obj, owners)
