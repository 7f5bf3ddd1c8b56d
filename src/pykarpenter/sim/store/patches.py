"""Patches as functions from an object to a new one; what a patch does not touch is shared, never changed."""

from __future__ import annotations

from typing import Any

from pykarpenter.kube.errors import ApiError, BadRequest, Invalid
from pykarpenter.sim.store.entries import Json, plain_copy


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: members replace, null removes, everything but objects is replaced whole."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge(result.get(key), value)
        else:
            result[key] = value
    return result


def apply_json_patch(target: Json, operations: list[Json]) -> Json:
    """RFC 6902; a failed test or a missing path is refused as an API server refuses it."""
    import jsonpatch
    import jsonpointer

    try:
        result: Json = jsonpatch.JsonPatch(operations).apply(plain_copy(target), in_place=True)
    except jsonpatch.InvalidJsonPatch as error:
        raise _rejected(error, BadRequest) from error
    except (jsonpointer.JsonPointerException, KeyError) as error:
        raise _rejected(_missing_place(target, operations), Invalid) from error
    except jsonpatch.JsonPatchTestFailed as error:
        raise _rejected(_failed_test(target, operations), Invalid) from error
    except jsonpatch.JsonPatchException as error:
        raise _rejected(error, Invalid) from error
    return result


def _failed_test(target: Json, operations: list[Json]) -> str:
    """The first test that fails, in the words of an API server."""
    return f"testing value {_culprit(target, operations).get('path')} failed: test failed"


def _missing_place(target: Json, operations: list[Json]) -> str:
    culprit = _culprit(target, operations)
    where = culprit.get("from") if culprit.get("op") in ("move", "copy") else culprit.get("path")
    return f"{culprit.get('op')} operation does not apply: {where} is missing"


def _culprit(target: Json, operations: list[Json]) -> Json:
    """The first operation that fails."""
    import jsonpatch
    import jsonpointer

    for count, operation in enumerate(operations, 1):
        try:
            jsonpatch.JsonPatch(operations[:count]).apply(plain_copy(target), in_place=True)
        except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, KeyError):
            return operation
    return operations[-1]


def _rejected(error: Exception | str, as_error: type[ApiError]) -> ApiError:
    return as_error(f"the server rejected our request due to an error in our request: {error}")
