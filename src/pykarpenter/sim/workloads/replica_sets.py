"""ReplicaSets: as many pods as wanted; the least valuable go first when there are too many."""

from __future__ import annotations

from collections import Counter

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import find_condition
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.kube.cache import Change
from pykarpenter.sim.views import REPLICA_SET, RawObject, controller_uid
from pykarpenter.sim.workloads.owned_pods import OwnedPods, is_finished, is_ready
from pykarpenter.sim.workloads.part import SETTLE_S, Part, World

_PHASE_RANK = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaSets(Part):
    def __init__(self, world: World, pods: OwnedPods) -> None:
        super().__init__("replicaset", world)
        self._pods = pods
        self._sets = self.views.of(REPLICA_SET)
        self._sets.add_index("uid", lambda item: (item.uid,))
        self.views.on_change(REPLICA_SET, self._set_changed)
        self.views.on_change(kinds.POD, self._pod_changed)

    def _set_changed(self, change: Change[RawObject]) -> None:
        if change.new is not None and (change.old is None or change.old.spec != change.new.spec):
            self.queue.enqueue(change.new.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        assert pod is not None
        uid = controller_uid(pod)
        if not uid:
            return
        counts_changed = change.old is None or change.new is None or change.old.is_deleting != change.new.is_deleting
        for owner in self._sets.index("uid", uid):
            if counts_changed:
                self.queue.enqueue(owner.key)
            else:
                self.queue.enqueue_after(owner.key, SETTLE_S)

    async def reconcile(self, key: str) -> float | None:
        owner = self._sets.get(key)
        if owner is None or owner.is_deleting:
            return None
        wanted = int(owner.spec.get("replicas", 1))
        active = self._pods.active(owner.uid)
        missing = wanted - len(active) - self._pods.unseen(owner.uid)
        if missing > 0:
            for _ in range(missing):
                await self._pods.create(REPLICA_SET, owner, owner.spec["template"], {})
        elif missing < 0:
            for pod in deletion_order(active)[:-missing]:
                await self._pods.delete(pod)
        await self._report(owner)
        return None

    async def _report(self, owner: RawObject) -> None:
        current = self._sets.get(owner.key) or owner
        pods = [p for p in self._pods.active(owner.uid) if not is_finished(p)]
        ready = sum(is_ready(p) for p in pods)
        status = {
            "replicas": len(pods),
            "fullyLabeledReplicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": owner.metadata.generation,
        }
        await self.write_status(REPLICA_SET, current, status)


def deletion_order(pods: list[Pod]) -> list[Pod]:
    """Which pods a scale-down removes first, by Kubernetes' ranks.

    Unassigned before assigned, pending before running, not ready before ready, low deletion cost before high, crowded
    nodes before others, ready for a short time before long, young before old; ties by name.
    """
    crowd = Counter(pod.spec.node_name for pod in pods if pod.spec.node_name)

    def rank(pod: Pod) -> tuple[bool, int, bool, int, int, float, float, str]:
        ready = find_condition(pod.status.conditions, "Ready")
        since = parse_optional_timestamp(ready.last_transition_time) if ready is not None else None
        return (
            bool(pod.spec.node_name),
            _PHASE_RANK.get(pod.status.phase, 0),
            is_ready(pod),
            deletion_cost(pod),
            -crowd[pod.spec.node_name],
            -(since or 0.0),
            -(parse_optional_timestamp(pod.metadata.creation_timestamp) or 0.0),
            pod.name,
        )

    return sorted(pods, key=rank)


def deletion_cost(pod: Pod) -> int:
    """The pod-deletion-cost annotation; 0 when absent or not a number."""
    try:
        return int(pod.metadata.annotations.get(labels.POD_DELETION_COST, "0"))
    except ValueError:
        return 0
