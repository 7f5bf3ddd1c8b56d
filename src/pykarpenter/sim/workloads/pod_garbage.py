"""Pod garbage collection: pods of nodes that no longer exist, and leaving pods that never had a node."""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.kube.cache import Change
from pykarpenter.kube.contract import DeleteOptions, Preconditions
from pykarpenter.kube.errors import NotFound
from pykarpenter.sim.workloads.part import Part, World

# How long a node must be gone before its pods are: kube-controller-manager's quarantine.
QUARANTINE_S = 40.0


class PodGarbage(Part):
    def __init__(self, world: World) -> None:
        super().__init__("podgc", world)
        self._nodes = self.views.of(kinds.NODE)
        self._pods = self.views.of(kinds.POD)
        self._pods.add_index("node", lambda pod: (pod.spec.node_name,))
        self.views.on_change(kinds.NODE, self._node_changed)
        self.views.on_change(kinds.POD, self._pod_changed)

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is None and change.old is not None:
            for pod in self._pods.index("node", change.old.name):
                self.queue.enqueue_after(pod.key, QUARANTINE_S)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None:
            return
        if not pod.spec.node_name:
            if pod.is_deleting:
                self.queue.enqueue(pod.key)
        elif pod.spec.node_name not in self._nodes and (change.old is None or not change.old.spec.node_name):
            self.queue.enqueue_after(pod.key, QUARANTINE_S)

    async def reconcile(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None:
            return None
        if pod.spec.node_name:
            if pod.spec.node_name in self._nodes:
                return None
            try:
                await self.api.get(kinds.NODE, pod.spec.node_name)
                return None
            except NotFound:
                pass
            if pod.status.phase not in ("Succeeded", "Failed"):
                patch = {"metadata": {"uid": pod.uid}, "status": {"phase": "Failed"}}
                await self.api.patch(kinds.POD, pod.name, patch, pod.namespace, subresource="status")
        elif not pod.is_deleting:
            return None
        await self.api.delete(
            kinds.POD, pod.name, pod.namespace, DeleteOptions(Preconditions(uid=pod.uid), grace_period_s=0)
        )
        return None
