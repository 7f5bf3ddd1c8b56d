"""PodDisruptionBudgets: how many healthy pods each covers and how many may go now.

The eviction subresource of the store spends `disruptionsAllowed`; this controller counts it anew from pods.
"""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import format_timestamp, parse_timestamp
from pykarpenter.api.workloads import PodDisruptionBudget
from pykarpenter.core.selectors import selector_matches
from pykarpenter.kube.cache import Change
from pykarpenter.kube.contract import Json
from pykarpenter.sim.views import DEPLOYMENT, JOB, REPLICA_SET, STATEFUL_SET, RawObject, controller_uid, whole
from pykarpenter.sim.workloads.deployments import share, wanted_replicas
from pykarpenter.sim.workloads.owned_pods import is_finished, is_ready
from pykarpenter.sim.workloads.part import SETTLE_S, Part, World

# An eviction that the watch has not shown as a deletion after this long is taken not to have happened.
_EVICTION_EXPIRES_S = 120.0


class DisruptionBudgets(Part):
    def __init__(self, world: World) -> None:
        super().__init__("disruption", world)
        self._budgets = self.views.of(kinds.PDB)
        self._pods = self.views.of(kinds.POD)
        self._pods.add_index("namespace", lambda pod: (pod.namespace,))
        self._owners = [self.views.of(kind) for kind in (REPLICA_SET, STATEFUL_SET)]
        for cache in self._owners:
            cache.add_index("uid", lambda item: (item.uid,))
        self.views.on_change(kinds.PDB, self._budget_changed)
        self.views.on_change(kinds.POD, self._pod_changed)
        for kind in (REPLICA_SET, STATEFUL_SET, DEPLOYMENT, JOB):
            self.views.of(kind)
        self.views.on_change(REPLICA_SET, self._owner_changed)
        self.views.on_change(STATEFUL_SET, self._owner_changed)

    def _budget_changed(self, change: Change[PodDisruptionBudget]) -> None:
        if change.new is not None and (change.old is None or change.old.spec != change.new.spec):
            self.queue.enqueue(change.new.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        assert pod is not None
        if change.old is not None and change.new is not None and not _health_changed(change.old, change.new):
            return
        # What takes room away counts at once; what gives room may gather for a moment.
        delay = SETTLE_S if change.new is not None and is_ready(change.new) else 0.0
        for budget in self._budgets.values():
            if budget.namespace == pod.namespace and selector_matches(budget.spec.selector, pod.metadata.labels):
                self.queue.enqueue_after(budget.key, delay)

    def _owner_changed(self, change: Change[RawObject]) -> None:
        item = change.new
        if item is None or (change.old is not None and change.old.spec.get("replicas") == item.spec.get("replicas")):
            return
        for budget in self._budgets.values():
            if budget.namespace == item.namespace:
                self.queue.enqueue_after(budget.key, SETTLE_S)

    async def reconcile(self, key: str) -> float | None:
        namespace, _, name = key.partition("/")
        budget = self._budgets.get(key)
        if budget is None or budget.is_deleting:
            return None
        # Read live: a count made from an older status would give back what an eviction has just spent.
        raw = await self.api.get(_RAW_PDB, name, namespace)
        pods = [
            pod
            for pod in self._pods.index("namespace", namespace)
            if not is_finished(pod) and selector_matches(budget.spec.selector, pod.metadata.labels)
        ]
        disrupted, retry = self._disrupted(raw, pods)
        healthy = sum(is_ready(pod) and pod.name not in disrupted for pod in pods)
        expected, desired = self._wanted(budget, pods)
        allowed = max(0, healthy - desired) if expected else 0
        status: Json = {
            "observedGeneration": raw.metadata.generation,
            "expectedPods": expected,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "conditions": [self._condition(raw, allowed)],
        }
        changed = {field: value for field, value in status.items() if raw.status.get(field) != value}
        gone = {pod: None for pod in raw.status.get("disruptedPods") or {} if pod not in disrupted}
        if gone:
            changed["disruptedPods"] = gone
        if changed:
            patch = {"metadata": {"resourceVersion": raw.metadata.resource_version}, "status": changed}
            await self.api.patch(_RAW_PDB, name, patch, namespace, subresource="status")
        return retry

    def _disrupted(self, raw: RawObject, pods: list[Pod]) -> tuple[set[str], float | None]:
        """Pods whose eviction was granted but is not visible yet."""
        waiting: set[str] = set()
        retry: float | None = None
        by_name = {pod.name: pod for pod in pods}
        for name, since in (raw.status.get("disruptedPods") or {}).items():
            pod = by_name.get(name)
            left = parse_timestamp(since) + _EVICTION_EXPIRES_S - self.clock.now()
            if pod is not None and not pod.is_deleting and left > 0:
                waiting.add(name)
                retry = min(retry or left, left)
        return waiting, retry

    def _wanted(self, budget: PodDisruptionBudget, pods: list[Pod]) -> tuple[int, int]:
        """(pods expected, pods that must stay healthy)."""
        spec = budget.spec
        if spec.max_unavailable is not None:
            expected = self._expected(pods)
            return expected, max(0, expected - share(spec.max_unavailable, expected, round_up=True))
        if isinstance(spec.min_available, str):
            expected = self._expected(pods)
            return expected, share(spec.min_available, expected, round_up=True)
        return len(pods), spec.min_available or 0

    def _expected(self, pods: list[Pod]) -> int:
        """The replicas of the pods' controllers; a pod without one counts for itself."""
        total = 0
        counted: set[str] = set()
        for pod in pods:
            uid = controller_uid(pod)
            owner = next((found[0] for cache in self._owners if (found := cache.index("uid", uid))), None)
            if owner is None:
                total += 1
            elif uid not in counted:
                counted.add(uid)
                total += wanted_replicas(owner)
        return total

    def _condition(self, raw: RawObject, allowed: int) -> Json:
        status = "True" if allowed else "False"
        before = next((c for c in raw.status.get("conditions") or [] if c["type"] == "DisruptionAllowed"), None)
        if before is not None and before["status"] == status:
            return {**before, "observedGeneration": raw.metadata.generation}
        return {
            "type": "DisruptionAllowed",
            "status": status,
            "reason": "SufficientPods" if allowed else "InsufficientPods",
            "message": "",
            "observedGeneration": raw.metadata.generation,
            "lastTransitionTime": format_timestamp(self.clock.now()),
        }


_RAW_PDB = whole(kinds.PDB)


def _health_changed(old: Pod, new: Pod) -> bool:
    return (
        is_ready(old) != is_ready(new)
        or old.is_deleting != new.is_deleting
        or is_finished(old) != is_finished(new)
        or old.metadata.labels != new.metadata.labels
    )
