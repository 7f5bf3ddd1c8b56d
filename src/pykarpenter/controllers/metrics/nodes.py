"""Gauges of every machine (controller `metrics.node`): allocatable, what pods and daemons ask for, overhead, age."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pykarpenter.api import kinds
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.api.quantity import available
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.metrics.amounts import by_resource, pod_limits
from pykarpenter.controllers.metrics.refreshing import Refresher
from pykarpenter.core.resources import Resources, add, pod_requests, subtract, total
from pykarpenter.core.snapshot import NodeView
from pykarpenter.runtime.gauge_tables import GaugeTable, Series, label_text
from pykarpenter.state.pods import daemon_set_uid

NAME = "metrics.node"


def snake_suffix(key: str) -> str:
    """`node.kubernetes.io/instance-type` as `instance_type`."""
    return re.sub(r"[^a-zA-Z0-9]+", "_", key.rpartition("/")[2]).lower()


class NodeGauges:
    def __init__(self, ctx: Context, table: GaugeTable) -> None:
        self._ctx = ctx
        self._table = table
        self._nodes = ctx.caches.of(kinds.NODE)
        self._labels = sorted((snake_suffix(key), key) for key in ctx.provider.traits.label_rules.well_known)
        # What each node has and what is asked of it, for the utilisation of the whole cluster.
        self._amounts: dict[str, tuple[Resources, Resources]] = {}
        self.refresher = Refresher(NAME, self.render, ctx.clock, self._show_utilisation)
        ctx.caches.subscribe(kinds.NODE, self._node_changed)
        ctx.caches.subscribe(kinds.POD, self._pod_changed)

    async def run(self) -> None:
        await self.refresher.run()

    def _node_changed(self, change: Changed[Node]) -> None:
        node = change.new or change.old
        if node is not None:
            self.refresher.touch(node.name)

    def _pod_changed(self, change: Changed[Pod]) -> None:
        for pod in (change.old, change.new):
            if pod is not None and pod.spec.node_name:
                self.refresher.touch(pod.spec.node_name)

    def render(self, name: str) -> None:
        view = self._ctx.state.view_of_node(name)
        if view is None or view.node is None:
            self._table.drop(name)
            self._amounts.pop(name, None)
            return
        labels = label_text(self.labels_of(view))
        created = parse_optional_timestamp(view.node.metadata.creation_timestamp)
        ages = [("karpenter_nodes_current_lifetime_seconds", labels, created)] if created is not None else []
        self._table.put(name, self._series(view, view.node, labels), ages)

    def labels_of(self, view: NodeView) -> dict[str, str]:
        node = view.node
        return {
            "node_name": view.name,
            "phase": node.status.phase if node is not None else "",
            "managed": str(view.managed).lower(),
            **{name: view.labels.get(key, "") for name, key in self._labels},
        }

    def _series(self, view: NodeView, node: Node, labels: str) -> Iterator[Series]:
        daemons = [pod for pod in view.pods if daemon_set_uid(pod)]
        others = [pod for pod in view.pods if not daemon_set_uid(pod)]
        allocatable, capacity = available(node.status.allocatable), available(node.status.capacity)
        of_pods, of_daemons = total(map(pod_requests, others)), total(map(pod_requests, daemons))
        self._amounts[view.name] = (allocatable, add(of_pods, of_daemons))
        for family, amounts in (
            ("karpenter_nodes_allocatable", allocatable),
            ("karpenter_nodes_total_pod_requests", of_pods),
            ("karpenter_nodes_total_pod_limits", total(map(pod_limits, others))),
            ("karpenter_nodes_total_daemon_requests", of_daemons),
            ("karpenter_nodes_total_daemon_limits", total(map(pod_limits, daemons))),
            ("karpenter_nodes_system_overhead", subtract(capacity, allocatable)),
        ):
            yield from by_resource(family, labels, amounts)

    def _show_utilisation(self) -> None:
        allocatable = total(has for has, _ in self._amounts.values())
        asked = total(used for _, used in self._amounts.values())
        for resource, amount in sorted(allocatable.items()):
            if amount > 0:
                percent = 100.0 * asked.get(resource, 0) / amount
                self._ctx.metrics.gauge("karpenter_cluster_utilization_percent", {"resource_type": resource}, percent)
