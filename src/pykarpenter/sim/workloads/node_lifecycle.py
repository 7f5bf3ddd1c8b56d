"""Node lifecycle: silent nodes become Unknown, conditions and cordons become taints.

A node is silent when neither its lease nor its status changed for the grace period, by this controller's own clock.
Nodes without a lease are never judged: nobody promised to renew one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pykarpenter.api import kinds
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodes import Lease, Node
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.kube.cache import Change
from pykarpenter.kube.contract import Json
from pykarpenter.kube.errors import Conflict, NotFound
from pykarpenter.sim.conditions import with_conditions
from pykarpenter.sim.workloads.owned_pods import is_ready
from pykarpenter.sim.workloads.part import Part, World

# kube-controller-manager's node-monitor-grace-period.
GRACE_S = 50.0

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
# (condition, status) -> taint key; all of them keep new pods away, the first two also push running ones out.
_BY_CONDITION = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_OWNED = frozenset(_BY_CONDITION.values()) | {UNSCHEDULABLE}
_LEASE_NAMESPACE = "kube-node-lease"


class NodeLifecycle(Part):
    def __init__(self, world: World, grace_s: float = GRACE_S) -> None:
        super().__init__("nodelifecycle", world)
        self._grace_s = grace_s
        self._nodes = self.views.of(kinds.NODE)
        self._pods = self.views.of(kinds.POD)
        self._pods.add_index("node", lambda pod: (pod.spec.node_name,))
        # When each node last gave a sign of life, and the nodes that promise to give some.
        self._heard: dict[str, float] = {}
        self._leased: dict[str, None] = {}
        self.views.on_change(kinds.NODE, self._node_changed)
        self.views.on_change(kinds.LEASE, self._lease_changed)

    def _node_changed(self, change: Change[Node]) -> None:
        node = change.new
        if node is None:
            assert change.old is not None
            self._heard.pop(change.old.name, None)
            self._leased.pop(change.old.name, None)
            return
        self.queue.enqueue(node.name)

    def _lease_changed(self, change: Change[Lease]) -> None:
        lease = change.new
        if lease is None or lease.namespace != _LEASE_NAMESPACE:
            return
        first = lease.name not in self._leased
        self._leased[lease.name] = None
        self._heard[lease.name] = self.clock.monotonic()
        if first:
            self.queue.enqueue_after(lease.name, self._grace_s)

    async def reconcile(self, key: str) -> float | None:
        node = self._nodes.get(key)
        if node is None:
            return None
        wanted = wanted_taints(node)
        if wanted != [(t.key, t.effect) for t in node.spec.taints if t.key in _OWNED]:
            await self._taint(node, wanted)
        if key not in self._leased:
            return None
        left = self._heard[key] + self._grace_s - self.clock.monotonic()
        if left > 0:
            return left
        if condition_status(node.status.conditions, "Ready") != "Unknown":
            await self._declare_unknown(node)
        return self._grace_s

    async def _taint(self, node: Node, wanted: list[tuple[str, str]]) -> None:
        now = format_timestamp(self.clock.now())
        present = {(t.key, t.effect): t for t in node.spec.taints}
        taints: list[Json] = [_taint_body(t) for t in node.spec.taints if t.key not in _OWNED]
        for key, effect in wanted:
            before = present.get((key, effect))
            taints.append(_taint_body(before) if before else {"key": key, "effect": effect, "timeAdded": now})
        patch = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": taints or None},
        }
        await self.api.patch(kinds.NODE, node.name, patch)

    async def _declare_unknown(self, node: Node) -> None:
        now = format_timestamp(self.clock.now())
        conditions = [
            {
                "type": kind,
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastTransitionTime": now,
            }
            for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
        ]
        patch = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "status": {"conditions": with_conditions(node.status.conditions, *conditions)},
        }
        await self.api.patch(kinds.NODE, node.name, patch, subresource="status")
        for pod in self._pods.index("node", node.name):
            if is_ready(pod):
                await self._mark_not_ready(pod, now)

    async def _mark_not_ready(self, pod: Pod, now: str) -> None:
        condition = {"type": "Ready", "status": "False", "reason": "NodeNotReady", "lastTransitionTime": now}
        patch = {
            "metadata": {"resourceVersion": pod.metadata.resource_version},
            "status": {"conditions": with_conditions(pod.status.conditions, condition)},
        }
        with suppress(NotFound, Conflict):
            await self.api.patch(kinds.POD, pod.name, patch, pod.namespace, subresource="status")


def wanted_taints(node: Node) -> list[tuple[str, str]]:
    """The (key, effect) pairs that a node's conditions and cordon ask for, in the order they are already in."""
    wanted: dict[tuple[str, str], None] = {}
    for condition in node.status.conditions:
        key = _BY_CONDITION.get((condition.type, condition.status))
        if key is not None:
            wanted[(key, "NoSchedule")] = None
            if key in (NOT_READY, UNREACHABLE):
                wanted[(key, "NoExecute")] = None
    if not any(condition.type == "Ready" for condition in node.status.conditions):
        wanted[(NOT_READY, "NoSchedule")] = None
        wanted[(NOT_READY, "NoExecute")] = None
    if node.spec.unschedulable:
        wanted[(UNSCHEDULABLE, "NoSchedule")] = None
    present = [(t.key, t.effect) for t in node.spec.taints if (t.key, t.effect) in wanted]
    return [*present, *(pair for pair in wanted if pair not in present)]


def _taint_body(taint: Any) -> Json:
    body = {"key": taint.key, "effect": taint.effect}
    if taint.value:
        body["value"] = taint.value
    if taint.time_added:
        body["timeAdded"] = taint.time_added
    return body
