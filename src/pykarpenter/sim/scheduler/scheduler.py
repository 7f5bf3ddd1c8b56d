"""kube-scheduler as a participant of the embedded cluster: watches, decides with the engine, binds.

Pods that fit nowhere get `PodScheduled=False/Unschedulable` with kube-scheduler's message and, when they outrank
others, push them away. Placement is decided in `engine`; here is only what it takes to carry it out.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec

from pykarpenter.api import kinds
from pykarpenter.api.kinds import Kind
from pykarpenter.api.meta import LabelSelector, LabelSelectorRequirement, Object, find_condition
from pykarpenter.api.nodes import Node, ObjectReference
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.api.workloads import Namespace
from pykarpenter.core.selectors import selector_matches
from pykarpenter.kube.cache import Change
from pykarpenter.kube.contract import DeleteOptions, KubeApi, Preconditions
from pykarpenter.kube.errors import ApiError, Conflict
from pykarpenter.kube.events import EventRecorder
from pykarpenter.runtime.clock import Clock
from pykarpenter.sim.conditions import with_conditions
from pykarpenter.sim.scheduler.engine import Engine, Refused
from pykarpenter.sim.scheduler.pending import Group, PendingPods
from pykarpenter.sim.scheduler.preemption import NoPreemption, preempt
from pykarpenter.sim.scheduler.shapes import Shape, static_view
from pykarpenter.sim.scheduler.volumes import SELECTED_NODE, VolumesRefused
from pykarpenter.sim.views import REPLICA_SET, STATEFUL_SET, Views

NAME = "default-scheduler"

V = TypeVar("V", bound=Object)

# A large group is told once why it waits; telling every pod again after each new node would be most of all writes.
_TELL_AGAIN_UP_TO = 50
_TERMINAL = ("Succeeded", "Failed")


class Scheduler:
    def __init__(
        self, api: KubeApi, views: Views, clock: Clock, *, seed: int = 0, recorder: EventRecorder | None = None
    ) -> None:
        self._api = api
        self._views = views
        self._clock = clock
        self._recorder = recorder
        self.engine = Engine(seed)
        self.pending = PendingPods()
        self._woken = asyncio.Event()
        # Pods that have a node but whose volumes are still being made there.
        self._awaiting_volumes: dict[str, str] = {}
        self._nominated: dict[str, str] = {}
        self._watch_cluster()

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        """Schedule until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            await self._bind_ready_volumes()
            for group in self.pending.round():
                await self._try(group)
                # Let watches deliver, so that a node that appears meanwhile is used.
                await asyncio.sleep(0)

    # What happens in the cluster.

    def _watch_cluster(self) -> None:
        volumes = self.engine.volumes
        self._views.on_change(kinds.POD, self._pod_changed)
        self._views.on_change(kinds.NODE, self._node_changed)
        self._track(kinds.PVC, volumes.claims)
        self._track(kinds.PV, volumes.volumes)
        self._track(kinds.STORAGE_CLASS, volumes.classes)
        self._track(kinds.CSI_NODE, volumes.csi_nodes)
        self._views.on_change(kinds.NAMESPACE, self._namespace_changed)
        self._views.of(kinds.SERVICE)
        self._views.of(kinds.PDB)
        self._views.of(REPLICA_SET)
        self._views.of(STATEFUL_SET)

    def _track(self, kind: Kind[V], entries: dict[str, V]) -> None:
        self._views.on_change(kind, lambda change: self._volume_changed(change, entries))

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None or pod.status.phase in _TERMINAL:
            gone = change.old if pod is None else pod
            assert gone is not None
            self.pending.drop(gone.key)
            self._awaiting_volumes.pop(gone.key, None)
            self._denominate(gone.key)
            self.engine.remove_pod(gone)
            self.wake()
            return
        if pod.spec.node_name:
            self.pending.drop(pod.key)
            self._denominate(pod.key)
            was_leaving = change.old is not None and change.old.is_deleting
            self.engine.set_bound_pod(pod)
            if pod.is_deleting and not was_leaving:
                self.wake()
            return
        if pod.is_deleting or pod.spec.scheduler_name not in ("", NAME):
            self.pending.drop(pod.key)
            return
        if pod.key not in self._awaiting_volumes:
            self._note_nomination(change.old, pod)
            self.pending.put(pod)
            if change.old is None or change.old.spec != pod.spec or change.old.metadata.labels != pod.metadata.labels:
                self.wake()

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is None:
            assert change.old is not None
            gone = change.old.name
            for key, node_name in list(self._nominated.items()):
                if node_name == gone:
                    self._denominate(key)
            self.engine.remove_node(gone)
            self.wake()
            return
        before = self.engine.table.supply
        is_new = change.new.name not in self.engine.table.slot_of
        self.engine.set_node(change.new)
        if is_new:
            self._keep_room(change.new.name)
        if self.engine.table.supply != before:
            self.wake()

    def _volume_changed(self, change: Change[V], entries: dict[str, V]) -> None:
        if change.new is None:
            assert change.old is not None
            entries.pop(change.old.key, None)
        else:
            entries[change.new.key] = change.new
        self.engine.table.supply += 1
        self.wake()

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        if change.new is not None:
            self.engine.occupancy.set_namespace(change.new.name, change.new.metadata.labels)
        elif change.old is not None:
            self.engine.occupancy.set_namespace(change.old.name, None)

    # Carrying decisions out.

    async def _try(self, group: Group) -> None:
        pod = group.head()
        assert pod is not None
        if pod.spec.scheduling_gates:
            await self._tell(pod, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
            group.untold.pop(pod.key, None)
            return
        shape = self.engine.shape_of(pod, self._default_selector)
        self._unghost(pod.key)
        lesser = self._set_aside(pod)
        nominated = self._nominated.get(pod.key, "")
        outcome = self.engine.place(pod, shape, nominated if nominated in self.engine.table.slot_of else "")
        if isinstance(outcome, Refused):
            await self._refuse(group, pod, shape, outcome.message)
            self._put_back(lesser)
            return
        self._put_back(lesser)
        self.pending.drop(pod.key)
        self.engine.assume(pod, outcome)
        self._nominated.pop(pod.key, None)
        if shape.claims and not await self._volumes_ready(pod, shape, outcome):
            return
        await self._bind(pod, outcome)

    async def _bind(self, pod: Pod, node_name: str) -> None:
        try:
            await self._api.bind(pod.name, pod.namespace, node_name)
        except ApiError:
            # Deleted or bound by someone else meanwhile: the watch tells what is true now.
            self.engine.forget(pod.key)
            return
        self._publish(pod, "Normal", "Scheduled", f"Successfully assigned {pod.key} to {node_name}")

    async def _refuse(self, group: Group, pod: Pod, shape: Shape, message: str) -> None:
        nominated = self._nominated.get(pod.key, "")
        if not message.startswith("no nodes"):
            message = f"{message} preemption: {await self._preempt(pod, shape)}"
        if self._is_closed(shape, nominated):
            self._nominated[pod.key] = nominated
            self._ghost(pod, nominated)
        elif pod.status.nominated_node_name and pod.key not in self._nominated:
            await self._clear_nomination(pod)
        if message != group.told and len(group.pods) <= _TELL_AGAIN_UP_TO:
            group.untold.update(dict.fromkeys(group.pods))
        group.told = message
        untold, group.untold = list(group.untold), {}
        for key in untold:
            waiting = group.pods.get(key)
            if waiting is not None and not await self._tell(waiting, "Unschedulable", message):
                group.untold[key] = None
                self.wake()

    async def _tell(self, pod: Pod, reason: str, message: str) -> bool:
        """Write the PodScheduled condition; False when the pod changed meanwhile and must be told again."""
        current = find_condition(pod.status.conditions, "PodScheduled")
        if current is not None and (current.reason, current.message) == (reason, message):
            return True
        since = current.last_transition_time if current is not None and current.status == "False" else None
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": since or format_timestamp(self._clock.now()),
        }
        patch = {
            "metadata": {"resourceVersion": pod.metadata.resource_version},
            "status": {"conditions": with_conditions(pod.status.conditions, condition)},
        }
        try:
            await self._api.patch(kinds.POD, pod.name, patch, pod.namespace, subresource="status")
        except ApiError as error:
            return not isinstance(error, Conflict)
        if reason == "Unschedulable":
            self._publish(pod, "Warning", "FailedScheduling", message)
        return True

    def _publish(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        if self._recorder is not None:
            target = ObjectReference(api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)
            self._recorder.publish(target, kind, reason, message)

    # Volumes.

    async def _volumes_ready(self, pod: Pod, shape: Shape, node_name: str) -> bool:
        """Ask for the claims that wait for a node to be made on this one; True when none has to be waited for."""
        try:
            unbound = self.engine.volumes.unbound(pod, shape.claims)
        except VolumesRefused:
            unbound = []
        if not unbound:
            return True
        self._awaiting_volumes[pod.key] = node_name
        for claim in unbound:
            patch = {"metadata": {"annotations": {SELECTED_NODE: node_name}}}
            try:
                await self._api.patch(kinds.PVC, claim.name, patch, claim.namespace)
            except ApiError:
                continue
        return False

    async def _bind_ready_volumes(self) -> None:
        for key, node_name in list(self._awaiting_volumes.items()):
            pod = self._views.of(kinds.POD).get(key)
            if pod is None or node_name not in self.engine.table.slot_of:
                self._awaiting_volumes.pop(key, None)
                self.engine.forget(key)
                if pod is not None:
                    self.pending.put(pod)
                continue
            shape = self.engine.shape_of(pod, self._default_selector)
            try:
                if self.engine.volumes.unbound(pod, shape.claims):
                    continue
            except VolumesRefused:
                continue
            self._awaiting_volumes.pop(key, None)
            await self._bind(pod, node_name)

    # Preemption.

    async def _preempt(self, pod: Pod, shape: Shape) -> str:
        """Push lesser pods away if that makes room; answers the scheduler's words when nothing was done."""
        nominated = self._nominated.get(pod.key)
        if nominated is not None and self._someone_leaves(pod, nominated):
            self._ghost(pod, nominated)
            return "not eligible due to terminating pods on the nominated node."
        found = preempt(self.engine, pod, shape, self._violations)
        if isinstance(found, NoPreemption):
            self._nominated.pop(pod.key, None)
            return found.message
        self._nominated[pod.key] = found.node
        self._ghost(pod, found.node)
        for victim in found.victims:
            await self._push_away(victim, pod, found.node)
        try:
            patch = {"status": {"nominatedNodeName": found.node}}
            await self._api.patch(kinds.POD, pod.name, patch, pod.namespace, subresource="status")
        except ApiError:
            self._denominate(pod.key)
        return f"{len(found.victims)} pod(s) preempted on {found.node}."

    async def _push_away(self, victim: Pod, by: Pod, node_name: str) -> None:
        try:
            await self._api.delete(
                kinds.POD, victim.name, victim.namespace, DeleteOptions(Preconditions(uid=victim.uid))
            )
        except ApiError:
            return
        self._publish(victim, "Normal", "Preempted", f"Preempted by pod {by.uid} on node {node_name}")

    def _someone_leaves(self, pod: Pod, node_name: str) -> bool:
        slot = self.engine.table.slot_of.get(node_name)
        if slot is None:
            return False
        priority = pod.spec.priority or 0
        return any(e.pod.is_deleting and e.priority < priority for e in self.engine.occupancy.on_slot(slot))

    def _violations(self, pods: list[Pod]) -> int:
        exhausted = [b for b in self._views.of(kinds.PDB).values() if b.status.disruptions_allowed <= 0]
        return sum(
            any(
                b.namespace == pod.namespace and selector_matches(b.spec.selector, pod.metadata.labels)
                for b in exhausted
            )
            for pod in pods
        )

    # Nominations: by preemption here, or by others through the pod's status.

    def _note_nomination(self, old: Pod | None, pod: Pod) -> None:
        """Keep room where somebody nominated the pod, and give it up when the name was taken back."""
        named, known = pod.status.nominated_node_name, self._nominated.get(pod.key)
        if named and named != known:
            self._denominate(pod.key)
            self._nominated[pod.key] = named
            self._ghost(pod, named)
        elif not named and known is not None and old is not None and old.status.nominated_node_name == known:
            self._denominate(pod.key)
            self.wake()

    def _keep_room(self, node_name: str) -> None:
        """A node came that pods are nominated to already."""
        for key, nominated in self._nominated.items():
            pod = self._views.of(kinds.POD).get(key)
            if nominated == node_name and pod is not None:
                self._ghost(pod, node_name)

    def _set_aside(self, pod: Pod) -> list[Pod]:
        """Room kept for lesser pods does not count against this one; answers them, to be put back."""
        priority, lesser = pod.spec.priority or 0, []
        for key in self._nominated:
            other = self._views.of(kinds.POD).get(key)
            if other is not None and (other.spec.priority or 0) < priority:
                self.engine.forget(key)
                lesser.append(other)
        return lesser

    def _put_back(self, pods: list[Pod]) -> None:
        for pod in pods:
            nominated = self._nominated.get(pod.key)
            if nominated is not None:
                self._ghost(pod, nominated)

    def _is_closed(self, shape: Shape, node_name: str) -> bool:
        """Whether taints keep such pods from the node: kube-scheduler hardly tries them before those are gone."""
        slot = self.engine.table.slot_of.get(node_name)
        return slot is not None and not static_view(shape, self.engine.table).taints_ok[slot]

    async def _clear_nomination(self, pod: Pod) -> None:
        """The pod fits nowhere, not even there: whoever nominated it may think again."""
        patch = {
            "metadata": {"resourceVersion": pod.metadata.resource_version},
            "status": {"nominatedNodeName": None},
        }
        try:
            await self._api.patch(kinds.POD, pod.name, patch, pod.namespace, subresource="status")
        except ApiError:
            # Changed meanwhile; the next try tells again.
            return

    def _ghost(self, pod: Pod, node_name: str) -> None:
        """Hold the room for the pod that is nominated there."""
        if node_name in self.engine.table.slot_of:
            self.engine.assume(pod, node_name)

    def _unghost(self, pod_key: str) -> None:
        if pod_key in self._nominated:
            self.engine.forget(pod_key)

    def _denominate(self, pod_key: str) -> None:
        if self._nominated.pop(pod_key, None) is not None:
            self.engine.forget(pod_key)

    # Default spreading.

    def _default_selector(self, pod: Pod) -> LabelSelector | None:
        """The selector of the pod's Services and owner, by which kube-scheduler spreads pods without constraints."""
        labels: dict[str, str] = {}
        expressions: list[LabelSelectorRequirement] = []
        for service in self._views.of(kinds.SERVICE).values():
            wanted = service.spec.selector
            if service.namespace == pod.namespace and wanted and wanted.items() <= pod.metadata.labels.items():
                labels.update(wanted)
        for ref in pod.metadata.owner_references:
            if not ref.controller or ref.kind not in ("ReplicaSet", "StatefulSet"):
                continue
            cache = self._views.of(REPLICA_SET if ref.kind == "ReplicaSet" else STATEFUL_SET)
            owner = cache.get(f"{pod.namespace}/{ref.name}")
            if owner is not None and "selector" in owner.spec:
                selector = msgspec.convert(owner.spec["selector"], LabelSelector)
                labels.update(selector.match_labels)
                expressions.extend(selector.match_expressions)
        if not labels and not expressions:
            return None
        return LabelSelector(match_labels=labels, match_expressions=expressions)
