"""Sets of field paths, as managedFields writes them: which leaves an object has, and which of them differ.

A path is a tuple of FieldsV1 keys: `f:name` for a member, `k:{...}` for an item of a keyed list, `v:...` for an item
of a set. What a schema calls atomic, and every list without a type, is one leaf.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pykarpenter.sim.schema.kubernetes import Schema, items, member, resolve
from pykarpenter.sim.store.entries import Json

Path = tuple[str, ...]
Leaves = dict[Path, Any]

# Defaults of list keys that clients may leave out.
_KEY_DEFAULTS = {"protocol": "TCP"}
_UNOWNED_ROOT = frozenset({"apiVersion", "kind"})
_UNOWNED_METADATA = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
    }
)


def list_type(schema: Schema | None) -> str:
    """`map`, `set` or `atomic`."""
    if schema is None:
        return "atomic"
    return str(schema.get("x-kubernetes-list-type") or resolve(schema).get("x-kubernetes-list-type") or "atomic")


def is_atomic_map(schema: Schema | None) -> bool:
    if schema is None:
        return False
    return "atomic" in (schema.get("x-kubernetes-map-type"), resolve(schema).get("x-kubernetes-map-type"))


def item_key(schema: Schema | None, item: Any) -> str:
    """The path element of one item of a keyed list or a set."""
    if list_type(schema) == "set" or not isinstance(item, dict):
        return f"v:{json.dumps(item, separators=(',', ':'))}"
    keys = {}
    for key in (schema or {}).get("x-kubernetes-list-map-keys") or ():
        value = item.get(key, _KEY_DEFAULTS.get(key))
        if value is not None:
            keys[key] = value
    return f"k:{json.dumps(keys, sort_keys=True, separators=(',', ':'))}"


def leaves(schema: Schema | None, obj: Json) -> Leaves:
    """Every ownable leaf of an object with its value; an item of a keyed list is itself a leaf, too."""
    found: Leaves = {}
    for key, value in obj.items():
        if key == "metadata":
            owned = {name: item for name, item in value.items() if name not in _UNOWNED_METADATA}
            if owned:
                _add(member(schema, key), owned, ("f:metadata",), found)
        elif key not in _UNOWNED_ROOT:
            _add(member(schema, key), value, (f"f:{key}",), found)
    return found


def _add(schema: Schema | None, value: Any, path: Path, found: Leaves) -> None:
    if isinstance(value, dict) and value and not is_atomic_map(schema):
        for key, item in value.items():
            _add(member(schema, key), item, (*path, f"f:{key}"), found)
        return
    kind = list_type(schema) if isinstance(value, list) else ""
    if kind in ("map", "set") and value:
        for item in value:
            element = (*path, item_key(schema, item))
            found[element] = None
            if kind == "map" and isinstance(item, dict):
                _add(items(schema), item, element, found)
        return
    found[path] = value


def differences(before: Leaves, after: Leaves) -> tuple[set[Path], set[Path]]:
    """Leaves added or changed, and leaves removed."""
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    return changed, {path for path in before if path not in after}


def to_fields_v1(paths: Iterable[Path]) -> Json:
    tree: Json = {}
    members = set(paths)
    for path in sorted(members):
        node = tree
        for part in path:
            node = node.setdefault(part, {})
    _mark(tree, (), members)
    return tree


def _mark(node: Json, path: Path, members: set[Path]) -> None:
    """A member with others below it is marked by a dot."""
    for part, below in list(node.items()):
        here = (*path, part)
        if below:
            _mark(below, here, members)
            if here in members:
                below["."] = {}


def from_fields_v1(tree: Json, path: Path = ()) -> set[Path]:
    found: set[Path] = set()
    for part, below in tree.items():
        if part == ".":
            found.add(path)
        elif below:
            found |= from_fields_v1(below, (*path, part))
        else:
            found.add((*path, part))
    return found


def readable(path: Path) -> str:
    """A path as conflicts name it: `.spec.containers[name="main"].image`."""
    text = ""
    for part in path:
        kind, _, rest = part.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            keys = ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(rest).items())
            text += f"[{keys}]"
        else:
            text += f"[={rest}]"
    return text
