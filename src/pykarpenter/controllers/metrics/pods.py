"""Gauges and times of pods (controller `metrics.pod`): where they run, and how long they waited for it.

Times of the `provisioning` families count from when this process first saw the pod, the others from its creation; what
happened before this process started is not measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import condition_status, find_condition
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.metrics.refreshing import Refresher
from pykarpenter.core.draining import is_terminal
from pykarpenter.core.packing.eligibility import is_provisionable
from pykarpenter.runtime.gauge_tables import GaugeTable, Series

NAME = "metrics.pod"
_STARTED = ("Running", "Succeeded", "Failed")


class PodGauges:
    def __init__(self, ctx: Context, table: GaugeTable) -> None:
        self._ctx = ctx
        self._table = table
        self._pods = ctx.caches.of(kinds.POD)
        self._seen_at: dict[str, float] = {}
        self.refresher = Refresher(NAME, self.render, ctx.clock, lambda: None)
        ctx.caches.subscribe(kinds.POD, self._pod_changed)

    async def run(self) -> None:
        await self.refresher.run()

    def _pod_changed(self, change: Changed[Pod]) -> None:
        pod, before = change.new, change.old
        if pod is None:
            if before is not None:
                self._seen_at.pop(before.uid, None)
                self.refresher.touch(before.key)
            return
        self.refresher.touch(pod.key)
        if is_provisionable(pod):
            self._seen_at.setdefault(pod.uid, self._ctx.clock.now())
        if before is not None and before.uid == pod.uid:
            self._measure(before, pod)
        if is_terminal(pod):
            self._seen_at.pop(pod.uid, None)

    def _measure(self, before: Pod, pod: Pod) -> None:
        metrics, now = self._ctx.metrics, self._ctx.clock.now()
        created = parse_optional_timestamp(pod.metadata.creation_timestamp)
        seen = self._seen_at.get(pod.uid)
        if not before.spec.node_name and pod.spec.node_name:
            needs = {"dynamic_resources": _needs_devices(pod)}
            at = _since(pod, "PodScheduled") or now
            if created is not None:
                metrics.observe("karpenter_pods_bound_duration_seconds", needs, max(0.0, at - created))
            if seen is not None:
                metrics.observe("karpenter_pods_provisioning_bound_duration_seconds", needs, max(0.0, now - seen))
        if before.status.phase != "Running" and pod.status.phase == "Running":
            at = _since(pod, "Ready") or now
            if created is not None:
                metrics.observe("karpenter_pods_startup_duration_seconds", {}, max(0.0, at - created))
            if seen is not None:
                metrics.observe("karpenter_pods_provisioning_startup_duration_seconds", {}, max(0.0, now - seen))

    def render(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None:
            self._table.drop(key)
            return
        self._table.put(key, [("karpenter_pods_state", self._state_labels(pod), 1.0)], self._waits(pod))

    def _state_labels(self, pod: Pod) -> dict[str, str]:
        view = self._ctx.state.view_of_node(pod.spec.node_name) if pod.spec.node_name else None
        of_node = view.labels if view is not None else {}
        owner = pod.metadata.owner_references[0] if pod.metadata.owner_references else None
        return {
            "name": pod.name,
            "namespace": pod.namespace,
            "owner": f"{owner.kind}/{owner.name}" if owner is not None else "",
            "node": pod.spec.node_name,
            "scheduled": str(bool(pod.spec.node_name)).lower(),
            "nodepool": of_node.get(labels.NODEPOOL, ""),
            "zone": of_node.get(labels.ZONE, ""),
            "arch": of_node.get(labels.ARCH, ""),
            "capacity_type": of_node.get(labels.CAPACITY_TYPE, ""),
            "instance_type": of_node.get(labels.INSTANCE_TYPE, ""),
            "phase": pod.status.phase,
            "ready": str(condition_status(pod.status.conditions, "Ready") == "True").lower(),
            "managed": str(view is not None and view.managed).lower(),
        }

    def _waits(self, pod: Pod) -> Iterator[Series]:
        if is_terminal(pod) or pod.status.phase in _STARTED:
            return
        names = {"name": pod.name, "namespace": pod.namespace}
        created = parse_optional_timestamp(pod.metadata.creation_timestamp)
        seen = self._seen_at.get(pod.uid)
        if created is not None:
            yield "karpenter_pods_unstarted_time_seconds", names, created
        if seen is not None:
            yield "karpenter_pods_provisioning_unstarted_time_seconds", names, seen
        if pod.spec.node_name:
            return
        needs = {**names, "dynamic_resources": _needs_devices(pod)}
        if created is not None:
            yield "karpenter_pods_unbound_time_seconds", needs, created
        if seen is not None:
            yield "karpenter_pods_provisioning_unbound_time_seconds", needs, seen
            if not self._ctx.pod_times.is_decided(pod):
                self.refresher.touch(pod.key)
                yield "karpenter_pods_provisioning_scheduling_undecided_time_seconds", names, seen


def _needs_devices(pod: Pod) -> str:
    return str(bool(pod.spec.resource_claims)).lower()


def _since(pod: Pod, condition: str) -> float | None:
    found = find_condition(pod.status.conditions, condition)
    return (
        parse_optional_timestamp(found.last_transition_time) if found is not None and found.status == "True" else None
    )
