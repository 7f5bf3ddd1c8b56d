"""Who asks for a plan: pods that the scheduler gave up on, and nodes that are being emptied.

Each is asked again every ten seconds while the need lasts, so that a plan that came to nothing is made anew.
"""

from __future__ import annotations

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.provisioning.batcher import Batcher
from pykarpenter.controllers.provisioning.pod_times import PodTimes
from pykarpenter.core.packing.eligibility import is_provisionable
from pykarpenter.runtime.controller import Controller, Result

RECHECK_S = 10.0


class PodTrigger:
    """Controller `provisioner.trigger.pod`."""

    def __init__(self, ctx: Context, batcher: Batcher, times: PodTimes) -> None:
        self._batcher = batcher
        self._times = times
        self._clock = ctx.clock
        self._pods = ctx.caches.of(kinds.POD)
        self._state = ctx.state
        self.controller: Controller[str] = Controller("provisioner.trigger.pod", self.reconcile, clock=ctx.clock)
        ctx.caches.subscribe(kinds.POD, self._pod_changed)
        ctx.caches.subscribe(kinds.NODE_CLAIM, self._claim_changed)

    async def reconcile(self, key: str) -> Result | None:
        pod = self._pods.get(key)
        if pod is None or not is_provisionable(pod):
            return None
        self._times.seen(pod, self._clock.now())
        self._batcher.trigger(pod.uid)
        return Result(requeue_after_s=RECHECK_S)

    async def run(self) -> None:
        await self.controller.run()

    def _pod_changed(self, change: Changed[Pod]) -> None:
        pod = change.new
        if pod is not None and is_provisionable(pod):
            self.controller.enqueue(pod.key)
        else:
            gone = change.old if pod is None else pod
            if gone is not None:
                self._times.forget(gone)

    def _claim_changed(self, change: Changed[NodeClaim]) -> None:
        """Pods whose machine will not come need not wait for their next turn."""
        claim = change.new or change.old
        if claim is not None and (change.new is None or claim.is_deleting):
            for key in self._times.waited_for(claim.name):
                self.controller.enqueue(key)


class NodeTrigger:
    """Controller `provisioner.trigger.node`: the pods of a disrupted node need room before they are evicted."""

    def __init__(self, ctx: Context, batcher: Batcher) -> None:
        self._batcher = batcher
        self._nodes = ctx.caches.of(kinds.NODE)
        self.controller: Controller[str] = Controller("provisioner.trigger.node", self.reconcile, clock=ctx.clock)
        ctx.caches.subscribe(kinds.NODE, self._node_changed)

    async def reconcile(self, name: str) -> Result | None:
        node = self._nodes.get(name)
        if node is None or not is_disrupted(node):
            return None
        self._batcher.trigger(node.uid)
        return Result(requeue_after_s=RECHECK_S)

    async def run(self) -> None:
        await self.controller.run()

    def _node_changed(self, change: Changed[Node]) -> None:
        if change.new is not None and is_disrupted(change.new):
            self.controller.enqueue(change.new.name)


def is_disrupted(node: Node) -> bool:
    return any(t.key == labels.DISRUPTED_TAINT and t.effect == "NoSchedule" for t in node.spec.taints)
