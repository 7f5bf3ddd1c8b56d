"""Who asks for a plan: pods that the scheduler gave up on, and nodes that are being emptied.

Each is asked again every ten seconds while the need lasts, so that a plan that came to nothing is made anew.
"""

from __future__ import annotations

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.pod_times import PodTimes
from pykarpenter.controllers.provisioning.batcher import Batcher
from pykarpenter.controllers.provisioning.losses import serves, taken_away
from pykarpenter.controllers.provisioning.purchases import YOUNG_S, Purchases, workload_of
from pykarpenter.core.draining import is_reschedulable, is_terminal
from pykarpenter.core.packing.eligibility import is_provisionable
from pykarpenter.core.taints import first_untolerated
from pykarpenter.runtime.controller import Controller, Result

RECHECK_S = 10.0


class PodTrigger:
    """Controller `provisioner.trigger.pod`."""

    def __init__(self, ctx: Context, batcher: Batcher, times: PodTimes, purchases: Purchases) -> None:
        self._batcher = batcher
        self._times = times
        self._purchases = purchases
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
                self._note_eviction(change)
                self._note_binding(change)
                self._times.forget(gone)
                self._purchases.forget(gone)

    def _note_binding(self, change: Changed[Pod]) -> None:
        """A machine that takes a pod fits others of its workload, whoever came first."""
        pod = change.new
        if pod is None or not pod.spec.node_name or (change.old is not None and change.old.spec.node_name):
            return
        view = self._state.view_of_node(pod.spec.node_name)
        if view is not None and view.claim is not None:
            self._purchases.kept(pod, view.claim.name)

    def _note_eviction(self, change: Changed[Pod]) -> None:
        """A pod that a foreign taint drives out of a machine that was just bought: that machine was bought in vain."""
        before, after = change.old, change.new
        if before is None or not before.spec.node_name or before.is_deleting or is_terminal(before):
            return
        if after is not None and not after.is_deleting:
            return
        view = self._state.view_of_node(before.spec.node_name)
        if view is None or view.claim is None or view.marked_for_deletion or view.node is None:
            return
        now = self._clock.now()
        created = parse_optional_timestamp(view.claim.metadata.creation_timestamp) or 0.0
        fences = [taint for taint in view.node.spec.taints if taint.effect == "NoExecute"]
        if now - created < YOUNG_S and first_untolerated(fences, before.spec.tolerations) is not None:
            self._purchases.driven_out(before, view.claim.name, now)

    def _claim_changed(self, change: Changed[NodeClaim]) -> None:
        """Pods whose machine will not come need not wait for their next turn."""
        claim = change.new or change.old
        if claim is None:
            return
        now = self._clock.now()
        if claim.status.provider_id:
            self._purchases.launched(claim.name, now)
        if taken_away(change.old, change.new, now):
            self._note_loss(claim, now)
        if change.new is None or claim.is_deleting:
            for key in self._purchases.gone(claim.name, now):
                self.controller.enqueue(key)

    def _note_loss(self, claim: NodeClaim, now: float) -> None:
        pods = self._state.pods_on(claim.status.node_name) if claim.status.node_name else []
        workloads = dict.fromkeys(workload_of(pod) for pod in pods if is_reschedulable(pod))
        self._purchases.losses.note(workloads, now, lambda workload: self._is_served(workload, now))

    def _is_served(self, workload: str, now: float) -> bool:
        """Whether a machine that is settled holds a pod of the workload."""
        settled = (view for view in self._state.views() if not view.marked_for_deletion and serves(view.claim, now))
        return any(workload_of(pod) == workload for view in settled for pod in view.pods)


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
