"""S9, its second half: no disruptive write from a snapshot older than the last acknowledged write to that object.

What a process has seen of an object (by a watch, a list or a get) is compared with what was acknowledged to it of its
own writes. A write that names the version it is meant for cannot be stale, for the server compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pykarpenter.api import kinds
from pykarpenter.kube.contract import EVERYTHING, DeleteOptions, Preconditions, WatchEvent
from pykarpenter.kube.errors import ApiError
from pykarpenter.sim.api import Middleware, Request
from pykarpenter.sim.checkers.report import Report
from pykarpenter.sim.cluster import EmbeddedCluster

# (client, plural, namespace, name); an empty name stands for all objects of the kind.
_Key = tuple[str, str, str, str]

_DISRUPTED = (kinds.NODE_CLAIM, kinds.NODE, kinds.POD)


class FreshnessChecker(Middleware):
    """Put it behind the faults of the program's client, so that it sees events when the program does."""

    def __init__(self, cluster: EmbeddedCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        self._seen: dict[_Key, int] = {}
        self._acknowledged: dict[_Key, int] = {}

    async def before(self, request: Request) -> None:
        """A disruptive request, about to be sent."""
        if request.verb not in ("delete", "evict") or request.kind not in _DISRUPTED or _names_version(request):
            return
        written, seen = self._acknowledged.get(_key(request), 0), self._last_seen(request)
        if seen < written:
            self._report.add(
                "S9",
                self._cluster.clock.now(),
                f"{request.client} sends {request.verb} {request.kind.kind} {request.name}, last seen at {seen}, "
                f"although its own write of {written} was acknowledged",
            )

    async def after(self, request: Request, error: ApiError | None) -> None:
        """Answers: of reads they are what the store holds now, of writes what they made of the object."""
        if error is not None or request.kind not in _DISRUPTED:
            return
        if request.verb in ("get", "list"):
            for key in _read(request):
                self._seen[key] = self._cluster.store.rv
        elif request.verb in ("create", "patch", "delete", "evict"):
            self._acknowledged[_key(request)] = self._version(request)

    async def on_event(self, request: Request, event: WatchEvent[Any]) -> Sequence[WatchEvent[Any]]:
        """What a watch delivers is known from then on."""
        if request.kind in _DISRUPTED and event.object is not None:
            meta = event.object.metadata
            key = (request.client, request.kind.plural, meta.namespace or "", meta.name)
            self._seen[key] = max(self._seen.get(key, 0), int(event.resource_version))
        return (event,)

    def _last_seen(self, request: Request) -> int:
        client, plural, _, _ = _key(request)
        return max(self._seen.get(_key(request), 0), self._seen.get((client, plural, "", ""), 0))

    def _version(self, request: Request) -> int:
        """The object's version now; 0 when it is gone, for then there is nothing left to disturb."""
        store = self._cluster.store
        entry = store.find(store.resource(request.kind.group, request.kind.plural), request.name, request.namespace)
        return int(entry.metadata["resourceVersion"]) if entry is not None else 0


def _key(request: Request) -> _Key:
    return request.client, request.kind.plural, request.namespace, request.name


def _read(request: Request) -> list[_Key]:
    """What an answer shows: one object, or all of a kind; lists by other selectors leave open which."""
    chosen = request.selection
    if request.verb == "get" or chosen == EVERYTHING:
        return [_key(request)]
    field, _, name = chosen.field_selector.partition("=")
    return [(request.client, request.kind.plural, chosen.namespace, name)] if field == "metadata.name" else []


def _names_version(request: Request) -> bool:
    expected = request.body.preconditions if isinstance(request.body, DeleteOptions) else request.body
    return isinstance(expected, Preconditions) and bool(expected.resource_version)
