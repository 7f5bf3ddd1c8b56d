"""Publishes Kubernetes Events in the background: said once per window, bounded in rate, never in anyone's way.

`publish` neither waits nor raises; when events come faster than the API server takes them the newest are dropped and
counted. The same event said again later raises the count of the first instead of adding a second object. What was said
is remembered no longer than that can matter, so machines and pods that are gone leave nothing behind here.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

from pykarpenter.api.kinds import EVENT, Kind
from pykarpenter.api.meta import Object
from pykarpenter.api.nodes import ObjectReference
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.kube.contract import Json, KubeApi
from pykarpenter.kube.errors import NotFound, ServerFault, TooManyRequests
from pykarpenter.kube.observer import IGNORE_KUBE, KubeObserver
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.limits import TokenBucket
from pykarpenter.runtime.logs import get_logger
from pykarpenter.runtime.redaction import redact_text

SOURCE = "karpenter"
DEFAULT_WINDOW_S = 120.0
# (reason, kind) -> (events per second, burst), as the spec's table of events says.
RATE_LIMITS: dict[tuple[str, str], tuple[float, int]] = {
    ("Nominated", "Pod"): (5.0, 10),
    ("InsufficientCapacityError", "Pod"): (5.0, 10),
}
# What every pass says about every machine comes at the pace that leaves the API server's budget to the work; what is
# put off is said by a later pass.
_CHATTY = frozenset({"Unconsolidatable", "DisruptionBlocked"})
_CHATTY_RATE = (10.0, 400)
_MAX_QUEUED = 1000
# Windows of two or three events about each of 10,000 machines and their claims: when fewer are kept than are said in
# turn, none is found again and all are said again.
_MAX_WINDOWS = 65_536
_MAX_REMEMBERED = 4096
# How long an API server keeps an event that nobody writes again: a count can be raised no later than this.
_SAID_KEPT_S = 3600.0
# The API server refuses longer ones.
_MAX_MESSAGE = 1024
_ATTEMPTS = 4


@dataclass(slots=True)
class _Said:
    """An Event object that exists on the server, as far as we know."""

    name: str
    namespace: str
    count: int
    # When it was last written (monotonic).
    at: float


@dataclass(frozen=True, slots=True)
class _Pending:
    target: ObjectReference
    type: str
    reason: str
    message: str
    at: float


class EventRecorder:
    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        *,
        identity: str = "",
        source: str = SOURCE,
        observer: KubeObserver = IGNORE_KUBE,
    ) -> None:
        self._api = api
        self._clock = clock
        self._identity = identity
        self._source = source
        self._observer = observer
        # Both in the order in which they were last said, so that what is over is found at the front.
        self._windows: OrderedDict[tuple[str, ...], float] = OrderedDict()
        self._limits: dict[tuple[str, str], TokenBucket] = {}
        self._chatty = TokenBucket(*_CHATTY_RATE, clock)
        self._queue: deque[_Pending] = deque()
        self._said: OrderedDict[tuple[str, ...], _Said] = OrderedDict()
        self._sequence = 0
        self._writer: asyncio.Task[None] | None = None
        self._log = get_logger(controller="events")

    def publish(
        self,
        target: ObjectReference,
        type: str,
        reason: str,
        message: str,
        *,
        dedupe: tuple[str, ...] = (),
        window_s: float = DEFAULT_WINDOW_S,
    ) -> None:
        """Say it once per `window_s` and `dedupe` values (the object and the message when none are given)."""
        key = (reason.lower(), *(dedupe or (target.kind, target.namespace, target.name, target.uid, message)))
        now = self._clock.monotonic()
        if now < self._windows.get(key, 0.0) or not self._at_pace(reason, target.kind):
            return
        if not self._within_rate(reason, target.kind) or len(self._queue) >= _MAX_QUEUED:
            self._observer.event_dropped(reason)
            return
        self._remember(key, now, now + window_s)
        text = redact_text(message)
        if len(text.encode()) > _MAX_MESSAGE:
            text = text.encode()[: _MAX_MESSAGE - 3].decode(errors="ignore") + "..."
        self._queue.append(_Pending(target, type, reason, text, self._clock.now()))
        self._ensure_writer()

    async def flush(self, timeout_s: float = 5.0) -> None:
        """Wait until everything published so far is written, or the time is over."""
        writer = self._writer
        if writer is None or writer.done():
            return
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(writer)
        except TimeoutError:
            writer.cancel()

    def _at_pace(self, reason: str, kind: str) -> bool:
        return reason not in _CHATTY or kind not in ("Node", "NodeClaim") or self._chatty.try_take()

    def _remember(self, key: tuple[str, ...], now: float, until: float) -> None:
        self._windows[key] = until
        self._windows.move_to_end(key)
        # A long window keeps shorter ones behind it waiting, but no longer than it lasts itself.
        while self._windows and (len(self._windows) > _MAX_WINDOWS or self._windows[next(iter(self._windows))] <= now):
            self._windows.popitem(last=False)

    def _within_rate(self, reason: str, kind: str) -> bool:
        rate = RATE_LIMITS.get((reason, kind))
        if rate is None:
            return True
        bucket = self._limits.get((reason, kind))
        if bucket is None:
            bucket = self._limits[(reason, kind)] = TokenBucket(*rate, self._clock)
        return bucket.try_take()

    def _ensure_writer(self) -> None:
        if self._writer is not None and not self._writer.done():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Published before the loop runs: the next publish on it starts the writer.
            return
        self._writer = loop.create_task(self._write_all(), name="event-writer")

    async def _write_all(self) -> None:
        while self._queue:
            pending = self._queue.popleft()
            try:
                await self._write(pending)
            except Exception as error:
                # An event is never worth more than a log line.
                self._observer.event_dropped(pending.reason)
                self._log.error("event not written", reason=pending.reason, error=error)

    async def _write(self, pending: _Pending) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                await self._create_or_count(pending)
                return
            except (ServerFault, TooManyRequests, OSError) as error:
                if attempt == _ATTEMPTS - 1:
                    raise
                await asyncio.sleep(max(getattr(error, "retry_after_s", None) or 0.0, float(2**attempt)))

    async def _create_or_count(self, pending: _Pending) -> None:
        target = pending.target
        same = (target.kind, target.namespace, target.name, target.uid, pending.type, pending.reason, pending.message)
        now = self._clock.monotonic()
        self._forget_said(now)
        said = self._said.get(same)
        if said is not None:
            patch = {"count": said.count + 1, "lastTimestamp": format_timestamp(pending.at)}
            try:
                await self._api.patch(EVENT, said.name, patch, said.namespace)
                said.count += 1
                said.at = now
                self._said.move_to_end(same)
                return
            except NotFound:
                # Events expire on the server after an hour.
                del self._said[same]
        body = self._body(pending)
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        await self._api.create(EVENT, body, namespace)
        self._said[same] = _Said(name, namespace, 1, now)

    def _forget_said(self, now: float) -> None:
        kept_from = now - _SAID_KEPT_S
        while self._said and (len(self._said) >= _MAX_REMEMBERED or self._said[next(iter(self._said))].at <= kept_from):
            self._said.popitem(last=False)

    def _body(self, pending: _Pending) -> Json:
        target = pending.target
        self._sequence += 1
        unique = f"{self._identity}/{pending.at!r}/{self._sequence}/{target.uid}/{pending.reason}"
        suffix = hashlib.sha256(unique.encode()).hexdigest()[:16]
        stamp = format_timestamp(pending.at)
        involved = {
            "apiVersion": target.api_version,
            "kind": target.kind,
            "name": target.name,
            "namespace": target.namespace,
            "uid": target.uid,
        }
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": f"{target.name[:230]}.{suffix}", "namespace": target.namespace or "default"},
            "involvedObject": {key: value for key, value in involved.items() if value},
            "reason": pending.reason,
            "message": pending.message,
            "type": pending.type,
            "source": {"component": self._source},
            "reportingComponent": self._source,
            "reportingInstance": self._identity,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }


def reference_to(kind: Kind[Any], obj: Object) -> ObjectReference:
    """The reference that an event about `obj` carries; items of lists do not know their own kind."""
    return ObjectReference(
        api_version=kind.api_version, kind=kind.kind, name=obj.name, namespace=obj.namespace, uid=obj.uid
    )
