"""What the server itself decides about an object's metadata, generation and status on create and update.

Pure: old object and wanted object in, object to store out, or a refusal.
"""

from __future__ import annotations

import re
from typing import Any

from pykarpenter.sim.schema.field_errors import FieldError, forbidden_field, invalid_value, required
from pykarpenter.sim.store.entries import Json, with_metadata
from pykarpenter.sim.store.refusals import bad_request, conflict, invalid
from pykarpenter.sim.store.resources import Resource

# Set by the server alone: whatever a client sends is replaced.
_SERVER_OWNED = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")
_NOT_SPEC = frozenset({"apiVersion", "kind", "metadata", "status"})
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_NAME_PART_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
# RBAC names may hold anything a URL path segment can.
_PATH_SEGMENT_NAMES = frozenset({"roles", "rolebindings", "clusterroles", "clusterrolebindings"})


def check_type(resource: Resource, body: Any) -> Json:
    """The body as an object of this kind, apiVersion and kind filled in; raises BadRequest."""
    if not isinstance(body, dict):
        raise bad_request(f"expected an object of kind {resource.kind}, found {type(body).__name__}")
    kind, api_version = body.get("kind") or resource.kind, body.get("apiVersion") or resource.api_version
    if kind != resource.kind or api_version != resource.api_version:
        raise bad_request(
            f"{resource.kind} in version {resource.api_version!r} cannot be handled as a {kind} of {api_version}"
        )
    meta = body.get("metadata")
    if meta is None:
        meta = {}
    if not isinstance(meta, dict):
        raise bad_request("metadata: expected an object")
    return {"apiVersion": resource.api_version, "kind": resource.kind, **_without_type(body), "metadata": meta}


def _without_type(body: Json) -> Json:
    return {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}


def place_in_namespace(resource: Resource, obj: Json, namespace: str) -> Json:
    meta = obj["metadata"]
    found = meta.get("namespace", "")
    if not resource.namespaced:
        return with_metadata(obj, namespace=None) if "namespace" in meta else obj
    if not namespace and not found:
        raise bad_request("an empty namespace may not be set during creation")
    if namespace and found and namespace != found:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    return obj if found else with_metadata(obj, namespace=namespace)


def label_errors(path: str, labels: Any) -> list[FieldError]:
    """Refused label keys and values, at the path of the label map."""
    if not isinstance(labels, dict):
        return [invalid_value(path, labels, "must be an object")]
    errors = []
    for key, value in labels.items():
        if rule := qualified_name_problem(key):
            errors.append(invalid_value(path, key, rule))
        if rule := label_value_problem(value):
            errors.append(invalid_value(path, value, rule))
    return errors


def qualified_name_problem(key: Any) -> str:
    if not isinstance(key, str):
        return "must be a string"
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or len(prefix) > 253 or not SUBDOMAIN.fullmatch(prefix)):
        return f"prefix part {SUBDOMAIN_RULE}" if prefix else "prefix part must be non-empty"
    if not name:
        return "name part must be non-empty"
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    return "" if _QUALIFIED_NAME.fullmatch(name) else _NAME_PART_RULE


def label_value_problem(value: Any) -> str:
    if not isinstance(value, str):
        return "must be a string"
    if not value:
        return ""
    if len(value) > 63:
        return "must be no more than 63 bytes"
    return "" if _QUALIFIED_NAME.fullmatch(value) else _LABEL_VALUE_RULE


def metadata_errors(resource: Resource, meta: Json) -> list[FieldError]:
    """What an API server refuses in any object's metadata."""
    errors: list[FieldError] = []
    name = meta.get("name")
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    elif resource.plural not in _PATH_SEGMENT_NAMES:
        if len(name) > 253:
            errors.append(invalid_value("metadata.name", name, "must be no more than 253 characters"))
        if not SUBDOMAIN.fullmatch(name):
            errors.append(invalid_value("metadata.name", name, SUBDOMAIN_RULE))
        errors.extend(_namespace_name_errors(name) if resource.plural == "namespaces" else ())
    if labels := meta.get("labels"):
        errors.extend(label_errors("metadata.labels", labels))
    for key in meta.get("annotations") or ():
        if rule := qualified_name_problem(key.lower()):
            errors.append(invalid_value("metadata.annotations", key, rule))
    for reference in meta.get("ownerReferences") or ():
        # Without an index: the path is upstream's.
        errors.extend(_owner_errors("metadata.ownerReferences", reference))
    if sum(1 for reference in meta.get("ownerReferences") or () if reference.get("controller")) > 1:
        errors.append(
            invalid_value(
                "metadata.ownerReferences",
                meta["ownerReferences"],
                "Only one reference can have Controller set to true",
            )
        )
    return errors


