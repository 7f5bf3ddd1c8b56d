"""Keeps the cluster state's instance types current: asks the provider about each pool before a plan is made.

A pool whose provider does not answer keeps what was last known of it; one that was never answered for stays unknown
and is left out of plans. One broken pool holds up no other (L6).
"""

from __future__ import annotations

import asyncio

from pykarpenter.api.nodepool import NodePool
from pykarpenter.cloud.errors import UnevaluatedNodePool
from pykarpenter.controllers.context import Context
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.runtime.logs import get_logger

# One pool's answer; a provider that hangs must not hold up the others.
ASK_TIMEOUT_S = 30.0
AGE = "pykarpenter_catalogue_age_seconds"


class Catalogue:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._kinds = {(kind.group, kind.kind) for kind in ctx.provider.traits.node_classes}
        self._tuples: dict[str, tuple[list[InstanceType], tuple[InstanceType, ...]]] = {}
        self._answered_at: dict[str, float] = {}
        self._log = get_logger(controller="provisioner")

    async def refresh(self) -> None:
        """Ask about every managed pool; static pools too, because their nodes' types bound what fits on them."""
        pools = [pool for pool in self._ctx.state.node_pools() if self._is_managed(pool)]
        for gone in sorted(set(self._tuples) - {pool.name for pool in pools}):
            del self._tuples[gone]
            self._answered_at.pop(gone, None)
            self._ctx.metrics.forget(AGE, {"nodepool": gone})
            self._ctx.state.set_instance_types(gone, None)
        for pool in pools:
            await self._ask(pool)

    def _is_managed(self, pool: NodePool) -> bool:
        reference = pool.spec.template.spec.node_class_ref
        return (reference.group, reference.kind) in self._kinds

    async def _ask(self, pool: NodePool) -> None:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                types = await self._ctx.provider.instance_types(pool)
        except UnevaluatedNodePool:
            self._ctx.state.set_instance_types(pool.name, None)
            return
        except Exception as error:
            self._log.error("getting instance types failed", NodePool=pool.name, error=error)
            self._note_age(pool.name)
            return
        self._answered_at[pool.name] = self._ctx.clock.now()
        self._note_age(pool.name)
        known = self._tuples.get(pool.name)
        if known is None or known[0] is not types:
            known = self._tuples[pool.name] = (types, tuple(types))
        self._ctx.state.set_instance_types(pool.name, known[1])

    def _note_age(self, pool: str) -> None:
        at = self._answered_at.get(pool)
        if at is not None:
            age = max(0.0, self._ctx.clock.now() - at)
            self._ctx.metrics.gauge(AGE, {"nodepool": pool}, age)
