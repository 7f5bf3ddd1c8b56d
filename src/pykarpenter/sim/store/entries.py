"""One version of one object, and the small edits the store makes to objects without changing them in place."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
Json = dict[str, Any]

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Entry:
    """An object at one resourceVersion. Its typed and encoded forms are made once and shared by all readers."""

    __slots__ = ("_encoded", "_typed", "obj", "rv")

    def __init__(self, obj: Json, rv: int) -> None:
        self.obj = obj
        self.rv = rv
        self._typed: Any = None
        self._encoded: bytes | None = None

    def decode(self, wire_type: type[T]) -> T:
        """The object as a wire type."""
        typed = self._typed
        if type(typed) is not wire_type:
            typed = self._typed = msgspec.convert(self.obj, wire_type)
        return typed

    def encoded(self) -> bytes:
        """The object as JSON."""
        if self._encoded is None:
            self._encoded = encode(self.obj)
        return self._encoded

    @property
    def metadata(self) -> Json:
        return self.obj["metadata"]  # type: ignore[no-any-return]


def plain_copy(body: Any) -> Any:
    """A private copy of a request body as JSON values, whatever the caller does to his own afterwards."""
    return _decode(encode(body))


def without_nulls(value: Any) -> Any:
    """The value without null members: a typed API server reads null as absent. Parts without any stay shared."""
    if isinstance(value, dict):
        kept = {key: without_nulls(item) for key, item in value.items() if item is not None}
        same = len(kept) == len(value) and all(item is value[key] for key, item in kept.items())
        return value if same else kept
    if isinstance(value, list):
        items = [without_nulls(item) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def has_nulls(body: Any) -> bool:
    return b"null" in encode(body)


def with_metadata(obj: Json, **changes: Any) -> Json:
    """The object with some metadata fields set, or dropped when None."""
    meta = {**obj["metadata"], **changes}
    for key, value in changes.items():
        if value is None:
            del meta[key]
    return {**obj, "metadata": meta}


def object_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def lookup(obj: Any, path: tuple[str, ...]) -> Any:
    """The value at a path of members, or None."""
    for part in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(part)
    return obj
