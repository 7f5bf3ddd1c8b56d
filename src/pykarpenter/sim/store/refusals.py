"""The store's refusals in the API server's own words, so that people and programs recognise them."""

from __future__ import annotations

import json
from dataclasses import dataclass
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
from pykarpenter.sim.store.resources import Resource

_LOCK_MESSAGE = "the object has been modified; please apply your changes to the latest version and try again"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One refused field: its path, what kind of refusal, and the words."""

    path: str
    reason: str
    message: str

    @property
    def cause(self) -> dict[str, Any]:
        return {"reason": self.reason, "message": self.message, "field": self.path}

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def invalid_value(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {_quoted(value)}: {detail}")


def type_invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, "FieldValueTypeInvalid", f"Invalid value: {_quoted(value)}: {detail}")


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(path, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def forbidden_field(path: str, detail: str) -> FieldError:
    return FieldError(path, "FieldValueForbidden", f"Forbidden: {detail}")


def not_supported(path: str, value: Any, supported: list[str]) -> FieldError:
    listed = ", ".join(_quoted(choice) for choice in supported)
    return FieldError(
        path, "FieldValueNotSupported", f"Unsupported value: {_quoted(value)}: supported values: {listed}"
    )


def too_long(path: str, maximum: int) -> FieldError:
    return FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {maximum} bytes")


def too_many(path: str, actual: int, maximum: int) -> FieldError:
    return FieldError(path, "FieldValueTooMany", f"Too many: {actual}: must have at most {maximum} items")


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError(path, "FieldValueDuplicate", f"Duplicate value: {_quoted(value)}")


def not_found_value(path: str, value: Any) -> FieldError:
    return FieldError(path, "FieldValueNotFound", f"Not found: {_quoted(value)}")


def _with_details(error: ApiError, resource: Resource, name: str, **more: Any) -> ApiError:
    error.details = {"name": name, "group": resource.group, "kind": resource.plural, **more}
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


def no_such_resource() -> ApiError:
    return NotFound("the server could not find the requested resource")
