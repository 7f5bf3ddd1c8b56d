"""The store's refusals in the API server's own words, so that people and programs recognise them."""

from __future__ import annotations

from typing import Any

from pykarpenter.kube.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
)
from pykarpenter.sim.schema.field_errors import FieldError
from pykarpenter.sim.store.resources import Resource

_LOCK_MESSAGE = "the object has been modified; please apply your changes to the latest version and try again"


def _with_details(error: ApiError, resource: Resource, name: str, **more: Any) -> ApiError:
    details = {"name": name, "group": resource.group, "kind": resource.plural, **more}
    error.details = {key: value for key, value in details.items() if value != ""}
    return error


def invalid(resource: Resource, name: str, errors: list[FieldError]) -> ApiError:
    words = [str(error) for error in errors]
    listed = words[0] if len(words) == 1 else f"[{', '.join(words)}]"
    error = Invalid(f'{resource.qualified_kind} "{name}" is invalid: {listed}')
    return _with_details(error, resource, name, kind=resource.kind, causes=[error.cause for error in errors])


def not_found(resource: Resource, name: str) -> ApiError:
    return _with_details(NotFound(f'{resource.qualified} "{name}" not found'), resource, name)


def already_exists(resource: Resource, name: str) -> ApiError:
    return _with_details(AlreadyExists(f'{resource.qualified} "{name}" already exists'), resource, name)


def conflict(resource: Resource, name: str, why: str = _LOCK_MESSAGE) -> ApiError:
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return _with_details(Conflict(message), resource, name)


def failed_precondition(resource: Resource, name: str, why: str) -> ApiError:
    """A delete meant for another state of the object; here the message names the kind, not the resource."""
    message = f'Operation cannot be fulfilled on {resource.qualified_kind} "{name}": {why}'
    return _with_details(Conflict(message), resource, name, kind=resource.kind)


def invalid_options(kind: str, error: FieldError) -> ApiError:
    refusal = Invalid(f'{kind}.meta.k8s.io "" is invalid: {error}')
    refusal.details = {"group": "meta.k8s.io", "kind": kind, "causes": [error.cause]}
    return refusal


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    return _with_details(Forbidden(f'{resource.qualified} "{name}" is forbidden: {why}'), resource, name)


def bad_request(message: str) -> ApiError:
    return BadRequest(message)


def expired_version(asked: int, oldest: int) -> ApiError:
    return Expired(f"too old resource version: {asked} ({oldest})")


def expired_continue(fresh_token: str) -> ApiError:
    error = Expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    error.details = {"continue": fresh_token}
    return error


def unsupported_patch() -> ApiError:
    return ApiError(
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        code=415,
        reason="UnsupportedMediaType",
    )


def no_such_resource() -> ApiError:
    return NotFound("the server could not find the requested resource")
