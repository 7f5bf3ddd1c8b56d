"""The embedded cluster as a `KubeApi`: the same contract as a real API server, without a network.

Calls decode what the store holds into wire types, once per version of an object, and share it between all readers.
Faults come in through middleware: a chain that sees every request before and after, and every watch event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pykarpenter.api.kinds import POD, Kind
from pykarpenter.kube.contract import (
    EVERYTHING,
    NO_PRECONDITIONS,
    DeleteOptions,
    Json,
    Page,
    PatchType,
    Preconditions,
    Selection,
    WatchEvent,
)
from pykarpenter.kube.errors import ApiError
from pykarpenter.sim.store import DeleteRequest, ListRequest, Resource, Store, WatchRequest, WriteOptions
from pykarpenter.sim.store.requests import PLAIN_WRITE
from pykarpenter.sim.store.watches import RawEvent

T = TypeVar("T")
R = TypeVar("R")

# Controllers apply what they decided, whoever wrote it before.
APPLYING = WriteOptions(field_manager="karpenter", force=True)
# An API server sends bookmarks about once a minute.
BOOKMARK_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """One call as middleware sees it. `verb` is get, list, watch, create, patch, delete, evict or bind."""

    client: str
    verb: str
    kind: Kind[Any]
    name: str = ""
    namespace: str = ""
    subresource: str = ""
    body: Any = None
    selection: Selection = EVERYTHING


class Middleware:
    """A place for faults. The default methods let everything pass; any of them may wait or raise an ApiError."""

    async def before(self, request: Request) -> None:
        """Runs before the store is asked: raising here means that nothing happened."""

    async def after(self, request: Request, error: ApiError | None) -> None:
        """Runs when the store has answered: raising here loses the answer of a write that did happen."""

    async def on_event(self, request: Request, event: WatchEvent[Any]) -> Sequence[WatchEvent[Any]]:
        """What the watcher gets instead of an event: it late, twice, not at all, or an ApiError."""
        return (event,)


class StoreApi:
    """A client of the store; `client` names it to middleware."""

    def __init__(self, store: Store, *, client: str = "", middleware: Sequence[Middleware] = ()) -> None:
        self._store = store
        self._client = client
        self.middleware: list[Middleware] = list(middleware)

    @property
    def store(self) -> Store:
        return self._store

    def _resource(self, kind: Kind[Any]) -> Resource:
        return self._store.resource(kind.group, kind.plural)

    async def _call(self, request: Callable[[], Request], action: Callable[[], R]) -> R:
        if not self.middleware:
            return action()
        return await self._guarded(request(), action)

    async def _guarded(self, request: Request, action: Callable[[], R]) -> R:
        for layer in self.middleware:
            await layer.before(request)
        error: ApiError | None = None
        result: R | None = None
        try:
            result = action()
        except ApiError as refused:
            error = refused
        for layer in reversed(self.middleware):
            await layer.after(request, error)
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        return await self._call(
            lambda: Request(self._client, "get", kind, name, namespace),
            lambda: self._store.get(self._resource(kind), name, namespace).decode(kind.type),
        )

    async def list_page(
        self,
        kind: Kind[T],
        selection: Selection = EVERYTHING,
        *,
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> Page[T]:
        def action() -> Page[T]:
            listing = self._store.list_page(
                self._resource(kind),
                ListRequest(
                    selection.namespace,
                    selection.label_selector,
                    selection.field_selector,
                    limit,
                    continue_token,
                    resource_version,
                ),
            )
            items = [entry.decode(kind.type) for entry in listing.entries]
            return Page(items, str(listing.rv), listing.continue_token)

        return await self._call(lambda: Request(self._client, "list", kind, selection=selection), action)

    async def create(self, kind: Kind[T], body: Json, namespace: str = "") -> T:
        def request() -> Request:
            return Request(self._client, "create", kind, body.get("metadata", {}).get("name", ""), namespace, "", body)

        return await self._call(
            request, lambda: self._store.create(self._resource(kind), body, namespace).decode(kind.type)
        )

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
        return await self._call(
            lambda: Request(self._client, "patch", kind, name, namespace, subresource, patch),
            lambda: self._store.patch(
                self._resource(kind),
                name,
                patch,
                namespace,
                patch_type=patch_type,
                subresource=subresource,
                options=APPLYING if patch_type is PatchType.APPLY else PLAIN_WRITE,
            ).decode(kind.type),
        )

    async def delete(
        self, kind: Kind[Any], name: str, namespace: str = "", options: DeleteOptions | None = None
    ) -> None:
        asked = options or DeleteOptions()
        request = DeleteRequest(
            asked.preconditions.uid, asked.preconditions.resource_version, asked.grace_period_s, asked.propagation
        )
        await self._call(
            lambda: Request(self._client, "delete", kind, name, namespace, "", asked),
            lambda: self._store.delete(self._resource(kind), name, namespace, request),
        )

    async def evict(self, name: str, namespace: str, preconditions: Preconditions = NO_PRECONDITIONS) -> None:
        await self._call(
            lambda: Request(self._client, "evict", POD, name, namespace, "eviction", preconditions),
            lambda: self._store.evict(
                name, namespace, DeleteRequest(preconditions.uid, preconditions.resource_version)
            ),
        )

    async def bind(self, pod_name: str, namespace: str, node_name: str) -> None:
        await self._call(
            lambda: Request(self._client, "bind", POD, pod_name, namespace, "binding", node_name),
            lambda: self._store.bind(pod_name, namespace, node_name),
        )

    async def watch(
        self,
        kind: Kind[T],
        selection: Selection = EVERYTHING,
        *,
        resource_version: str = "",
        send_initial_events: bool = False,
        timeout_s: float = 0.0,
    ) -> AsyncIterator[WatchEvent[T]]:
        """Changes in the order they were written; a bookmark once a minute; ends after `timeout_s`."""
        request = Request(self._client, "watch", kind, selection=selection)
        for layer in self.middleware:
            await layer.before(request)
        watch = self._store.watch(
            self._resource(kind),
            WatchRequest(
                selection.namespace,
                selection.label_selector,
                selection.field_selector,
                resource_version,
                send_initial_events,
            ),
        )
        bell = WatchBell(timeout_s)
        watch.on_ready = bell.ring
        try:
            bookmark_due = False
            while True:
                ready = watch.poll()
                if bookmark_due:
                    # Made in the same breath as the poll, so that no unread change lies before it.
                    ready.append(watch.bookmark(self._store.rv))
                for raw in ready:
                    async for event in self._delivered(request, _typed(raw, kind)):
                        yield event
                if bell.is_over():
                    return
                bookmark_due = not await bell.wait()
        finally:
            watch.close()
            bell.close()

    async def _delivered(self, request: Request, event: WatchEvent[T]) -> AsyncIterator[WatchEvent[T]]:
        events: Sequence[WatchEvent[T]] = (event,)
        for layer in self.middleware:
            passed: list[WatchEvent[T]] = []
            for each in events:
                passed.extend(await layer.on_event(request, each))
            events = passed
        for each in events:
            yield each


def _typed(raw: RawEvent, kind: Kind[T]) -> WatchEvent[T]:
    found = raw.entry.decode(kind.type) if raw.entry is not None else None
    return WatchEvent(raw.type, str(raw.rv), found, raw.initial_events_end)


class WatchBell:
    """Wakes a waiting watch: rung by the store, by the bookmark timer or by the end of the watch."""

    def __init__(self, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[bool] | None = None
        self._rung = False
        self._ends_at = self._loop.time() + timeout_s if timeout_s > 0 else None
        self._timer: asyncio.TimerHandle | None = None

    def ring(self) -> None:
        self._rung = True
        self._wake(True)

    def _wake(self, rung: bool) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(rung)

    def is_over(self) -> bool:
        return self._ends_at is not None and self._loop.time() >= self._ends_at

    def end(self) -> None:
        """Makes the watch over at once."""
        self._ends_at = self._loop.time()
        self.ring()

    async def wait(self) -> bool:
        """True when there is something to read (or the watch is over), False when a bookmark is due."""
        if not self._rung:
            due = self._loop.time() + BOOKMARK_INTERVAL_S
            ends = self._ends_at is not None and self._ends_at <= due
            self._waiting = self._loop.create_future()
            self._timer = self._loop.call_at(self._ends_at if ends and self._ends_at else due, self._wake, ends)
            try:
                rung = await self._waiting
            finally:
                self._timer.cancel()
                self._waiting = None
        else:
            rung = True
        self._rung = False
        return rung

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
