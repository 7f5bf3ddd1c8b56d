"""CustomResourceDefinitions at work: a stored definition serves its kind, a deleted one takes its objects along."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pykarpenter.sim.schema.custom import CustomSchema
from pykarpenter.sim.schema.definitions import schema_errors
from pykarpenter.sim.schema.field_errors import FieldError, invalid_value, required
from pykarpenter.sim.store.conditions import with_condition
from pykarpenter.sim.store.entries import Entry, Json
from pykarpenter.sim.store.requests import DeleteRequest
from pykarpenter.sim.store.resources import PrinterColumn, Resource, ScalePaths

if TYPE_CHECKING:
    from pykarpenter.sim.store.store import Store

_SCALE_PATHS = ("specReplicasPath", "statusReplicasPath")
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def admit(crd: Json) -> Json:
    """A definition with its names filled in."""
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    kind = names.get("kind", "")
    names = {"singular": kind.lower(), "listKind": f"{kind}List", **names}
    return {**crd, "spec": {"conversion": {"strategy": "None"}, **spec, "names": names}}


def errors(crd: Json) -> list[FieldError]:
    """What an API server refuses first in a definition."""
    spec = crd.get("spec") or {}
    found = [required(f"spec.{field}") for field in ("group", "scope") if not spec.get(field)]
    found += [required(f"spec.names.{field}") for field in ("plural", "kind") if not spec["names"].get(field)]
    if not found:
        wanted = f"{spec['names']['plural']}.{spec['group']}"
        if crd["metadata"].get("name") != wanted:
            detail = 'must be spec.names.plural+"."+spec.group'
            found.append(invalid_value("metadata.name", crd["metadata"].get("name"), detail))
    versions = spec.get("versions") or []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        found.append(invalid_value("spec.versions", [], "must have exactly one version marked as storage version"))
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        if not version.get("name"):
            found.append(required(f"{path}.name"))
        found.extend(_column_errors(version, path))
        scale = (version.get("subresources") or {}).get("scale")
        if scale is not None:
            where = f"{path}.subresources.scale"
            found += [required(f"{where}.{field}") for field in _SCALE_PATHS if not scale.get(field)]
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema:
            found.extend(schema_errors(schema, f"{path}.schema.openAPIV3Schema"))
        else:
            found.append(required(f"{path}.schema.openAPIV3Schema", "schemas are required"))
    return found


def _column_errors(version: Json, path: str) -> Iterator[FieldError]:
    for field, needed in (
        ("additionalPrinterColumns", ("name", "type", "jsonPath")),
        ("selectableFields", ("jsonPath",)),
    ):
        for index, item in enumerate(version.get(field) or ()):
            for member in needed:
                if not item.get(member):
                    yield required(f"{path}.{field}[{index}].{member}")


def served_resource(crd: Json) -> Resource:
    """The kind a definition serves, in its storage version."""
    spec = crd["spec"]
    names, version = spec["names"], next(item for item in spec["versions"] if item.get("storage"))
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    custom = CustomSchema(
        singular=names["singular"],
        list_kind=names["listKind"],
        schema=version["schema"]["openAPIV3Schema"],
        selectable_fields=tuple(item["jsonPath"].lstrip(".") for item in version.get("selectableFields") or ()),
    )
    return Resource(
        spec["group"],
        version["name"],
        names["kind"],
        names["plural"],
        spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        has_status="status" in subresources,
        tracks_generation=True,
        scale=_scale_paths(scale) if scale is not None else None,
        custom=custom,
        columns=tuple(_column(item) for item in version.get("additionalPrinterColumns") or ()),
    )


def _scale_paths(scale: Json) -> ScalePaths:
    return ScalePaths(scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath", ""))


def _column(item: Json) -> PrinterColumn:
    return PrinterColumn(
        item["name"],
        item["type"],
        item["jsonPath"],
        item.get("description", ""),
        item.get("format", ""),
        item.get("priority", 0),
    )


def _established(crd: Json, timestamp: str) -> Json:
    """The definition as the API server leaves it once the kind is served."""
    names = crd["spec"]["names"]
    stored = next(item["name"] for item in crd["spec"]["versions"] if item.get("storage"))
    status: dict[str, Any] = {
        **(crd.get("status") or {}),
        "acceptedNames": names,
        "storedVersions": [stored],
    }
    done = {**crd, "status": status}
    for condition_type, reason, message in (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ):
        condition = {"type": condition_type, "status": "True", "reason": reason, "message": message}
        done = with_condition(done, condition, timestamp)
    return done


def follow(store: Store, entry: Entry, removed: bool) -> None:
    """Serves, serves anew, or empties and stops serving the kind of a definition."""
    if removed:
        store.stop_serving(served_resource(entry.obj))
        return
    definitions = store.resource("apiextensions.k8s.io", "customresourcedefinitions")
    resource = served_resource(entry.obj)
    if "deletionTimestamp" in entry.metadata:
        if CLEANUP_FINALIZER in (entry.metadata.get("finalizers") or ()):
            _empty(store, resource)
            end_if_empty(store, resource)
        return
    store.serve(resource)
    done = _established(entry.obj, store.timestamp())
    finalizers = entry.metadata.get("finalizers") or []
    if CLEANUP_FINALIZER not in finalizers:
        done = {**done, "metadata": {**done["metadata"], "finalizers": [*finalizers, CLEANUP_FINALIZER]}}
    if done != entry.obj:
        store.store_as_is(definitions, done, entry)


def _empty(store: Store, resource: Resource) -> None:
    for entry in list(store.table(resource.group, resource.plural).entries.values()):
        meta = entry.metadata
        if "deletionTimestamp" not in meta:
            store.delete(resource, meta["name"], meta.get("namespace", ""), DeleteRequest(uid=meta["uid"]))


def end_if_empty(store: Store, resource: Resource) -> None:
    """Lets a deleted definition go when the last object of its kind is gone."""
    definitions = store.resource("apiextensions.k8s.io", "customresourcedefinitions")
    found = store.find(definitions, resource.qualified)
    if found is None or "deletionTimestamp" not in found.metadata:
        return
    if not store.table(resource.group, resource.plural).entries:
        store.remove_finalizer(definitions, found, CLEANUP_FINALIZER)
