"""The small contract through which every controller talks to a cluster, real or embedded.

Implementations: `kube.client` (HTTPS to a real API server) and `sim.api` (the in-process store). Reads decode into
subset types, so nothing here takes such an object back: writes are bodies of plain JSON values and patches.
All errors are `kube.errors.ApiError`s.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from pykarpenter.api.kinds import Kind

T = TypeVar("T")
Json = dict[str, Any]


class PatchType(StrEnum):
    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list; `continue_token` is empty on the last.

    `quarantined` are the keys of objects that exist but could not be decoded: unknown, not absent.
    """

    items: list[T]
    resource_version: str
    continue_token: str = ""
    quarantined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """`ADDED`, `MODIFIED`, `DELETED` with the object, or `BOOKMARK` with only a version.

    `initial_events_end` marks the bookmark that closes a streaming list. An object that could not be decoded comes
    as its `key` alone.
    """

    type: str
    resource_version: str
    object: T | None = None
    initial_events_end: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects a list or watch asks for."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class Preconditions:
    """What must still be true on the server for a delete or an eviction to happen."""

    uid: str | None = None
    resource_version: str | None = None


NO_PRECONDITIONS = Preconditions()


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    preconditions: Preconditions = field(default_factory=lambda: NO_PRECONDITIONS)
    grace_period_s: int | None = None
    propagation: str | None = None


class KubeApi(Protocol):
    """An API server. Every call may raise ApiError; a ServerFault says nothing about the outcome."""

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T: ...

    async def list_page(
        self,
        kind: Kind[T],
        selection: Selection = EVERYTHING,
        *,
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> Page[T]: ...

    def watch(
        self,
        kind: Kind[T],
        selection: Selection = EVERYTHING,
        *,
        resource_version: str = "",
        send_initial_events: bool = False,
        timeout_s: float = 0.0,
    ) -> AsyncIterator[WatchEvent[T]]:
        """A stream of changes after `resource_version`; ends when the server closes it, raises Expired on 410."""
        ...

    async def create(self, kind: Kind[T], body: Json, namespace: str = "") -> T: ...

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        patch: Json | list[Json],
        namespace: str = "",
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
    ) -> T:
        """Optimistic locking: put `metadata.resourceVersion` into a merge patch; a stale one is a Conflict.

        Another `metadata.uid` is refused too, but as Invalid: no field of an identity can be changed.
        """
        ...

    async def delete(
        self, kind: Kind[Any], name: str, namespace: str = "", options: DeleteOptions | None = None
    ) -> None: ...

    async def evict(self, name: str, namespace: str, preconditions: Preconditions = NO_PRECONDITIONS) -> None: ...

    async def bind(self, pod_name: str, namespace: str, node_name: str) -> None: ...


async def list_all(api: KubeApi, kind: Kind[T], selection: Selection = EVERYTHING, page_size: int = 500) -> list[T]:
    """Every object of a selection, page by page."""
    items: list[T] = []
    token = ""
    while True:
        page = await api.list_page(kind, selection, limit=page_size, continue_token=token)
        items.extend(page.items)
        token = page.continue_token
        if not token:
            return items
