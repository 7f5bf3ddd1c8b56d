"""The caches of all watched kinds: each kind that somebody asks for is listed and watched once.

For every change the cluster state hears first, then the controllers, so that a controller that reacts never finds the
state behind its own cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pykarpenter.api import kinds
from pykarpenter.api.kinds import Kind
from pykarpenter.controllers.context import Changed
from pykarpenter.controllers.identity import BY_NODE_NAME, CLAIMS_BY_PROVIDER_ID, NODES_BY_PROVIDER_ID
from pykarpenter.kube.cache import Cache, IndexKeys
from pykarpenter.kube.contract import KubeApi
from pykarpenter.kube.observer import IGNORE_KUBE, KubeObserver
from pykarpenter.kube.reflector import Reflector
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.garbage import GarbagePause

T = TypeVar("T")

INDEXES: dict[str, dict[str, IndexKeys[Any]]] = {
    kinds.POD.kind: {BY_NODE_NAME: lambda pod: [pod.spec.node_name] if pod.spec.node_name else []},
    kinds.NODE.kind: {
        NODES_BY_PROVIDER_ID: lambda node: [node.spec.provider_id] if node.spec.provider_id else [],
    },
    kinds.NODE_CLAIM.kind: {
        CLAIMS_BY_PROVIDER_ID: lambda claim: [claim.status.provider_id] if claim.status.provider_id else [],
    },
    kinds.VOLUME_ATTACHMENT.kind: {BY_NODE_NAME: lambda item: [item.spec.node_name]},
}


class Watches:
    """Satisfies `context.Caches`."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        *,
        observer: KubeObserver = IGNORE_KUBE,
        garbage: GarbagePause | None = None,
        chance: Callable[[], float] | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._observer = observer
        self._garbage = garbage
        self._chance = chance
        self._reflectors: dict[str, Reflector[Any]] = {}

    def of(self, kind: Kind[T]) -> Cache[T]:
        return self._reflector(kind).cache

    def subscribe(self, kind: Kind[T], handler: Callable[[Changed[T]], None]) -> None:
        self._reflector(kind).add_handler(handler)

    def feed(self, watched: Iterable[Kind[Any]], observe: Callable[[Kind[Any], Any, Any], None]) -> None:
        """Tell a state about every change of these kinds; call it before any controller subscribes."""
        for kind in watched:
            self._reflector(kind).add_handler(_observer_of(kind, observe))

    @property
    def synced(self) -> bool:
        return all(reflector.cache.synced for reflector in self._reflectors.values())

    def unsynced(self) -> list[str]:
        return sorted(name for name, reflector in self._reflectors.items() if not reflector.cache.synced)

    def unserved(self) -> list[str]:
        return sorted(name for name, found in self._reflectors.items() if found.cache.synced and not found.cache.served)

    async def wait_synced(self) -> None:
        for reflector in list(self._reflectors.values()):
            await reflector.wait_synced()

    async def run(self) -> None:
        """List and watch every kind that was asked for, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, reflector in self._reflectors.items():
                group.create_task(reflector.run(), name=f"watch-{name}")

    def _reflector(self, kind: Kind[T]) -> Reflector[T]:
        known = self._reflectors.get(f"{kind.group}/{kind.kind}")
        if known is None:
            cache: Cache[T] = Cache(indexes=INDEXES.get(kind.kind))
            known = Reflector(
                self._api,
                kind,
                cache,
                clock=self._clock,
                observer=self._observer,
                garbage=self._garbage,
                chance=self._chance,
            )
            self._reflectors[f"{kind.group}/{kind.kind}"] = known
        return known


def _observer_of(kind: Kind[T], observe: Callable[[Kind[Any], Any, Any], None]) -> Callable[[Changed[T]], None]:
    def handle(change: Changed[T]) -> None:
        observe(kind, change.old, change.new)

    return handle
