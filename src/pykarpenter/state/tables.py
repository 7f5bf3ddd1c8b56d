"""Keyed objects that snapshots can share: handing out a frozen view costs nothing, the next change copies.

A snapshot may be read in another thread while changes come in, so a mapping that was handed out never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

T = TypeVar("T")


class Table(Generic[T]):
    """Objects by key, with frozen views."""

    def __init__(self) -> None:
        self._items: dict[str, T] = {}
        self._is_shared = False
        self._sorted: tuple[T, ...] | None = ()

    def put(self, key: str, item: T) -> None:
        self._own()
        self._items[key] = item

    def drop(self, key: str) -> T | None:
        if key not in self._items:
            return None
        self._own()
        return self._items.pop(key)

    def get(self, key: str) -> T | None:
        return self._items.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def __len__(self) -> int:
        return len(self._items)

    def frozen(self) -> Mapping[str, T]:
        """All objects by key; never changes afterwards."""
        self._is_shared = True
        return MappingProxyType(self._items)

    def values(self) -> tuple[T, ...]:
        """All objects ordered by key; the same tuple until something changes."""
        if self._sorted is None:
            self._sorted = tuple(self._items[key] for key in sorted(self._items))
        return self._sorted

    def _own(self) -> None:
        self._sorted = None
        if self._is_shared:
            self._items = dict(self._items)
            self._is_shared = False
