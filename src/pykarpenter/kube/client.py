"""KubeApi over HTTPS to a real API server.

Answers decode straight into subset types, so there is no way to PUT an object back: writes are creations of plain
bodies, patches, deletions, evictions and bindings. Every failure is an ApiError; a broken connection or a time-out is a
ServerFault, which says nothing about the outcome. Requests share one rate limit; a watch counts as one request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, TypeVar

import aiohttp
import msgspec
from multidict import CIMultiDict

from pykarpenter import __version__
from pykarpenter.api.kinds import POD, Kind
from pykarpenter.kube.codec import Codec
from pykarpenter.kube.config import ClusterConfig
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
from pykarpenter.kube.credentials import ClientCertificate, CredentialError, Identity
from pykarpenter.kube.deadline import request_timeout
from pykarpenter.kube.errors import ServerFault, TooManyRequests, Unauthorized, error_from_status
from pykarpenter.kube.interning import PodInterner
from pykarpenter.kube.lines import LineSplitter
from pykarpenter.kube.observer import IGNORE_KUBE, KubeObserver
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.limits import TokenBucket
from pykarpenter.runtime.logs import get_logger

T = TypeVar("T")

USER_AGENT = f"karpenter/{__version__}"
FIELD_MANAGER = "karpenter"
REQUEST_TIMEOUT_S = 30.0
LIST_TIMEOUT_S = 60.0
# A watch is dropped by the transport when nothing arrives for this long; the reflector's own limit is shorter.
WATCH_SILENCE_S = 120.0
# Throttled requests are repeated as the server asks, if it asks for no more than this.
_MAX_RETRY_AFTER_S = 10.0
_RETRIES = 3
_CLOSING_TURNS = 10
_CONNECTIONS = 200
_SKEW_EVERY_S = 30.0


class HttpApi:
    """An API server over HTTP. Use as an async context manager, or close it."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        clock: Clock,
        qps: float = 200.0,
        burst: int = 300,
        observer: KubeObserver = IGNORE_KUBE,
        user_agent: str = USER_AGENT,
        tell_time: Callable[[float], None] | None = None,
    ) -> None:
        """A `qps` of zero or less does not limit; leader election uses a client of its own like that.

        `tell_time` hears the server's clock (epoch seconds) now and then.
        """
        self.config = config
        self._clock = clock
        self._limit = TokenBucket(qps, burst, clock)
        self._observer = observer
        self._tell_time = tell_time
        self._headers = [("User-Agent", user_agent), ("Accept", "application/json"), ("Accept-Encoding", "identity")]
        self._headers += list(config.headers)
        self._interner = PodInterner()
        self._codecs: dict[Kind[Any], Codec[Any]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._certificate: ClientCertificate | None = None
        self._skew_checked_at = float("-inf")
        self._log = get_logger(controller="kube-client")

    async def __aenter__(self) -> HttpApi:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            # TLS connections let go of their sockets in the loop's next turns; a loop that ends before leaks them.
            for _ in range(_CLOSING_TURNS):
                await asyncio.sleep(0)

    async def server_version(self) -> str:
        """`major.minor` as the server tells it, without suffixes such as `+`."""
        answer = msgspec.json.decode(await self._bytes("GET", "/version", "version", "", {}), type=dict[str, str])
        return f"{answer.get('major', '')}.{answer.get('minor', '').rstrip('+')}"

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        body = await self._bytes("GET", kind.path(namespace, name), _label(kind), "", {})
        return self._codec(kind).object(body)

    async def list_page(
        self,
        kind: Kind[T],
        selection: Selection = EVERYTHING,
        *,
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> Page[T]:
        params = _selected(selection)
        if limit:
            params["limit"] = str(limit)
        if continue_token:
            params["continue"] = continue_token
        elif resource_version:
            params["resourceVersion"] = resource_version
        path = kind.path(selection.namespace)
        body = await self._bytes("LIST", path, _label(kind), "", params, timeout_s=LIST_TIMEOUT_S)
        return self._codec(kind).page(body)

    async def watch(
        self,
        kind: Kind[T],
        selection: Selection = EVERYTHING,
        *,
        resource_version: str = "",
        send_initial_events: bool = False,
        timeout_s: float = 0.0,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        params = {**_selected(selection), "watch": "true", "allowWatchBookmarks": "true"}
        if resource_version:
            params["resourceVersion"] = resource_version
        if send_initial_events:
            params["sendInitialEvents"] = "true"
            params["resourceVersionMatch"] = "NotOlderThan"
        if timeout_s:
            params["timeoutSeconds"] = str(max(1, int(timeout_s)))
        codec = self._codec(kind)
        # Never a total time-out: a watch lives as long as the server lets it; only silence ends it.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=WATCH_SILENCE_S)
        path = kind.path(selection.namespace)
        async with self._response("WATCH", path, _label(kind), "", params, timeout=timeout) as response:
            splitter = LineSplitter()
            with _as_server_faults(kind.kind):
                async for chunk in response.content.iter_any():
                    for line in splitter.feed(chunk):
                        yield codec.event(line)

    async def create(self, kind: Kind[T], body: Json, namespace: str = "") -> T:
        answer = await self._bytes(
            "POST", kind.path(namespace), _label(kind), "", {"fieldManager": FIELD_MANAGER}, body=body
        )
        return self._codec(kind).object(answer)

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
        params = {"fieldManager": FIELD_MANAGER}
        if patch_type is PatchType.APPLY:
            params["force"] = "true"
        path = kind.path(namespace, name, subresource)
        answer = await self._bytes(
            "PATCH", path, _label(kind), subresource, params, body=patch, content_type=patch_type.value
        )
        return self._codec(kind).object(answer)

    async def delete(
        self, kind: Kind[Any], name: str, namespace: str = "", options: DeleteOptions | None = None
    ) -> None:
        options = options or DeleteOptions()
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", **_preconditions(options.preconditions)}
        if options.grace_period_s is not None:
            body["gracePeriodSeconds"] = options.grace_period_s
        if options.propagation is not None:
            body["propagationPolicy"] = options.propagation
        await self._bytes("DELETE", kind.path(namespace, name), _label(kind), "", {}, body=body)

    async def evict(self, name: str, namespace: str, preconditions: Preconditions = NO_PRECONDITIONS) -> None:
        body: Json = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        wanted = _preconditions(preconditions)
        if wanted:
            body["deleteOptions"] = wanted
        await self._bytes("POST", POD.path(namespace, name, "eviction"), _label(POD), "eviction", {}, body=body)

    async def bind(self, pod_name: str, namespace: str, node_name: str) -> None:
        body: Json = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod_name, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
        }
        await self._bytes("POST", POD.path(namespace, pod_name, "binding"), _label(POD), "binding", {}, body=body)

    async def _bytes(
        self,
        verb: str,
        path: str,
        label: str,
        subresource: str,
        params: dict[str, str],
        *,
        body: Json | list[Json] | None = None,
        content_type: str = "application/json",
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> bytes:
        """The body of a successful answer; repeats what the server throttled and what it took for a stranger's."""
        limit_s = request_timeout(timeout_s)
        if limit_s < timeout_s:
            # Whoever has less time than usual does not want the server to act after it, either.
            params = {**params, "timeout": f"{max(limit_s, 0.001):.3f}s"}
        data = msgspec.json.encode(body) if body is not None else None
        timeout = aiohttp.ClientTimeout(total=limit_s, sock_connect=min(10.0, limit_s))
        for attempt in range(_RETRIES + 1):
            try:
                async with self._response(
                    verb, path, label, subresource, params, data=data, content_type=content_type, timeout=timeout
                ) as response:
                    with _as_server_faults(label):
                        return await response.read()
            except TooManyRequests as error:
                wait = error.retry_after_s
                # A refused eviction is an answer about a budget, not about load.
                if subresource == "eviction" or wait is None or wait > _MAX_RETRY_AFTER_S or attempt == _RETRIES:
                    raise
                await asyncio.sleep(wait)
            except Unauthorized:
                # The credential was dropped when it was refused: once more with a fresh one.
                if attempt > 0:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    @asynccontextmanager
    async def _response(
        self,
        verb: str,
        path: str,
        label: str,
        subresource: str,
        params: dict[str, str],
        *,
        data: bytes | None = None,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful response to read from; anything else is raised as the error it is."""
        waited = await self._limit.take()
        if waited:
            self._observer.rate_limited(waited)
        identity = await self._identity()
        headers = CIMultiDict(self._headers)
        if identity.token:
            headers["Authorization"] = f"Bearer {identity.token}"
        if data is not None:
            headers["Content-Type"] = content_type
        session = await self._session_for(identity)
        started = self._clock.monotonic()
        code = "<error>"
        method = "GET" if verb in ("LIST", "WATCH") else verb
        try:
            with _as_server_faults(label):
                response = await session.request(
                    method,
                    f"{self.config.server}{path}",
                    params=params,
                    data=data,
                    headers=headers,
                    timeout=timeout,
                    allow_redirects=False,
                    proxy=self.config.proxy_url or None,
                    server_hostname=self.config.tls_server_name or None,
                )
            code = str(response.status)
        finally:
            self._observer.request(verb, label, subresource, code, self._clock.monotonic() - started)
        async with response:
            self._measure_skew(response)
            if response.status >= 300:
                await self._raise(response, identity, label)
            try:
                yield response
            finally:
                _hang_up(response)

    async def _raise(self, response: aiohttp.ClientResponse, identity: Identity, label: str) -> None:
        with _as_server_faults(label):
            body = await response.read()
        error = error_from_status(response.status, _status(body))
        retry_after = response.headers.get("Retry-After", "")
        if error.retry_after_s is None and retry_after.isdigit():
            error.retry_after_s = float(retry_after)
        if isinstance(error, Unauthorized):
            self.config.credentials.refused(identity)
        raise error

    async def _identity(self) -> Identity:
        try:
            return await self.config.credentials.current()
        except CredentialError as error:
            self._log.error("no credential", error=error)
            raise Unauthorized(str(error)) from error

    async def _session_for(self, identity: Identity) -> aiohttp.ClientSession:
        """The session for the identity's certificate; a new certificate needs new connections."""
        if self._session is not None and identity.certificate == self._certificate:
            return self._session
        old, self._certificate = self._session, identity.certificate
        context = self.config.ssl_context(identity.certificate)
        connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=context if context is not None else True)
        # Keep-alive probes of idle watches are the reflector's matter; cookies are nobody's.
        self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)
        if old is not None:
            await old.close()
        return self._session

    def _codec(self, kind: Kind[T]) -> Codec[T]:
        codec = self._codecs.get(kind)
        if codec is None:
            codec = self._codecs[kind] = Codec(kind, self._interner, self._set_aside)
        return codec

    def _set_aside(self, kind: str, key: str, problem: str) -> None:
        self._observer.undecodable(kind)
        self._log.error("object set aside: it does not fit its type", kind=kind, key=key, problem=problem)

    def _measure_skew(self, response: aiohttp.ClientResponse) -> None:
        now = self._clock.monotonic()
        date = response.headers.get("Date")
        if date is None or now - self._skew_checked_at < _SKEW_EVERY_S:
            return
        self._skew_checked_at = now
        try:
            server_now = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return
        self._observer.clock_skew(server_now - self._clock.now())
        if self._tell_time is not None:
            self._tell_time(server_now)


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Give up a connection whose answer was not read to its end, at once.

    A TLS goodbye waits for the other side; a loop that ends in the meantime would leak the socket.
    """
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


class _as_server_faults:  # noqa: N801 - reads as a statement where it is used
    """Whatever breaks in transport is a ServerFault."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, TimeoutError):
            raise ServerFault(f"{self._what}: no answer in time") from error
        if isinstance(error, aiohttp.ClientError | OSError):
            raise ServerFault(f"{self._what}: {error or type(error).__name__}") from error


def _label(kind: Kind[Any]) -> str:
    return f"{kind.api_version}/{kind.kind}"


def _selected(selection: Selection) -> dict[str, str]:
    params: dict[str, str] = {}
    if selection.label_selector:
        params["labelSelector"] = selection.label_selector
    if selection.field_selector:
        params["fieldSelector"] = selection.field_selector
    return params


def _preconditions(preconditions: Preconditions) -> Json:
    wanted: Json = {}
    if preconditions.uid is not None:
        wanted["uid"] = preconditions.uid
    if preconditions.resource_version is not None:
        wanted["resourceVersion"] = preconditions.resource_version
    return {"preconditions": wanted} if wanted else {}


def _status(body: bytes) -> Json:
    """A `Status` body; proxies and dying servers answer with anything, of which the beginning is kept as message."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        found = None
    if isinstance(found, dict) and found.get("kind") == "Status":
        return found
    return {"message": body[:300].decode(errors="replace").strip()} if body else {}