def _namespace_name_errors(name: str) -> list[FieldError]:
    """A namespace is part of host names, one label of them."""
    details = ["must be no more than 63 characters"] if len(name) > 63 else []
    details += ["must not contain dots"] if "." in name else []
    return [invalid_value("metadata.name", name, detail) for detail in details]


def _owner_errors(path: str, reference: Json) -> list[FieldError]:
    errors = [
        invalid_value(f"{path}.{field}", "", "must not be empty")
        for field in ("kind", "name", "uid")
        if not reference.get(field)
    ]
    if not reference.get("apiVersion"):
        errors.insert(0, invalid_value(f"{path}.apiVersion", "", "version must not be empty"))
    return errors


def initial_status(resource: Resource, obj: Json) -> Json:
    """Status as it is on creation: kept, or replaced by the kind's initial one."""
    if not resource.has_status or resource.keeps_status_on_create:
        return obj
    rest = {key: value for key, value in obj.items() if key != "status"}
    return rest if resource.initial_status is None else {**rest, "status": resource.initial_status}


def merged_for_update(resource: Resource, wanted: Json, old: Json, subresource: str) -> Json:
    """The wanted object with everything restored that this kind of update may not change."""
    if subresource == "status":
        return _status_update(resource, wanted, old)
    if subresource == "resize":
        return {**old, "spec": wanted.get("spec") or {}}
    meta = _restored_metadata(wanted["metadata"], old["metadata"])
    obj = {**wanted, "metadata": meta}
    if resource.has_status:
        if "status" in old:
            obj["status"] = old["status"]
        else:
            obj.pop("status", None)
    return obj


def _status_update(resource: Resource, wanted: Json, old: Json) -> Json:
    obj = dict(old)
    if "status" in wanted:
        obj["status"] = wanted["status"]
    else:
        obj.pop("status", None)
    if resource.status_writes_metadata:
        obj["metadata"] = _restored_metadata(wanted["metadata"], old["metadata"])
        for field in ("ownerReferences", "finalizers"):
            if field in old["metadata"]:
                obj["metadata"][field] = old["metadata"][field]
            else:
                obj["metadata"].pop(field, None)
    elif "managedFields" in wanted["metadata"]:
        # Who owns the status is metadata, too.
        obj["metadata"] = {**old["metadata"], "managedFields": wanted["metadata"]["managedFields"]}
    return obj


def _restored_metadata(wanted: Json, old: Json) -> Json:
    meta = dict(wanted)
    for field in _SERVER_OWNED:
        if field in old:
            meta[field] = old[field]
        else:
            meta.pop(field, None)
    meta.setdefault("name", old["name"])
    meta.setdefault("uid", old["uid"])
    meta["resourceVersion"] = old["resourceVersion"]
    if "namespace" in old:
        meta.setdefault("namespace", old["namespace"])
    return meta


def check_lock(resource: Resource, wanted: Json, old: Json) -> None:
    """A resourceVersion in the wanted object must be the current one."""
    version = wanted["metadata"].get("resourceVersion")
    if version not in (None, "", "0") and version != old["metadata"]["resourceVersion"]:
        raise conflict(resource, old["metadata"]["name"])


def check_identity(resource: Resource, wanted: Json, old: Json) -> None:
    """Name, namespace and UID never change."""
    meta, was = wanted["metadata"], old["metadata"]
    name = was["name"]
    if meta.get("name", name) != name:
        raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
    if meta.get("namespace", was.get("namespace")) != was.get("namespace"):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if meta.get("uid", was["uid"]) != was["uid"]:
        raise invalid(resource, name, [invalid_value("metadata.uid", meta["uid"], "field is immutable")])


def check_finalizers(resource: Resource, obj: Json, old: Json) -> None:
    """While an object is being deleted finalizers may go, but none may come."""
    if "deletionTimestamp" not in old["metadata"]:
        return
    before = old["metadata"].get("finalizers") or []
    added = [item for item in obj["metadata"].get("finalizers") or [] if item not in before]
    if added:
        found = ", ".join(f'"{item}"' for item in added)
        detail = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{found}}}"
        )
        raise invalid(resource, old["metadata"]["name"], [forbidden_field("metadata.finalizers", detail)])


def spec_changed(obj: Json, old: Json) -> bool:
    """Whether anything besides metadata and status differs."""
    keys = [key for key in obj if key not in _NOT_SPEC]
    if any(key not in old or obj[key] != old[key] for key in keys):
        return True
    return any(key not in obj for key in old if key not in _NOT_SPEC)
