"""The last gate before a write: only the holder of the lease writes, and never for longer than it holds it.

The lease is checked when the request is sent, not when the decision was made: a paused or blocked process wakes up
with plans that another leader may already have replaced (F19, F20). The request gets a time-out below what is left of
the lease, so its effect cannot come after a successor took over. Reads, Events and Leases pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeVar

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
from pykarpenter.kube.deadline import at_most
from pykarpenter.kube.errors import Fenced, ServerFault
from pykarpenter.kube.observer import IGNORE_KUBE, KubeObserver

T = TypeVar("T")

# Kept free at the end of the lease for the answer to travel and for clocks that run at different speeds.
MARGIN_S = 1.0
_UNFENCED = (kinds.EVENT.kind, kinds.LEASE.kind)


class LeaseHolder(Protocol):
    def holds_lease(self) -> bool: ...

    def remaining_s(self) -> float:
        """Seconds until another process may take the lease."""
        ...


class FencedApi:
    """A KubeApi whose writes need the lease; raises Fenced without sending when it is not held."""

    def __init__(self, api: KubeApi, lease: LeaseHolder, observer: KubeObserver = IGNORE_KUBE) -> None:
        self._api = api
        self._lease = lease
        self._observer = observer

    async def _write(self, verb: str, kind: str, send: Callable[[], Awaitable[T]]) -> T:
        if kind in _UNFENCED:
            return await send()
        left = self._lease.remaining_s() - MARGIN_S
        if not self._lease.holds_lease() or left <= 0:
            self._observer.fenced(verb, kind)
            raise Fenced(f"{verb} of {kind} not sent: the leader lease is not held long enough to see it through")
        try:
            with at_most(left):
                async with asyncio.timeout(left):
                    return await send()
        except TimeoutError as error:
            raise ServerFault(f"{verb} of {kind} outlived the leader lease; its outcome is unknown") from error

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
