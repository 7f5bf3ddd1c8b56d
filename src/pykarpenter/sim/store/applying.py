"""Server-side apply: a client states the fields it wants, and owns them from then on.

Fields that another manager owns are a conflict unless forced or wanted with the same value; fields that the client
stated before and no longer states go, unless somebody else owns them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pykarpenter.kube.errors import ApiError, Conflict
from pykarpenter.sim.schema.field_errors import required
from pykarpenter.sim.schema.kubernetes import Schema, items, member
from pykarpenter.sim.store.entries import Json
from pykarpenter.sim.store.fieldsets import (
    Path,
    differences,
    is_atomic_map,
    item_key,
    leaves,
    list_type,
    readable,
)
from pykarpenter.sim.store.ownership import Holding, Owner, Owners, merge_schema, read_owners, with_owners
from pykarpenter.sim.store.refusals import bad_request, invalid_options
from pykarpenter.sim.store.resources import Resource

# Who applies from the command line, and where it notes what it applied without the server's help.
_KUBECTL, _LAST_APPLIED = "kubectl", "kubectl.kubernetes.io/last-applied-configuration"


def check_config(config: Any, manager: str) -> None:
    """Refuses what cannot be applied at all; raises BadRequest."""
    if not isinstance(config, dict):
        raise bad_request("an apply configuration is an object")
    if not manager:
        raise invalid_options("PatchOptions", required("fieldManager", "is required for apply patch"))
    if (config.get("metadata") or {}).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if bool(config.get("apiVersion")) != bool(config.get("kind")):
        raise bad_request(f"invalid object type: {config.get('apiVersion') or '/'}, Kind={config.get('kind', '')}")


def applied(
    resource: Resource, config: Json, live: Json | None, manager: str, *, force: bool, subresource: str, timestamp: str
) -> Json:
    """The live object with a configuration applied; raises Conflict."""
    schema = merge_schema(resource)
    owner = Owner(manager, "Apply", resource.api_version, subresource)
    wanted = set(leaves(schema, config))
    if live is None:
        return with_owners(config, {owner: Holding(wanted, timestamp)})
    owners = read_owners(live)
    merged = _merged(schema, live, config)
    changed, _ = differences(leaves(schema, live), leaves(schema, merged))
    _settle_conflicts(owners, owner, changed, force, _applied_by_client(schema, live) if manager == _KUBECTL else set())
    before = owners.get(owner)
    if before is not None:
        held = set().union(*(holding.fields for other, holding in owners.items() if other != owner))
        merged = _pruned(schema, merged, before.fields - wanted - held)
    if before is None or before.fields != wanted:
        owners[owner] = Holding(wanted, timestamp)
    if manager == _KUBECTL and _last_applied(live):
        merged = _with_last_applied(merged, config)
    return with_owners(merged, owners)


def _last_applied(obj: Json) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(_LAST_APPLIED) or "")


def _applied_by_client(schema: Schema | None, live: Json) -> set[Path]:
    """The fields that kubectl applied before it turned to server-side apply: they are its own already."""
    try:
        config = msgspec.json.decode(_last_applied(live) or "{}")
    except msgspec.DecodeError:
        return set()
    return set(leaves(schema, config)) if isinstance(config, dict) else set()


def _with_last_applied(obj: Json, config: Json) -> Json:
    """The note that a later client-side apply starts from, kept up by server-side applies of kubectl."""
    meta = config.get("metadata") or {}
    annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key != _LAST_APPLIED}
    plain = {key: value for key, value in meta.items() if key != "annotations"}
    noted = {**config, "metadata": {**plain, **({"annotations": annotations} if annotations else {})}}
    text = msgspec.json.encode(noted, order="sorted").decode() + "\n"
    kept = {**(obj["metadata"].get("annotations") or {}), _LAST_APPLIED: text}
    return {**obj, "metadata": {**obj["metadata"], "annotations": kept}}


def _settle_conflicts(owners: Owners, owner: Owner, changed: set[Path], force: bool, own: set[Path]) -> None:
    conflicts = [
        (other, path)
        for other, holding in owners.items()
        if other != owner
        for path in sorted(holding.fields & changed)
    ]
    if not force and any(path not in own for _, path in conflicts):
        raise _conflict(conflicts)
    for other, path in conflicts:
        owners[other].fields.discard(path)


def _conflict(conflicts: list[tuple[Owner, Path]]) -> ApiError:
    """All fields in the way, by their managers."""
    by_manager: dict[str, list[str]] = {}
    for other, path in conflicts:
        by_manager.setdefault(_named(other), []).append(readable(path))
    if len(conflicts) == 1:
        other, path = conflicts[0]
        error = Conflict(f"Apply failed with 1 conflict: conflict with {_named(other)}: {readable(path)}")
    else:
        lines = [
            "\n".join([f"conflicts with {manager}:", *(f"- {field}" for field in by_manager[manager])])
            for manager in sorted(by_manager)
        ]
        error = Conflict(f"Apply failed with {len(conflicts)} conflicts: {chr(10).join(lines)}")
    error.details = {
        "causes": [
            {"reason": "FieldManagerConflict", "message": f"conflict with {_named(other)}", "field": readable(path)}
            for other, path in conflicts
        ]
    }
    return error


def _named(owner: Owner) -> str:
    """A manager as conflicts name it; one that wrote without applying also by its version."""
    name = f'"{owner.manager}"'
    if owner.subresource:
        name += f' with subresource "{owner.subresource}"'
    return f"{name} using {owner.api_version}" if owner.operation == "Update" else name


def _merged(schema: Schema | None, live: Any, config: Any) -> Any:
    if isinstance(config, dict) and isinstance(live, dict) and not is_atomic_map(schema):
        result = dict(live)
        for key, value in config.items():
            result[key] = _merged(member(schema, key), live.get(key), value)
        return result
    if isinstance(config, list) and isinstance(live, list) and list_type(schema) in ("map", "set"):
        return _merged_list(schema, live, config)
    return config


def _merged_list(schema: Schema | None, live: list[Any], config: list[Any]) -> list[Any]:
    result = list(live)
    at = {item_key(schema, item): index for index, item in enumerate(result)}
    for item in config:
        index = at.get(item_key(schema, item))
        if index is None:
            result.append(item)
        else:
            result[index] = _merged(items(schema), result[index], item)
    return result


def _pruned(schema: Schema | None, value: Any, gone: set[Path]) -> Any:
    """The object without the leaves at the given paths, and without containers that this empties."""
    if not gone:
        return value
    heads: dict[str, set[Path]] = {}
    for path in gone:
        heads.setdefault(path[0], set()).add(path[1:])
    if isinstance(value, dict):
        result = {}
        for key, item in value.items():
            below = heads.get(f"f:{key}")
            if below is None:
                result[key] = item
            elif () not in below:
                left = _pruned(member(schema, key), item, below)
                if left not in ({}, []) or item in ({}, []):
                    result[key] = left
        return result
    if isinstance(value, list):
        kept = []
        for item in value:
            below = heads.get(item_key(schema, item))
            if below is None:
                kept.append(item)
            elif () not in below:
                kept.append(_pruned(items(schema), item, below))
        return kept
    return value
