"""One shared picture of the embedded cluster for everything that plays a part of Kubernetes in it.

Scheduler, workload controllers and node lifecycle read the same caches, each kind watched once. Workload kinds are
read with their whole spec, because their controllers copy templates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from pykarpenter.api import kinds
from pykarpenter.api.kinds import Kind
from pykarpenter.api.meta import Object
from pykarpenter.kube.cache import Cache, Change
from pykarpenter.kube.contract import KubeApi
from pykarpenter.kube.reflector import Reflector
from pykarpenter.runtime.clock import Clock

T = TypeVar("T")


class RawObject(Object):
    """An object whose spec and status keep every field."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


def whole(kind: Kind[Any]) -> Kind[RawObject]:
    """The same kind, read with its whole spec and status."""
    return Kind(kind.group, kind.version, kind.kind, kind.plural, kind.namespaced, RawObject)


DEPLOYMENT = whole(kinds.DEPLOYMENT)
REPLICA_SET = whole(kinds.REPLICA_SET)
STATEFUL_SET = whole(kinds.STATEFUL_SET)
DAEMON_SET = whole(kinds.DAEMON_SET)
JOB = whole(kinds.JOB)
PVC = whole(kinds.PVC)
PV = whole(kinds.PV)


class Views:
    """Caches by kind, filled by reflectors; handlers are added before `run`."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._reflectors: dict[tuple[str, str, type[Any]], Reflector[Any]] = {}

    def of(self, kind: Kind[T]) -> Cache[T]:
        """The cache of a kind, watched from now on."""
        return self._reflector(kind).cache

    def on_change(self, kind: Kind[T], handler: Callable[[Change[T]], None]) -> None:
        self._reflector(kind).add_handler(handler)

    async def run(self) -> None:
        """Keep every cache up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors.values():
                group.create_task(reflector.run(), name=f"view:{reflector.kind.plural}")

    async def wait_synced(self) -> None:
        for reflector in list(self._reflectors.values()):
            await reflector.wait_synced()

    def _reflector(self, kind: Kind[T]) -> Reflector[T]:
        where = (kind.group, kind.plural, kind.type)
        found = self._reflectors.get(where)
        if found is None:
            cache: Cache[T] = Cache()
            found = self._reflectors[where] = Reflector(self._api, kind, cache, clock=self._clock)
        return found


def controller_uid(obj: Object) -> str:
    """The UID of the object's controlling owner, or an empty string."""
    return next((ref.uid for ref in obj.metadata.owner_references if ref.controller), "")


def owner_uids(obj: Object) -> Iterable[str]:
    """Index function: objects by their controlling owner."""
    uid = controller_uid(obj)
    return (uid,) if uid else ()
