"""Taint eviction: pods leave nodes whose NoExecute taints they do not tolerate, or tolerate only for a while."""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.api.nodes import Node, Taint
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import format_timestamp, parse_optional_timestamp
from pykarpenter.core.taints import tolerates
from pykarpenter.kube.cache import Change
from pykarpenter.kube.contract import DeleteOptions, Preconditions
from pykarpenter.sim.conditions import with_conditions
from pykarpenter.sim.workloads.part import Part, World


class TaintEviction(Part):
    """Keys are pod keys; a node's taints wake all of its pods."""

    def __init__(self, world: World) -> None:
        super().__init__("taint-eviction", world)
        self._nodes = self.views.of(kinds.NODE)
        self._pods = self.views.of(kinds.POD)
        self._pods.add_index("node", lambda pod: (pod.spec.node_name,))
        self.views.on_change(kinds.NODE, self._node_changed)
        self.views.on_change(kinds.POD, self._pod_changed)

    def _node_changed(self, change: Change[Node]) -> None:
        node = change.new
        if node is None or not _no_execute(node):
            return
        if change.old is None or change.old.spec.taints != node.spec.taints:
            for pod in self._pods.index("node", node.name):
                self.queue.enqueue(pod.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None or not pod.spec.node_name:
            return
        if change.old is None or not change.old.spec.node_name or change.old.spec.tolerations != pod.spec.tolerations:
            self.queue.enqueue(pod.key)

    async def reconcile(self, key: str) -> float | None:
        pod = self._pods.get(key)
        node = self._nodes.get(pod.spec.node_name) if pod is not None else None
        if pod is None or node is None or pod.is_deleting:
            return None
        taints = _no_execute(node)
        if not taints:
            return None
        left = self._may_stay(pod, taints)
        if left is None or left > 0:
            return left
        await self._evict(pod)
        return None

    def _may_stay(self, pod: Pod, taints: list[Taint]) -> float | None:
        """Seconds the pod may stay: None for ever, 0 when a taint is not tolerated at all."""
        shortest: float | None = None
        now = self.clock.now()
        for taint in taints:
            matching = [t for t in pod.spec.tolerations if tolerates(t, taint)]
            if not matching:
                return 0.0
            seconds = [t.toleration_seconds for t in matching if t.toleration_seconds is not None]
            if not seconds:
                continue
            since = parse_optional_timestamp(taint.time_added)
            left = max(0.0, (since if since is not None else now) + min(seconds) - now)
            shortest = left if shortest is None else min(shortest, left)
        return shortest

    async def _evict(self, pod: Pod) -> None:
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": format_timestamp(self.clock.now()),
        }
        patch = {
            "metadata": {"resourceVersion": pod.metadata.resource_version},
            "status": {"conditions": with_conditions(pod.status.conditions, condition)},
        }
        await self.api.patch(kinds.POD, pod.name, patch, pod.namespace, subresource="status")
        await self.api.delete(kinds.POD, pod.name, pod.namespace, DeleteOptions(Preconditions(uid=pod.uid)))


def _no_execute(node: Node) -> list[Taint]:
    return [taint for taint in node.spec.taints if taint.effect == "NoExecute"]
