"""Faults between a client and the API server, as middleware of that client alone.

Each is armed for a number of requests or until a time, and counts when it fires. Time is the event loop's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pykarpenter.api.kinds import Kind
from pykarpenter.kube.contract import EVERYTHING, Selection, WatchEvent
from pykarpenter.kube.errors import ApiError, Conflict, Expired, NotFound, ServerFault, TooManyRequests
from pykarpenter.sim.api import Middleware, Request, StoreApi

T = TypeVar("T")

_WRITES = ("create", "patch", "delete", "evict", "bind")


def _time() -> float:
    return asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True)
class _Crash:
    name: str
    matches: Callable[[Request], bool]
    on_crash: Callable[[Request], None]


class ApiFaults(Middleware):
    def __init__(self) -> None:
        self.fired: Counter[str] = Counter()
        # Armed for so many requests.
        self.conflicts = 0
        self.server_errors = 0
        self.throttles = 0
        self.lost_replies = 0
        self.broken_watches = 0
        self.duplicates = 0
        # Armed until a time of the loop.
        self.outage_until = 0.0
        self.stalled_until = 0.0
        self.webhook_until = 0.0
        self.lease_blocked_until = 0.0
        # Seconds by which events of a kind come late, by plural; `written_at` knows when each version was written.
        self.lag_s: dict[str, float] = {}
        self.written_at: Callable[[str], float] | None = None
        # Kinds that the server does not know for now, by plural.
        self.unserved: dict[str, None] = {}
        # Called with each write before it is sent; may wait, act on the cluster or raise.
        self.before_writes: list[Callable[[Request], Awaitable[None]]] = []
        # Called with each answer.
        self.after_calls: list[Callable[[Request, ApiError | None], None]] = []
        self._crash: _Crash | None = None

    def crash_when(self, name: str, matches: Callable[[Request], bool], on_crash: Callable[[Request], None]) -> None:
        """Kill the process right before the first request that matches: it is never sent (F2, F21)."""
        self._crash = _Crash(name, matches, on_crash)

    def forget(self, look: Callable[..., object]) -> None:
        """Take back what was put into `before_writes` or `after_calls`; all is well when it is gone already."""
        for looks in (self.before_writes, self.after_calls):
            if look in looks:
                looks.remove(look)  # type: ignore[arg-type]

    def calm(self) -> None:
        """Stop every fault; what has fired stays counted."""
        fired, written_at = self.fired, self.written_at
        self.__init__()  # type: ignore[misc]
        self.fired, self.written_at = fired, written_at

    async def before(self, request: Request) -> None:
        if self._crash is not None and self._crash.matches(request):
            crash, self._crash = self._crash, None
            self.fired[crash.name] += 1
            crash.on_crash(request)
            # A dead process sends nothing: this waits until its task is cancelled.
            await asyncio.Event().wait()
        if self.outage_until > _time():
            self.fired["outage"] += 1
            raise ServerFault("the server is currently unable to handle the request")
        if request.kind.plural == "leases" and self.lease_blocked_until > _time():
            self.fired["lease_blocked"] += 1
            raise ServerFault("etcdserver: request timed out")
        if request.kind.plural in self.unserved:
            self.fired["unserved"] += 1
            raise NotFound("the server could not find the requested resource")
        if request.verb in _WRITES:
            for look in list(self.before_writes):
                await look(request)
            self._refuse_write(request)
        if self._take("server_errors"):
            raise ServerFault("Internal error occurred")
        if self._take("throttles"):
            error = TooManyRequests("the server has received too many requests")
            error.retry_after_s = 1.0
            raise error

    def _refuse_write(self, request: Request) -> None:
        if self.webhook_until > _time() and request.kind.plural != "leases":
            self.fired["webhook"] += 1
            raise ServerFault('failed calling webhook "policy.example.com": connection refused')
        if request.verb == "patch" and request.kind.plural != "leases" and self._take("conflicts"):
            raise Conflict(f'Operation cannot be fulfilled on {request.kind.plural} "{request.name}": it was modified')

    async def after(self, request: Request, error: ApiError | None) -> None:
        for look in list(self.after_calls):
            look(request, error)
        if error is None and request.verb in _WRITES and request.kind.plural != "leases" and self._take("lost_replies"):
            raise ServerFault("the connection broke before the answer came")

    async def on_event(self, request: Request, event: WatchEvent[Any]) -> Sequence[WatchEvent[Any]]:
        await self._be_late(request, event)
        if self.stalled_until > _time():
            self.fired["stall"] += 1
            await asyncio.sleep(self.stalled_until - _time())
        if self.outage_until > _time() or request.kind.plural in self.unserved:
            raise ServerFault("the watch was cut")
        if self._take("broken_watches"):
            raise ServerFault("the watch was cut")
        if event.object is not None and self._take("duplicates"):
            return (event, event)
        return (event,)

    async def _be_late(self, request: Request, event: WatchEvent[Any]) -> None:
        """An event comes so many seconds after it was written, however many are on their way."""
        lag = self.lag_s.get(request.kind.plural, 0.0)
        written = self.written_at(event.resource_version) if self.written_at is not None else _time()
        if lag and written + lag > _time():
            self.fired[f"lag:{request.kind.plural}"] += 1
            await asyncio.sleep(written + lag - _time())

    def _take(self, name: str) -> bool:
        left = int(getattr(self, name))
        if left <= 0:
            return False
        setattr(self, name, left - 1)
        self.fired[name] += 1
        return True


class FaultyApi(StoreApi):
    """A client whose watches report when their history has been forgotten (F16)."""

    faults: ApiFaults

    async def watch(
        self,
        kind: Kind[T],
        selection: Selection = EVERYTHING,
        *,
        resource_version: str = "",
        send_initial_events: bool = False,
        timeout_s: float = 0.0,
    ) -> AsyncIterator[WatchEvent[T]]:
        try:
            async for event in super().watch(
                kind,
                selection,
                resource_version=resource_version,
                send_initial_events=send_initial_events,
                timeout_s=timeout_s,
            ):
                yield event
        except Expired:
            self.faults.fired["expired"] += 1
            raise
