"""Gauges of every NodePool (controller `metrics.nodepool`): limits, usage and the hourly price of its machines."""

from __future__ import annotations

from collections.abc import Iterator

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.quantity import available
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.metrics.amounts import by_resource
from pykarpenter.controllers.metrics.refreshing import Refresher
from pykarpenter.core.disruption.costs import node_price
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.runtime.gauge_tables import GaugeTable, Series

NAME = "metrics.nodepool"


class NodePoolGauges:
    def __init__(self, ctx: Context, table: GaugeTable) -> None:
        self._ctx = ctx
        self._table = table
        self._pools = ctx.caches.of(kinds.NODE_POOL)
        self._costs: dict[str, float] = {}
        # Machines whose price was not to be found; each counts once.
        self._unpriced: dict[str, None] = {}
        self.refresher = Refresher(NAME, self.render, ctx.clock, self._look_again)
        ctx.caches.subscribe(kinds.NODE_POOL, self._pool_changed)

    async def run(self) -> None:
        await self.refresher.run()

    def _pool_changed(self, change: Changed[NodePool]) -> None:
        pool = change.new or change.old
        if pool is not None:
            self.refresher.touch(pool.name)

    def _look_again(self) -> None:
        """Prices and machines change without a change of the pool: each pass looks at all of them for the next."""
        self._costs = self._cost_by_pool()
        for pool in self._pools.values():
            self.refresher.touch(pool.name)

    def render(self, name: str) -> None:
        pool = self._pools.get(name)
        if pool is None:
            self._table.drop(name)
            return
        self._table.put(name, self._series(pool))

    def _series(self, pool: NodePool) -> Iterator[Series]:
        labelled = {"nodepool": pool.name}
        yield from by_resource("karpenter_nodepools_limit", labelled, available(pool.spec.limits))
        yield from by_resource("karpenter_nodepools_usage", labelled, self._ctx.state.pool_resources(pool.name))
        yield "karpenter_nodepools_cost_total", labelled, self._costs.get(pool.name, 0.0)

    def _cost_by_pool(self) -> dict[str, float]:
        state = self._ctx.state
        types: dict[str, dict[str, InstanceType]] = {}
        costs: dict[str, float] = {}
        unpriced: dict[str, None] = {}
        for view in state.views():
            pool = view.pool_name
            if not pool or view.node is None:
                continue
            if pool not in types:
                types[pool] = {found.name: found for found in state.instance_types(pool)}
            if not types[pool]:
                # Not listed yet: unknown is neither free nor an error.
                if view.name in self._unpriced:
                    unpriced[view.name] = None
                continue
            price = node_price(types[pool].get(view.labels.get(labels.INSTANCE_TYPE, "")), view.labels)
            if price is not None:
                costs[pool] = costs.get(pool, 0.0) + price
                continue
            unpriced[view.name] = None
            if view.name not in self._unpriced:
                self._ctx.metrics.count("karpenter_nodepools_cost_tracker_errors_total", {"nodepool": pool})
        self._unpriced = unpriced
        return costs
