"""Watches over HTTP: one JSON event per line until the client goes, the time is up or history went past it."""

from __future__ import annotations

import msgspec
from aiohttp import web

from pykarpenter.kube.errors import ApiError, Expired
from pykarpenter.sim.api import WatchBell
from pykarpenter.sim.server import requests
from pykarpenter.sim.server.answers import included, wants_table
from pykarpenter.sim.server.requests import Target
from pykarpenter.sim.server.statuses import failure
from pykarpenter.sim.server.tables import table
from pykarpenter.sim.store import Resource, Store
from pykarpenter.sim.store.entries import Json
from pykarpenter.sim.store.watches import RawEvent, Watch

# Events sent at a time: a streamed list of 100,000 pods in one piece would keep every other client waiting.
_PIECE = 200
_END_OF_LIST = {"k8s.io/initial-events-end": "true"}


class Lines:
    """Turns events into lines, in the form the client asked for."""

    def __init__(self, request: web.Request, store: Store, resource: Resource) -> None:
        self._store, self._resource = store, resource
        self._as_table, self._include = wants_table(request), included(request)
        self._bookmarks = requests.wants_bookmarks(request)
        self._heading = True

    def line(self, event: RawEvent) -> bytes:
        """One event as a line, or nothing when the client did not ask for its kind."""
        if event.entry is None:
            if not self._bookmarks and not event.initial_events_end:
                return b""
            return _line("BOOKMARK", msgspec.json.encode(self._bookmark(event)))
        if not self._as_table:
            return _line(event.type, event.entry.encoded())
        meta = {"resourceVersion": event.entry.metadata["resourceVersion"]}
        rendered = table(self._resource, [event.entry], meta, self._store.now(), self._include, heading=self._heading)
        self._heading = False
        return _line(event.type, msgspec.json.encode(rendered))

    def _bookmark(self, event: RawEvent) -> Json:
        meta: Json = {"resourceVersion": str(event.rv), "creationTimestamp": None}
        if event.initial_events_end:
            meta["annotations"] = _END_OF_LIST
        if self._as_table:
            return {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "rows": []}
        return {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": meta}


def _line(event_type: str, encoded: bytes) -> bytes:
    return b'{"type":"' + event_type.encode() + b'","object":' + encoded + b"}\n"


def _error_line(error: ApiError) -> bytes:
    return _line("ERROR", msgspec.json.encode(failure(error)))


async def stream(request: web.Request, store: Store, target: Target, bells: set[WatchBell]) -> web.StreamResponse:
    """Answers a watch; `bells` holds those of open watches, so that a stopping server can end them."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    try:
        watch = store.watch(target.resource, requests.watch_request(request, target))
    except Expired as error:
        # As an event in the stream: that is where clients look for it.
        await response.prepare(request)
        await response.write(_error_line(error))
        return response
    bell = WatchBell(requests.watch_seconds(request))
    watch.on_ready = bell.ring
    bells.add(bell)
    try:
        await response.prepare(request)
        await _send(response, store, watch, bell, Lines(request, store, target.resource))
    except ConnectionResetError:
        pass
    finally:
        bells.discard(bell)
        watch.close()
        bell.close()
    return response


async def _send(response: web.StreamResponse, store: Store, watch: Watch, bell: WatchBell, lines: Lines) -> None:
    bookmark_due = False
    while True:
        try:
            ready = watch.poll()
        except Expired as error:
            await response.write(_error_line(error))
            return
        if bookmark_due:
            ready.append(watch.bookmark(store.rv))
        for at in range(0, len(ready), _PIECE):
            data = b"".join([lines.line(event) for event in ready[at : at + _PIECE]])
            if data:
                await response.write(data)
        if bell.is_over():
            return
        bookmark_due = not await bell.wait()
