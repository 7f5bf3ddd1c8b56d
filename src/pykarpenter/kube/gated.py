"""A KubeApi in front of another: reads pass, and every write goes through one gate that a subclass keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from pykarpenter.api import kinds
from pykarpenter.api.kinds import Kind
from pykarpenter.kube.contract import (
    EVERYTHING,
    NO_PRECONDITIONS,
    DeleteOptions,
    Json,
    KubeApi,
    Page,
    PatchType,
    Preconditions,
    Selection,
    WatchEvent,
)

T = TypeVar("T")


class GatedApi(ABC):
    """Satisfies `KubeApi`."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    @abstractmethod
    async def _write(self, verb: str, kind: str, send: Callable[[], Awaitable[T]]) -> T:
        """Send a write, or raise instead."""

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        return await self._api.get(kind, name, namespace)

    async def list_page(
        self,
        kind: Kind[T],
        selection: Selection = EVERYTHING,
        *,
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> Page[T]:
        return await self._api.list_page(
            kind, selection, limit=limit, continue_token=continue_token, resource_version=resource_version
        )

    def watch(
        self,
        kind: Kind[T],
        selection: Selection = EVERYTHING,
        *,
        resource_version: str = "",
        send_initial_events: bool = False,
        timeout_s: float = 0.0,
    ) -> AsyncIterator[WatchEvent[T]]:
        return self._api.watch(
            kind,
            selection,
            resource_version=resource_version,
            send_initial_events=send_initial_events,
            timeout_s=timeout_s,
        )

    async def create(self, kind: Kind[T], body: Json, namespace: str = "") -> T:
        return await self._write("create", kind.kind, lambda: self._api.create(kind, body, namespace))

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
        return await self._write(
            "patch",
            kind.kind,
            lambda: self._api.patch(kind, name, patch, namespace, patch_type=patch_type, subresource=subresource),
        )

    async def delete(
        self, kind: Kind[Any], name: str, namespace: str = "", options: DeleteOptions | None = None
    ) -> None:
        await self._write("delete", kind.kind, lambda: self._api.delete(kind, name, namespace, options))

    async def evict(self, name: str, namespace: str, preconditions: Preconditions = NO_PRECONDITIONS) -> None:
        await self._write("evict", kinds.POD.kind, lambda: self._api.evict(name, namespace, preconditions))

    async def bind(self, pod_name: str, namespace: str, node_name: str) -> None:
        await self._write("bind", kinds.POD.kind, lambda: self._api.bind(pod_name, namespace, node_name))
