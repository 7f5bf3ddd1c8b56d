"""The eviction queue: pods that must leave a node, each tried again with its own back-off until it has.

Pods leave through the Eviction API, so disruption budgets hold; only past a termination deadline are they deleted.
Every attempt looks at the pod anew, and every call carries its UID: a successor of the same name is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pykarpenter.api import kinds
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.identity import node_reference, pod_reference
from pykarpenter.core.conditions import shorten
from pykarpenter.core.draining import forced_grace_s, is_active, is_evictable, is_force_due
from pykarpenter.kube.contract import DeleteOptions, Preconditions, Selection, list_all
from pykarpenter.kube.errors import ApiError, Conflict, NotFound, TooManyRequests
from pykarpenter.runtime.controller import DONE, Controller, Result

NAME = "eviction-queue"
WORKERS = (100, 5000)
BACKOFF_S = (0.1, 10.0)
FORCEFUL = "Forceful Termination"
# Kubernetes answers 500 with these words when several budgets match one pod.
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"


class DrainMode(StrEnum):
    """What the deadline of a drain means: force afterwards (termination), or let the pod be (reboot)."""

    FORCE = "force"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class PodKey:
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Entry:
    """Why and how urgently a pod leaves; `deadline` is epoch seconds."""

    node: str
    mode: DrainMode = DrainMode.FORCE
    deadline: float | None = None
    reason: str = ""


class EvictionQueue:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._pods = ctx.caches.of(kinds.POD)
        self._nodes = ctx.caches.of(kinds.NODE)
        self._entries: dict[PodKey, Entry] = {}
        # Pods whose end was accepted, until the watch shows it: what is cached of them is older than that answer.
        self._accepted: dict[PodKey, None] = {}
        self.controller: Controller[PodKey] = Controller(
            NAME, self.reconcile, clock=ctx.clock, workers=ctx.settings.workers(*WORKERS), backoff=BACKOFF_S
        )
        ctx.caches.subscribe(kinds.POD, self._pod_changed)

    async def run(self) -> None:
        await self.controller.run()

    def _pod_changed(self, change: Changed[Pod]) -> None:
        pod, now = change.old or change.new, change.new
        if pod is not None and (now is None or now.uid != pod.uid or now.is_deleting):
            self._accepted.pop(PodKey(pod.namespace, pod.name, pod.uid), None)

    def add(self, pod: Pod, entry: Entry) -> None:
        """Let the pod leave; a forced drain replaces a bounded one, and a deadline only ever moves closer."""
        key = PodKey(pod.namespace, pod.name, pod.uid)
        present = self._entries.get(key)
        if present is None:
            self._entries[key] = entry
            self.controller.enqueue(key)
        elif merge(present, entry) != present:
            self._entries[key] = merge(present, entry)
            self.controller.enqueue(key)

    def hurry(self, pod: Pod, entry: Entry) -> None:
        """Let the pod leave now: its deadline does not wait for the back-off of refused evictions."""
        key = PodKey(pod.namespace, pod.name, pod.uid)
        present = self._entries.get(key)
        self._entries[key] = entry if present is None else merge(present, entry)
        self.controller.enqueue(key)

    def __contains__(self, key: PodKey) -> bool:
        return key in self._entries

    async def reconcile(self, key: PodKey) -> Result | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        pod = await self._look(key, entry)
        node = self._nodes.get(entry.node)
        if pod is None or pod.uid != key.uid or node is None:
            return self._drop(key)
        now = self._ctx.clock.now()
        if entry.deadline is not None and self._is_force_due(pod, entry):
            return await self._force(key, pod, entry.deadline)
        expired = entry.mode is DrainMode.TIMEOUT and entry.deadline is not None and now >= entry.deadline
        # A protected pod is dropped here and put back by the drain, which looks every second.
        if expired or not is_active(pod) or not self._is_evictable(pod):
            return self._drop(key)
        return await self._evict(key, pod, node, entry)

    async def _look(self, key: PodKey, entry: Entry) -> Pod | None:
        """The pod as cached; once its end was accepted, nothing is sent before that is seen (S9).

        Only a deadline does not wait for a watch that is behind: then the pod is read anew.
        """
        pod = self._pods.get(str(key))
        if pod is None or pod.is_deleting or not self._is_behind(key):
            return pod
        if not self._is_force_due(pod, entry):
            return None
        # A list of one, since a right to get pods is not needed for anything else.
        found = await list_all(
            self._ctx.api, kinds.POD, Selection(namespace=pod.namespace, field_selector=f"metadata.name={pod.name}")
        )
        return found[0] if found else None

    def _is_behind(self, key: PodKey) -> bool:
        return key in self._accepted

    def _expect_end(self, key: PodKey) -> None:
        """Remember that the pod's end was accepted; the watch may have shown it before the answer came."""
        pod = self._pods.get(str(key))
        if pod is not None and pod.uid == key.uid and not pod.is_deleting:
            self._accepted[key] = None

    def _is_force_due(self, pod: Pod, entry: Entry) -> bool:
        return entry.mode is DrainMode.FORCE and is_force_due(pod, entry.deadline, self._ctx.clock.now())

    def _is_evictable(self, pod: Pod) -> bool:
        protect = self._ctx.settings.protect_unparsable_do_not_disrupt
        return is_evictable(pod, self._ctx.clock.now(), protect)

    def _drop(self, key: PodKey) -> Result:
        self._entries.pop(key, None)
        return DONE

    async def _force(self, key: PodKey, pod: Pod, deadline: float) -> Result | None:
        grace = forced_grace_s(deadline, self._ctx.clock.now())
        try:
            options = DeleteOptions(Preconditions(uid=pod.uid), grace_period_s=grace)
            await self._ctx.api.delete(kinds.POD, pod.name, pod.namespace, options)
        except (NotFound, Conflict):
            return self._drop(key)
        self._expect_end(key)
        text = f"Deleting the pod to accommodate the termination time {format_timestamp(deadline)} of the node"
        self._ctx.recorder.publish(pod_reference(pod), "Normal", "Disrupted", text, dedupe=(pod.uid,))
        self._ctx.metrics.count("karpenter_pods_drained_total", {"reason": FORCEFUL})
        return self._drop(key)

    async def _evict(self, key: PodKey, pod: Pod, node: Node, entry: Entry) -> Result | None:
        try:
            await self._ctx.api.evict(pod.name, pod.namespace, Preconditions(uid=pod.uid))
        except ApiError as error:
            self._count(error.code)
            if isinstance(error, NotFound | Conflict):
                return self._drop(key)
            if isinstance(error, TooManyRequests) or _SEVERAL_BUDGETS in error.message:
                self._blocked(pod, node, error.message)
                return Result(requeue=True)
            raise
        self._count(200)
        self._expect_end(key)
        reason = entry.reason or FORCEFUL
        self._ctx.recorder.publish(pod_reference(pod), "Normal", "Evicted", f"Evicted pod: {reason}", dedupe=(pod.uid,))
        self._ctx.metrics.count("karpenter_pods_drained_total", {"reason": reason})
        return self._drop(key)

    def _blocked(self, pod: Pod, node: Node, message: str) -> None:
        text = f"Pod {pod.key} is blocked from eviction: {message}"
        self._ctx.recorder.publish(
            node_reference(node), "Warning", "FailedDraining", shorten(text), dedupe=(node.uid, pod.uid)
        )

    def _count(self, code: int) -> None:
        self._ctx.metrics.count("karpenter_pods_eviction_requests_total", {"code": str(code)})


def merge(present: Entry, added: Entry) -> Entry:
    if present.mode is not added.mode:
        return added if added.mode is DrainMode.FORCE else present
    deadlines = [d for d in (present.deadline, added.deadline) if d is not None]
    return Entry(added.node, present.mode, min(deadlines, default=None), added.reason or present.reason)
