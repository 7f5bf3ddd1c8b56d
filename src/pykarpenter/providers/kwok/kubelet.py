"""Simulated kubelets: one process keeps any number of Nodes Ready and runs the pods bound to them.

Everything it knows is in the cluster, so it can stop and start at any time, beside or apart from the controller:
Nodes it finds are adopted. It writes only the status of its Nodes and pods, leases, and the final delete of a pod
whose grace is over; it never creates or deletes a Node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pykarpenter.api.kinds import LEASE, NODE, POD
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.kube.cache import Cache, Change
from pykarpenter.kube.contract import DeleteOptions, Json, KubeApi, Preconditions, Selection
from pykarpenter.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from pykarpenter.kube.reflector import Reflector
from pykarpenter.providers.kwok import kubelet_status as status
from pykarpenter.providers.kwok.machines import FAKE_NODE
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.controller import Controller, Result

Publisher = Callable[[Node], Awaitable[None]]

_BY_NODE = "spec.nodeName"


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """Which Nodes are simulated and how quickly they act; times in seconds."""

    nodes: Selection = field(default_factory=lambda: Selection(label_selector=f"{FAKE_NODE}=fake"))
    # Kubelets renew every 10 s; None writes no leases, for worlds in which nobody reads them.
    lease_interval_s: float | None = 10.0
    status_interval_s: float = 300.0
    node_ready_s: float = 0.0
    pod_start_s: float = 1.0
    pod_stop_s: float = 1.0
    workers: int = 20


class Kubelets:
    """Runs until cancelled; `publishers` are called once for each Node that turns Ready (CSI drivers, devices)."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        options: KubeletOptions | None = None,
        publishers: Sequence[Publisher] = (),
    ) -> None:
        self._api = api
        self._clock = clock
        self._options = options or KubeletOptions()
        self._publishers = list(publishers)
        self._published: dict[str, None] = {}
        self._beats: dict[str, float] = {}
        self.nodes: Cache[Node] = Cache()
        self.pods: Cache[Pod] = Cache(indexes={_BY_NODE: lambda pod: [pod.spec.node_name]})
        workers = self._options.workers
        self._node_work: Controller[str] = Controller(
            "kwok.kubelet.nodes", self._reconcile_node, clock=clock, workers=workers, backoff=(0.2, 10.0)
        )
        self._lease_work: Controller[str] = Controller(
            "kwok.kubelet.leases", self._renew_lease, clock=clock, workers=workers
        )
        self._pod_work: Controller[str] = Controller(
            "kwok.kubelet.pods", self._reconcile_pod, clock=clock, workers=workers, backoff=(0.2, 10.0)
        )

    async def run(self) -> None:
        bound = Selection(field_selector="spec.nodeName!=")
        nodes = Reflector(
            self._api,
            NODE,
            self.nodes,
            clock=self._clock,
            selection=self._options.nodes,
            handlers=[self._node_changed],
        )
        pods = Reflector(self._api, POD, self.pods, clock=self._clock, selection=bound, handlers=[self._pod_changed])
        async with asyncio.TaskGroup() as group:
            for work in (nodes, pods, self._node_work, self._lease_work, self._pod_work):
                group.create_task(work.run(), name=type(work).__name__)

    async def complete(self, namespace: str, name: str) -> None:
        """End a running pod successfully, as its program would have."""
        pod = self.pods.get(f"{namespace}/{name}")
        if pod is not None:
            await self._patch_pod(pod, status.finished_patch(pod, self._clock.now(), succeeded=True))

    def _node_changed(self, change: Change[Node]) -> None:
        node = change.new
        if node is None:
            if change.old is not None:
                self._published.pop(change.old.uid, None)
                self._beats.pop(change.old.uid, None)
            return
        appeared = change.old is None
        self._node_work.enqueue_after(node.name, self._options.node_ready_s if appeared else 0.0)
        if not appeared:
            return
        if self._options.lease_interval_s is not None:
            self._lease_work.enqueue(node.name)
        for pod in self.pods.index(_BY_NODE, node.name):
            self._pod_work.enqueue_after(pod.key, self._options.pod_start_s)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None or pod.spec.node_name not in self.nodes:
            return
        if pod.is_deleting or pod.status.phase == "Running":
            self._pod_work.enqueue(pod.key)
        elif change.old is None or change.old.spec.node_name != pod.spec.node_name:
            self._pod_work.enqueue_after(pod.key, self._options.pod_start_s)

    async def _reconcile_node(self, name: str) -> Result | None:
        node = self.nodes.get(name)
        if node is None:
            return None
        interval = self._options.status_interval_s
        # Remembered here, not read off the Node: the write of a heartbeat comes back as a change of the Node.
        due = self._beats.get(node.uid, 0.0) + interval <= self._clock.monotonic()
        if status.is_unfit(node) or (due and not status.keeps_its_readiness(node)):
            try:
                patch = status.node_status_patch(node, self._clock.now())
                await self._api.patch(NODE, name, patch, subresource="status")
            except NotFound:
                return None
            self._beats[node.uid] = self._clock.monotonic()
        if node.uid not in self._published:
            for publish in self._publishers:
                await publish(node)
            self._published[node.uid] = None
        return Result(requeue_after_s=interval)

    async def _renew_lease(self, name: str) -> Result | None:
        node = self.nodes.get(name)
        interval = self._options.lease_interval_s
        if node is None or interval is None:
            return None
        if status.is_dead(node):
            return Result(requeue_after_s=interval)
        now = self._clock.now()
        try:
            await self._api.patch(LEASE, name, {"spec": status.lease_spec(node, now)}, status.LEASE_NAMESPACE)
        except NotFound:
            # Another kubelet process was first, or the cluster keeps no node leases: neither is ours to fix.
            with suppress(AlreadyExists, NotFound, Forbidden):
                await self._api.create(LEASE, status.lease_body(node, now), status.LEASE_NAMESPACE)
        return Result(requeue_after_s=interval)

    async def _reconcile_pod(self, key: str) -> Result | None:
        pod = self.pods.get(key)
        node = self.nodes.get(pod.spec.node_name) if pod is not None else None
        if pod is None or node is None:
            return None
        if status.is_dead(node):
            return Result(requeue_after_s=self._options.status_interval_s)
        if pod.is_deleting:
            return await self._stop(pod)
        if pod.status.phase in ("", "Pending"):
            await self._patch_pod(pod, status.running_patch(pod, self._clock.now()))
        elif pod.status.phase == "Running":
            return await self._complete_when_due(pod)
        return None

    async def _complete_when_due(self, pod: Pod) -> Result | None:
        due = status.completes_at(pod)
        if due is None:
            return None
        now = self._clock.now()
        if due > now:
            return Result(requeue_after_s=due - now)
        await self._patch_pod(pod, status.finished_patch(pod, now, succeeded=True))
        return None

    async def _stop(self, pod: Pod) -> Result | None:
        now = self._clock.now()
        due = status.stops_at(pod, self._options.pod_stop_s)
        if due > now:
            return Result(requeue_after_s=due - now)
        if pod.metadata.finalizers:
            if pod.status.phase not in ("Succeeded", "Failed"):
                # Job tracking removes its finalizer only from a pod whose end it has seen.
                await self._patch_pod(pod, status.finished_patch(pod, now, succeeded=False))
            if pod.metadata.deletion_grace_period_seconds == 0:
                return None
        with suppress(NotFound, Conflict):
            options = DeleteOptions(Preconditions(uid=pod.uid), grace_period_s=0)
            await self._api.delete(POD, pod.name, pod.namespace, options)
        return None

    async def _patch_pod(self, pod: Pod, patch: Json) -> None:
        # A stale version is a Conflict, which backs off and looks again; the watch will have brought the new one.
        with suppress(NotFound):
            await self._api.patch(POD, pod.name, patch, pod.namespace, subresource="status")
