"""Strategic merge patches: like merge patches, but lists of keyed items merge item by item.

Which lists, and by which key, is in the schemas of the built-in kinds. Custom kinds have none: for them an API server
refuses this patch type.
"""

from __future__ import annotations

from typing import Any

from pykarpenter.sim.schema.kubernetes import Schema, items, member
from pykarpenter.sim.store.entries import Json
from pykarpenter.sim.store.refusals import bad_request

_DIRECTIVE = "$patch"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"
_SPECIAL = (_DIRECTIVE, _RETAIN)


def strategic_merge(schema: Schema | None, target: Any, patch: Json) -> Json:
    """The target with the patch merged in; raises BadRequest for a directive that makes no sense."""
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"invalid patch: unknown $patch directive {directive!r}")
    result = dict(target) if isinstance(target, dict) else {}
    if _RETAIN in patch:
        result = {key: value for key, value in result.items() if key in patch[_RETAIN]}
    for key, value in patch.items():
        if key in _SPECIAL or key.startswith(_ORDER):
            continue
        if key.startswith(_DELETE_PRIMITIVES):
            _delete_primitives(result, key.removeprefix(_DELETE_PRIMITIVES), value)
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = strategic_merge(member(schema, key), result.get(key), value)
        elif isinstance(value, list):
            result[key] = _merged_list(member(schema, key), result.get(key), value)
        else:
            result[key] = value
    for key, order in patch.items():
        if key.startswith(_ORDER):
            field = key.removeprefix(_ORDER)
            if field in result:
                result[field] = _ordered(member(schema, field), result[field], order)
    return result


def _delete_primitives(result: Json, field: str, gone: list[Any]) -> None:
    if field in result:
        result[field] = [item for item in result[field] if item not in gone]


def _merged_list(schema: Schema | None, target: Any, patch: list[Any]) -> list[Any]:
    strategy = str((schema or {}).get("x-kubernetes-patch-strategy", ""))
    if "merge" not in strategy.split(","):
        return patch
    current = list(target) if isinstance(target, list) else []
    key = (schema or {}).get("x-kubernetes-patch-merge-key")
    if key is None:
        return current + [item for item in patch if item not in current]
    return _merged_items(items(schema), key, current, patch)


def _merged_items(schema: Schema | None, key: str, current: list[Any], patch: list[Any]) -> list[Any]:
    if any(isinstance(change, dict) and change.get(_DIRECTIVE) == "replace" for change in patch):
        return [
            {name: value for name, value in change.items() if name != _DIRECTIVE}
            for change in patch
            if change != {_DIRECTIVE: "replace"}
        ]
    for change in patch:
        if not isinstance(change, dict) or key not in change:
            raise bad_request(f"map: {change} does not contain declared merge key: {key}")
        at = next((index for index, item in enumerate(current) if item.get(key) == change[key]), None)
        if change.get(_DIRECTIVE) == "delete":
            current = [item for item in current if item.get(key) != change[key]]
        elif at is None:
            current.append(strategic_merge(schema, None, change))
        else:
            current[at] = strategic_merge(schema, current[at], change)
    return current


def _ordered(schema: Schema | None, merged: list[Any], order: list[Any]) -> list[Any]:
    """The items the patch names in its order; the server's own stay behind the item they followed."""
    key = (schema or {}).get("x-kubernetes-patch-merge-key")

    def identity(item: Any) -> Any:
        return item.get(key) if key is not None and isinstance(item, dict) else item

    wanted = [identity(item) for item in order]
    groups: list[tuple[int, list[Any]]] = [(-1, [])]
    for item in merged:
        if identity(item) in wanted:
            groups.append((wanted.index(identity(item)), [item]))
        else:
            groups[-1][1].append(item)
    return [item for _, group in sorted(groups, key=lambda group: group[0]) for item in group]
