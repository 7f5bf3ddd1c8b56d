"""JSON of an API server to wire types, one pass per object; a bad object is set aside, never a reason to fail the rest.

An object that does not fit its wire type is named by its key and counted. Whoever holds the cache keeps the last good
state of it: it exists, so it must not look deleted (S12, F39).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import msgspec

from pykarpenter.api.kinds import POD, Kind
from pykarpenter.kube.contract import Page, WatchEvent
from pykarpenter.kube.errors import ApiError, ServerFault, error_from_status
from pykarpenter.kube.interning import InternedPod, PodInterner

T = TypeVar("T")

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class _ListMeta(msgspec.Struct, rename="camel", gc=False, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, Generic[T], gc=False):
    metadata: _ListMeta = _ListMeta()
    items: list[T] | None = None


class _Event(msgspec.Struct, Generic[T], gc=False):
    type: str
    object: T


class _Name(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Named(msgspec.Struct):
    """As little of an object as it takes to name it."""

    metadata: _Name = _Name()


def _key(name: _Name) -> str:
    return f"{name.namespace}/{name.name}" if name.namespace else name.name


def _server_error(line: bytes) -> ApiError:
    status = msgspec.json.decode(line)["object"]
    return error_from_status(int(status.get("code") or 500), status)


class Codec(Generic[T]):
    """Decodes answers about one kind; `undecodable` is told of every object that had to be set aside."""

    def __init__(self, kind: Kind[T], interner: PodInterner, undecodable: Callable[[str, str, str], None]) -> None:
        self._kind = kind
        self._undecodable = undecodable
        self._finish: Callable[[Any], T] | None = None
        wire: Any = kind.type
        if kind.type is POD.type:
            wire = InternedPod
            self._finish = cast(Callable[[Any], T], interner.finish)
        self._object: msgspec.json.Decoder[Any] = msgspec.json.Decoder(wire)
        self._list: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_List[wire])
        self._event: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Event[wire])

    def object(self, text: bytes) -> T:
        """One object; a ServerFault when it cannot be read, since nothing is known about the outcome then."""
        try:
            return self._finished(self._object.decode(text))
        except msgspec.DecodeError as error:
            raise ServerFault(f"{self._kind.kind}: unreadable answer: {error}") from error

    def page(self, text: bytes) -> Page[T]:
        """A list answer; objects that do not decode are in `quarantined`."""
        try:
            found = self._list.decode(text)
            items = [self._finished(item) for item in found.items or ()]
        except msgspec.ValidationError:
            return self._page_one_by_one(text)
        except msgspec.DecodeError as error:
            raise ServerFault(f"{self._kind.kind} list: unreadable answer: {error}") from error
        return Page(items, found.metadata.resource_version, found.metadata.continue_)

    def event(self, line: bytes) -> WatchEvent[T]:
        """A watch line; raises the server's error for an `ERROR` event, Expired included."""
        try:
            found = self._event.decode(line)
            if found.type == "BOOKMARK":
                return self._bookmark(line)
            if found.type == "ERROR":
                raise _server_error(line)
            obj = self._finished(found.object)
        except msgspec.ValidationError as error:
            return self._odd_event(line, error)
        except msgspec.DecodeError as error:
            raise ServerFault(f"{self._kind.kind} watch: unreadable line: {error}") from error
        return WatchEvent(found.type, found.object.metadata.resource_version, obj)

    def _finished(self, obj: Any) -> T:
        return cast(T, obj) if self._finish is None else self._finish(obj)

    def _page_one_by_one(self, text: bytes) -> Page[T]:
        found = msgspec.json.decode(text, type=_List[msgspec.Raw])
        items: list[T] = []
        quarantined: list[str] = []
        for raw in found.items or ():
            try:
                items.append(self._finished(self._object.decode(raw)))
            except msgspec.ValidationError as error:
                quarantined.append(self._set_aside(raw, error))
        return Page(items, found.metadata.resource_version, found.metadata.continue_, tuple(quarantined))

    def _set_aside(self, raw: msgspec.Raw | bytes, error: Exception) -> str:
        key = _key(msgspec.json.decode(raw, type=_Named).metadata)
        self._undecodable(self._kind.kind, key, str(error))
        return key

    def _bookmark(self, line: bytes) -> WatchEvent[T]:
        meta = msgspec.json.decode(line, type=_Event[_Named]).object.metadata
        end = (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true"
        return WatchEvent("BOOKMARK", meta.resource_version, None, initial_events_end=end)

    def _odd_event(self, line: bytes, error: msgspec.ValidationError) -> WatchEvent[T]:
        raw = msgspec.json.decode(line, type=_Event[msgspec.Raw])
        if raw.type == "ERROR":
            raise _server_error(line) from error
        if raw.type == "BOOKMARK":
            return self._bookmark(line)
        key = self._set_aside(raw.object, error)
        version = msgspec.json.decode(raw.object, type=_Named).metadata.resource_version
        return WatchEvent(raw.type, version, None, key=key)
