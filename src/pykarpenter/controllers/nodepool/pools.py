"""What the NodePool controllers share: which pools are ours, their class and claims, and how a change wakes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from pykarpenter.api import kinds, labels
from pykarpenter.api.kinds import Kind
from pykarpenter.api.nodepool import NodeClaim, NodeClass, NodeClassReference, NodePool
from pykarpenter.api.nodes import ObjectReference
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.nodepool.writes import PoolWriter
from pykarpenter.kube.events import reference_to
from pykarpenter.runtime.controller import Controller, Result
from pykarpenter.runtime.logs import get_logger


class Pools:
    """The managed NodePools and what belongs to them, as last seen.

    A pool whose class is of a kind that the provider does not serve belongs to another controller and is left alone.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._pools = ctx.caches.of(kinds.NODE_POOL)
        self._claims = ctx.caches.of(kinds.NODE_CLAIM)
        self.class_kinds: dict[tuple[str, str], Kind[NodeClass]] = {
            (kind.group, kind.kind): kinds.node_class_kind(kind.group, kind.version, kind.kind, kind.plural)
            for kind in ctx.provider.traits.node_classes
        }

    def is_managed(self, pool: NodePool) -> bool:
        ref = pool.spec.template.spec.node_class_ref
        return (ref.group, ref.kind) in self.class_kinds

    def misnamed(self, name: str) -> NodePool | None:
        """The pool, if its class is of the provider's group but of a kind that nobody can serve."""
        pool = self._pools.get(name)
        if pool is None or self.is_managed(pool):
            return None
        group = pool.spec.template.spec.node_class_ref.group
        return pool if any(known == group for known, _ in self.class_kinds) else None

    def get(self, name: str) -> NodePool | None:
        """The pool, if it exists and is ours."""
        pool = self._pools.get(name)
        return pool if pool is not None and self.is_managed(pool) else None

    def node_class(self, pool: NodePool) -> NodeClass | None:
        ref = pool.spec.template.spec.node_class_ref
        return self._ctx.caches.of(self.class_kinds[ref.group, ref.kind]).get(ref.name)

    def claims_of(self, pool: NodePool) -> Iterator[NodeClaim]:
        """Lazy, because most passes over a pool need none of its thousands of claims."""
        return (claim for claim in self._claims.values() if claim.metadata.labels.get(labels.NODEPOOL) == pool.name)

    def claims_of_class(self, ref: NodeClassReference) -> Iterator[NodeClaim]:
        return (claim for claim in self._claims.values() if claim.spec.node_class_ref == ref)

    def names_using(self, group: str, kind: str, class_name: str) -> list[str]:
        """Pools that refer to a class."""
        wanted = NodeClassReference(group=group, kind=kind, name=class_name)
        return [pool.name for pool in self._pools.values() if pool.spec.template.spec.node_class_ref == wanted]


class PoolController(ABC):
    """A keyed controller over managed NodePools; subclasses say what one pool needs."""

    name = ""
    workers = (10, 1000)

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.pools = Pools(ctx)
        self.writer = PoolWriter(ctx)
        self.log = get_logger(controller=self.name)
        reconcile: Callable[[str], Awaitable[Result | None]] = self._reconcile_name
        self.controller: Controller[str] = Controller(
            self.name, reconcile, clock=ctx.clock, workers=ctx.settings.workers(*self.workers)
        )
        ctx.caches.subscribe(kinds.NODE_POOL, self.pool_changed)

    async def run(self) -> None:
        await self.controller.run()

    def pool_changed(self, change: Changed[NodePool]) -> None:
        if change.new is not None:
            self.controller.enqueue(change.new.name)

    def watch_classes(self) -> None:
        """Wake pools when their class changes."""
        for kind in self.pools.class_kinds.values():
            self.ctx.caches.subscribe(kind, self._class_changed(kind))

    def _class_changed(self, kind: Kind[NodeClass]) -> Callable[[Changed[NodeClass]], None]:
        def handle(change: Changed[NodeClass]) -> None:
            found = change.new or change.old
            if found is not None:
                for name in self.pools.names_using(kind.group, kind.kind, found.name):
                    self.controller.enqueue(name)

        return handle

    async def _reconcile_name(self, name: str) -> Result | None:
        pool = self.pools.get(name)
        return None if pool is None else await self.reconcile(pool)

    @abstractmethod
    async def reconcile(self, pool: NodePool) -> Result | None: ...

    def warn(self, pool: NodePool, reason: str, message: str, **facts: Any) -> None:
        """A warning event, and the same in the log."""
        self.ctx.recorder.publish(pool_reference(pool), "Warning", reason, message, **facts)
        self.log.info(message, nodepool=pool.name, reason=reason)


def pool_reference(pool: NodePool) -> ObjectReference:
    return reference_to(kinds.NODE_POOL, pool)
