"""A KubeApi that only looks: every write is refused before it is sent, Events and Leases included."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NoReturn, TypeVar

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
from pykarpenter.kube.errors import Fenced

T = TypeVar("T")


class DryRunApi:
    """Reads pass; writes raise Fenced. The last line of defence: a dry run is not meant to try."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

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
        _refuse("create", kind.kind)

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
        _refuse("patch", kind.kind)

    async def delete(
        self, kind: Kind[Any], name: str, namespace: str = "", options: DeleteOptions | None = None
    ) -> None:
        _refuse("delete", kind.kind)

    async def evict(self, name: str, namespace: str, preconditions: Preconditions = NO_PRECONDITIONS) -> None:
        _refuse("evict", kinds.POD.kind)

    async def bind(self, pod_name: str, namespace: str, node_name: str) -> None:
        _refuse("bind", kinds.POD.kind)


def _refuse(verb: str, kind: str) -> NoReturn:
    raise Fenced(f"{verb} of {kind} not sent: this is a dry run")
