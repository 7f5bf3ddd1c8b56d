"""Evaluates NodeOverlays against all pools at once (gate NodeOverlay, controller `nodeoverlay.controller`).

An overlay that cannot be read, or that conflicts with another of its weight in any pool, takes part in none, and its
conditions say why. A pool whose types cannot be listed keeps its last evaluation and holds up no other.
"""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.api.extras import NodeOverlay
from pykarpenter.api.nodepool import NodeClass, NodePool
from pykarpenter.cloud.overlaid import OverlaidProvider
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.nodepool.pools import Pools
from pykarpenter.core import conditions
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.overlays import rejected_overlays
from pykarpenter.kube.errors import Conflict, NotFound
from pykarpenter.runtime.controller import Loop
from pykarpenter.runtime.logs import get_logger

NAME = "nodeoverlay.controller"
PERIOD_S = 6 * 3600.0
# Soon again when a pool could not be asked or a status not be written.
RETRY_S = 10.0
VALIDATION = "ValidationSucceeded"


class NodeOverlays:
    def __init__(self, ctx: Context, provider: OverlaidProvider) -> None:
        self._ctx = ctx
        self._provider = provider
        self._overlays = ctx.caches.of(kinds.NODE_OVERLAY)
        self._pools = ctx.caches.of(kinds.NODE_POOL)
        self._evaluated: dict[str, None] = {}
        self._log = get_logger(controller=NAME)
        self._loop = Loop(NAME, self.step, clock=ctx.clock)
        ctx.caches.subscribe(kinds.NODE_OVERLAY, self._overlay_changed)
        ctx.caches.subscribe(kinds.NODE_POOL, self._pool_changed)
        for kind in Pools(ctx).class_kinds.values():
            ctx.caches.subscribe(kind, self._class_changed)

    async def run(self) -> None:
        await self._loop.run()

    def _overlay_changed(self, change: Changed[NodeOverlay]) -> None:
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            self._loop.wake()

    def _pool_changed(self, change: Changed[NodePool]) -> None:
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            self._loop.wake()

    def _class_changed(self, change: Changed[NodeClass]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.metadata.generation != new.metadata.generation:
            self._loop.wake()

    async def step(self) -> float:
        overlays = [overlay for overlay in self._overlays.values() if not overlay.is_deleting]
        pools = [pool for pool in self._pools.values() if self._is_managed(pool)]
        complete = True
        evaluated: dict[str, None] = {}
        listed: list[tuple[NodePool, tuple[InstanceType, ...]]] = []
        for pool in pools:
            try:
                types = await self._provider.inner.instance_types(pool)
            except Exception as error:
                self._log.error("instance types cannot be listed", error=error, nodepool=pool.name)
                complete = False
                if pool.uid in self._evaluated:
                    evaluated[pool.uid] = None
                continue
            listed.append((pool, tuple(types)))
            evaluated[pool.uid] = None
        rejected = rejected_overlays(listed, overlays, self._provider.traits.label_rules)
        self._evaluated = evaluated
        self._provider.use([overlay for overlay in overlays if overlay.name not in rejected], evaluated)
        self._ctx.state.mark_unconsolidated()
        for overlay in overlays:
            complete = await self._write(overlay, rejected.get(overlay.name)) and complete
        return PERIOD_S if complete else RETRY_S

    def _is_managed(self, pool: NodePool) -> bool:
        reference = pool.spec.template.spec.node_class_ref
        classes = self._ctx.provider.traits.node_classes
        return any(kind.group == reference.group and kind.kind == reference.kind for kind in classes)

    async def _write(self, overlay: NodeOverlay, why: tuple[str, str] | None) -> bool:
        """Whether the conditions stand as they should; a stale version is tried again in the next pass."""
        finding = conditions.true(VALIDATION) if why is None else conditions.false(VALIDATION, *why)
        present = overlay.status.conditions
        after = conditions.NODE_OVERLAY.apply(present, overlay.metadata, self._ctx.clock.now(), finding)
        if after == present:
            return True
        body = {
            "metadata": {"resourceVersion": overlay.metadata.resource_version},
            "status": {"conditions": conditions.to_wire(after)},
        }
        try:
            await self._ctx.api.patch(kinds.NODE_OVERLAY, overlay.name, body, subresource="status")
        except Conflict:
            return False
        except NotFound:
            return True
        return True
