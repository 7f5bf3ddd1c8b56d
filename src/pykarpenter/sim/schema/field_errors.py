"""Refusals of single fields, in the words of an API server: path, kind of refusal, message."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

NO_PATH = "<nil>"
# Refusals after which CEL rules are not tried: they could trip over a value of the wrong shape.
BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)


@dataclass(frozen=True, slots=True)
class FieldError:
    path: str
    reason: str
    message: str

    @property
    def cause(self) -> dict[str, Any]:
        return {"reason": self.reason, "message": self.message, "field": self.path}

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def invalid_value(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {quoted(value)}: {detail}")


def invalid_whole(path: str, detail: str) -> FieldError:
    """An object or list that breaks a rule; its value is not repeated."""
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {detail}")


def type_invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, "FieldValueTypeInvalid", f"Invalid value: {quoted(value)}: {detail}")


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(path, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def forbidden_field(path: str, detail: str) -> FieldError:
    return FieldError(path, "FieldValueForbidden", f"Forbidden: {detail}")


def not_supported(path: str, value: Any, supported: list[Any]) -> FieldError:
    listed = ", ".join(quoted(choice if isinstance(choice, str) else quoted(choice)) for choice in supported)
    message = f"Unsupported value: {quoted(value)}: supported values: {listed}"
    return FieldError(path, "FieldValueNotSupported", message)


def too_long(path: str, maximum: int) -> FieldError:
    unit = "byte" if maximum == 1 else "bytes"
    return FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {maximum} {unit}")


def too_many(path: str, actual: int, maximum: int) -> FieldError:
    unit = "item" if maximum == 1 else "items"
    return FieldError(path, "FieldValueTooMany", f"Too many: {actual}: must have at most {maximum} {unit}")


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError(path, "FieldValueDuplicate", f"Duplicate value: {quoted(value)}")


def not_found_value(path: str, value: Any) -> FieldError:
    return FieldError(path, "FieldValueNotFound", f"Not found: {quoted(value)}")
