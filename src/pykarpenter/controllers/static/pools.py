"""What both static controllers share: which pools they serve, when they look, and what the state knows."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pykarpenter.api import kinds
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.runtime.controller import Controller, Result
from pykarpenter.runtime.logs import get_logger

PERIOD_S = 60.0
# Nothing is created or removed while a kind is not served; looked at again this often (F33).
UNSERVED_S = 5.0
WORKERS = 10


class StaticPoolController(ABC):
    """Looks at a static pool whenever it or one of its claims changes, and once a minute."""

    name = ""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._pools = ctx.caches.of(kinds.NODE_POOL)
        self._log = get_logger(controller=self.name)
        self.controller: Controller[str] = Controller(self.name, self._when_served, clock=ctx.clock, workers=WORKERS)
        ctx.caches.subscribe(kinds.NODE_POOL, self._pool_changed)
        ctx.caches.subscribe(kinds.NODE_CLAIM, self._claim_changed)

    async def run(self) -> None:
        # Counting machines needs all of them to be known.
        await self._ctx.sync.wait_first()
        await self.controller.run()

    def _pool_changed(self, change: Changed[NodePool]) -> None:
        if change.new is not None and change.new.is_static:
            self.controller.enqueue(change.new.name)

    def _claim_changed(self, change: Changed[NodeClaim]) -> None:
        claim = change.new or change.old
        if claim is not None and claim.pool_name:
            self.controller.enqueue(claim.pool_name)

    def _pool(self, name: str) -> NodePool | None:
        pool = self._pools.get(name)
        if pool is None or not pool.is_static or pool.is_deleting:
            return None
        reference = pool.spec.template.spec.node_class_ref
        classes = self._ctx.provider.traits.node_classes
        managed = any(kind.group == reference.group and kind.kind == reference.kind for kind in classes)
        return pool if managed else None

    async def _when_served(self, name: str) -> Result | None:
        if self._ctx.caches.unserved():
            return Result(requeue_after_s=UNSERVED_S)
        return await self.reconcile(name)

    @abstractmethod
    async def reconcile(self, name: str) -> Result | None: ...
