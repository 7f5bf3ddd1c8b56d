"""Keeps a cache equal to what an API server holds of one kind, and tells handlers every difference.

One cycle is a list (streamed where served, else pages) followed by a watch. A watch that ends resumes from the last
version; a version that expired means a new list whose difference to the cache is told, deletions included (F16); a
watch that says nothing, not even a bookmark, is dropped and resumed (F15). Failures wait longer each time, with
jitter. An unreachable server changes nothing in the cache: unknown is not absent (S12, F23).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing
from typing import Any, Generic, TypeVar

from pykarpenter.api.kinds import Kind
from pykarpenter.api.timestamps import parse_timestamp
from pykarpenter.kube.cache import Cache, Change, Handler
from pykarpenter.kube.contract import EVERYTHING, KubeApi, Selection, WatchEvent
from pykarpenter.kube.errors import ApiError, BadRequest, Expired, Invalid, NotFound, TooManyRequests
from pykarpenter.kube.observer import IGNORE_KUBE, KubeObserver
from pykarpenter.kube.silence import InactivityTimeout
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.garbage import GarbagePause
from pykarpenter.runtime.limits import ExponentialBackoff
from pykarpenter.runtime.logs import get_logger

T = TypeVar("T")

PAGE_SIZE = 500
# API servers send a bookmark about once a minute; a quarter minute of grace keeps F15 within its 90 s.
INACTIVITY_S = 75.0
# Between 5 and 10 minutes, as other clients ask: long enough to be cheap, short enough to rebalance.
WATCH_TIMEOUT_S = 300.0
_BACKOFF_S = (0.8, 30.0)
# Handlers run on the loop: after this many changes others get a turn.
_CHUNK = 200


class Reflector(Generic[T]):
    def __init__(
        self,
        api: KubeApi,
        kind: Kind[T],
        cache: Cache[T],
        *,
        clock: Clock,
        selection: Selection = EVERYTHING,
        handlers: Sequence[Handler[T]] = (),
        chance: Callable[[], float] | None = None,
        observer: KubeObserver = IGNORE_KUBE,
        garbage: GarbagePause | None = None,
        inactivity_s: float = INACTIVITY_S,
    ) -> None:
        """`chance` gives numbers in [0, 1) for jitter; without it a generator seeded by the kind, so runs repeat."""
        self.kind = kind
        self.cache = cache
        self._api = api
        self._clock = clock
        self._selection = selection
        self._handlers = list(handlers)
        self._chance = chance or random.Random(kind.plural).random
        self._observer = observer
        self._garbage = garbage
        self._inactivity_s = inactivity_s
        self._version: str | None = None
        self._streams_lists = True
        self._progressed = False
        self._backoff = ExponentialBackoff(*_BACKOFF_S)
        self._synced = asyncio.Event()
        self._loading = ExitStack()
        self._log = get_logger(controller="reflector", kind=kind.kind)

    def add_handler(self, handler: Handler[T]) -> None:
        """Tell one more listener; it hears only what comes after, so add it before `run`."""
        self._handlers.append(handler)

    async def wait_synced(self) -> None:
        """Until the first list is in the cache and every handler has heard it."""
        await self._synced.wait()

    async def run(self) -> None:
        """List and watch until cancelled."""
        with self._loading:
            if self._garbage is not None:
                self._loading.enter_context(self._garbage)
            while True:
                await self._cycle()

    async def _cycle(self) -> None:
        """One attempt to list if need be and to watch, and the wait that its outcome asks for."""
        self._progressed = False
        streamed = self._version is None and self._streams_lists
        started = asyncio.get_running_loop().time()
        retry_after = 0.0
        try:
            await self._list_and_watch()
            reason = "closed"
        except Expired:
            reason, self._version = "expired", None
        except TimeoutError:
            reason = "silent"
        except (ApiError, OSError) as error:
            if streamed and isinstance(error, BadRequest | Invalid):
                # The server does not know or allow streaming lists: on to pages, without a wait or a complaint.
                return
            reason = "error"
            retry_after = getattr(error, "retry_after_s", None) or 0.0
            self._judge_error(error)
        self._observer.watch_restarted(self.kind.kind, reason)
        # A kind that cannot be listed (no permission, no CRD) must not keep the collector off for good.
        self._loading.close()
        lasted = asyncio.get_running_loop().time() - started
        if self._progressed or (reason in ("closed", "silent") and lasted >= 1.0):
            self._backoff.forget("")
            if reason != "error":
                return
        delay = self._backoff.next_delay("") * (0.5 + 0.5 * self._chance())
        await asyncio.sleep(max(delay, retry_after))

    def _judge_error(self, error: Exception) -> None:
        if "too large resource version" in str(error).lower():
            # The server's history went back (a restored backup): our version means nothing there.
            self._version = None
        if isinstance(error, NotFound):
            # The kind itself is gone (its definition was removed or is another): no proof that its objects are (F33).
            self.cache.served, self._version = False, None
        if isinstance(error, TooManyRequests):
            # The server asks for patience, as it does for a kind whose CRD was just created.
            self._log.debug("list or watch put off by the server", error=error)
        else:
            self._log.error("list or watch failed", error=error)

    async def _list_and_watch(self) -> None:
        if self._version is None and self._streams_lists:
            # Until the end of the initial events is seen, pages are the next try: they always work, and some
            # stores never send that end.
            self._streams_lists = False
            await self._follow(initial=True)
            return
        if self._version is None:
            await self._list_pages()
        await self._follow(initial=False)

    async def _list_pages(self) -> None:
        fresh: dict[str, T] = {}
        kept: set[str] = set()
        token, limit, restarts = "", PAGE_SIZE, 0
        while True:
            try:
                page = await self._api.list_page(self.kind, self._selection, limit=limit, continue_token=token)
            except Expired:
                if not token or restarts >= 2:
                    raise
                # The pages outlived their version: start over, the last time in one piece.
                restarts += 1
                fresh, kept, token, limit = {}, set(), "", PAGE_SIZE if restarts < 2 else 0
                continue
            for obj in page.items:
                fresh[self.cache.key_of(obj)] = obj
            kept.update(page.quarantined)
            token = page.continue_token
            if not token:
                await self._replace(fresh, kept, page.resource_version)
                return

    async def _follow(self, *, initial: bool) -> None:
        """Consume one watch; with `initial` it begins with a streamed list."""
        stream = self._api.watch(
            self.kind,
            self._selection,
            resource_version=self._version or "",
            send_initial_events=initial,
            timeout_s=WATCH_TIMEOUT_S * (1.0 + self._chance()),
        )
        listing: dict[str, T] | None = {} if initial else None
        kept: set[str] = set()
        async with AsyncExitStack() as stack:
            guard = await stack.enter_async_context(InactivityTimeout(self._inactivity_s))
            if isinstance(stream, AsyncGenerator):
                await stack.enter_async_context(aclosing(stream))
            taken = 0
            async for event in stream:
                guard.touch()
                taken += 1
                if taken % _CHUNK == 0:
                    # A burst that is already buffered never waits; leases and probes must get their turn.
                    await asyncio.sleep(0)
                if listing is None:
                    self._take(event)
                elif event.initial_events_end:
                    await self._replace(listing, kept, event.resource_version)
                    listing, self._streams_lists = None, True
                    guard.touch()
                elif event.object is not None:
                    listing[self.cache.key_of(event.object)] = event.object
                elif event.key:
                    kept.add(event.key)

    async def _replace(self, fresh: dict[str, T], kept: set[str], version: str) -> None:
        """Make the cache equal to a full list and tell the differences; `kept` exist but could not be decoded."""
        initial = not self.cache.synced
        told = 0
        gone = [key for key in self.cache.keys() if key not in fresh and key not in kept]  # noqa: SIM118 - sorted
        for key in gone:
            old = self.cache.remove(key)
            self._tell(Change(old, None, initial))
            told += 1
        for key, obj in fresh.items():
            self._store(key, obj, initial)
            told += 1
            if told % _CHUNK == 0:
                await asyncio.sleep(0)
        self._version = version
        self.cache.synced = self.cache.served = True
        self._loading.close()
        self._synced.set()

    def _take(self, event: WatchEvent[T]) -> None:
        if event.type == "DELETED":
            key = event.key or self.cache.key_of(event.object)  # type: ignore[arg-type]
            old = self.cache.remove(key)
            if old is None:
                self._observer.event_anomaly(self.kind.kind, "deleted-unknown")
            else:
                self._tell(Change(old, None))
        elif event.object is not None and event.type in ("ADDED", "MODIFIED"):
            self._take_object(event.type, event.object)
        self._version = event.resource_version or self._version
        self._progressed = True

    def _take_object(self, event_type: str, obj: T) -> None:
        key = self.cache.key_of(obj)
        old = self.cache.get(key)
        if old is not None and _not_newer(obj, old):
            # Repeats happen after a resume; going back in time never may (F24).
            self._observer.event_anomaly(self.kind.kind, "repeated")
            return
        if event_type == "ADDED" and old is None and self._selection == EVERYTHING:
            self._measure_lag(obj)
        elif event_type == "MODIFIED" and old is None:
            self._observer.event_anomaly(self.kind.kind, "modified-unknown")
        self._store(key, obj, False)

    def _measure_lag(self, obj: Any) -> None:
        created = obj.metadata.creation_timestamp
        if created:
            self._observer.watch_lag(self.kind.kind, max(0.0, self._clock.now() - parse_timestamp(created)))

    def _store(self, key: str, obj: T, initial: bool) -> None:
        old = self.cache.put(key, obj)
        if old is None:
            self._tell(Change(None, obj, initial))
        elif _meta(old).uid != _meta(obj).uid:
            # Another object under the same name: nobody may take it for the old one (F47).
            self._tell(Change(old, None, initial))
            self._tell(Change(None, obj, initial))
        elif _meta(old).resource_version != _meta(obj).resource_version:
            self._tell(Change(old, obj, initial))

    def _tell(self, change: Change[T]) -> None:
        for handler in self._handlers:
            try:
                handler(change)
            except Exception as error:
                # One listener's defect must not starve the cache or the other listeners (F39).
                self._observer.event_anomaly(self.kind.kind, "handler-failed")
                self._log.error("change handler failed", error=error)


def _meta(obj: Any) -> Any:
    return obj.metadata


def _not_newer(obj: Any, old: Any) -> bool:
    new_version, old_version = obj.metadata.resource_version, old.metadata.resource_version
    if new_version == old_version:
        return bool(new_version)
    if obj.metadata.uid != old.metadata.uid or not (new_version.isdigit() and old_version.isdigit()):
        return False
    return int(new_version) < int(old_version)
