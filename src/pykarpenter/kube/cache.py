"""What was last seen of one kind, by key and by index; one reflector writes it, everybody on the loop reads it.

A cache that is not `synced` knows nothing: a missing object then means unknown, not absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Change(Generic[T]):
    """An object went from `old` to `new`; no `old` is a creation, no `new` a deletion.

    `initial` is true for what the first list brought: not news, only the state found at start.
    """

    old: T | None
    new: T | None
    initial: bool = False


Handler = Callable[[Change[T]], None]
IndexKeys = Callable[[T], Iterable[str]]


def object_key(obj: Any) -> str:
    """`namespace/name`, or the bare name of a cluster-scoped object."""
    meta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else str(meta.name)


class Cache(Generic[T]):
    """Objects by key. Lists come sorted by key, so that nothing depends on the order of arrival."""

    def __init__(self, *, key: Callable[[T], str] = object_key, indexes: dict[str, IndexKeys[T]] | None = None) -> None:
        self.key_of = key
        self.synced = False
        # The server answers that there is no such kind: what is here may be old, and is kept all the same.
        self.served = True
        self._objects: dict[str, T] = {}
        self._sorted: list[str] | None = []
        self._index_keys: dict[str, IndexKeys[T]] = {}
        self._indexes: dict[str, dict[str, dict[str, None]]] = {}
        for name, keys in (indexes or {}).items():
            self.add_index(name, keys)

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    def get(self, key: str) -> T | None:
        return self._objects.get(key)

    def keys(self) -> list[str]:
        """All keys, sorted."""
        if self._sorted is None:
            self._sorted = sorted(self._objects)
        return list(self._sorted)

    def values(self) -> list[T]:
        """All objects, sorted by key."""
        if self._sorted is None:
            self._sorted = sorted(self._objects)
        objects = self._objects
        return [objects[key] for key in self._sorted]

    def add_index(self, name: str, keys: IndexKeys[T]) -> None:
        """Find objects by the values that `keys` gives for each; objects already present are indexed now."""
        self._index_keys[name] = keys
        self._indexes[name] = {}
        for key, obj in self._objects.items():
            self._index(name, keys, key, obj)

    def index(self, name: str, value: str) -> list[T]:
        """The objects that have `value` in the index, sorted by key; KeyError for an index that was never added."""
        found = self._indexes[name].get(value)
        return [self._objects[key] for key in sorted(found)] if found else []

    def put(self, key: str, obj: T) -> T | None:
        """Store the object; returns what was there before. Only the reflector calls this."""
        old = self._objects.get(key)
        if old is None:
            self._sorted = None
        else:
            self._unindex(key, old)
        self._objects[key] = obj
        for name, keys in self._index_keys.items():
            self._index(name, keys, key, obj)
        return old

    def remove(self, key: str) -> T | None:
        """Drop the object; returns what was there. Only the reflector calls this."""
        old = self._objects.pop(key, None)
        if old is not None:
            self._sorted = None
            self._unindex(key, old)
        return old

    def _index(self, name: str, keys: IndexKeys[T], key: str, obj: T) -> None:
        values = self._indexes[name]
        for value in keys(obj):
            values.setdefault(value, {})[key] = None

    def _unindex(self, key: str, obj: T) -> None:
        for name, keys in self._index_keys.items():
            values = self._indexes[name]
            for value in keys(obj):
                members = values.get(value)
                if members is not None:
                    members.pop(key, None)
                    if not members:
                        del values[value]
