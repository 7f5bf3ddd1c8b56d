"""StatefulSets: pods with numbers, started and stopped in order, each with claims of its own that outlive it."""

from __future__ import annotations

import copy

from pykarpenter.api import kinds
from pykarpenter.api.pods import Pod
from pykarpenter.kube.cache import Change
from pykarpenter.kube.contract import Json
from pykarpenter.kube.errors import AlreadyExists
from pykarpenter.sim.views import STATEFUL_SET, RawObject, controller_uid
from pykarpenter.sim.workloads.deployments import template_hash, wanted_replicas
from pykarpenter.sim.workloads.owned_pods import OwnedPods, is_finished, is_ready
from pykarpenter.sim.workloads.part import Part, World
from pykarpenter.sim.workloads.revisions import REVISION_LABEL, Revisions

NAME_LABEL = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL = "apps.kubernetes.io/pod-index"


class StatefulSets(Part):
    def __init__(self, world: World, pods: OwnedPods) -> None:
        super().__init__("statefulset", world)
        self._pods = pods
        self._revisions = Revisions(self.api, STATEFUL_SET)
        self._sets = self.views.of(STATEFUL_SET)
        self._sets.add_index("uid", lambda item: (item.uid,))
        self.views.on_change(STATEFUL_SET, self._set_changed)
        self.views.on_change(kinds.POD, self._pod_changed)

    def _set_changed(self, change: Change[RawObject]) -> None:
        if change.new is not None and (change.old is None or change.old.spec != change.new.spec):
            self.queue.enqueue(change.new.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        assert pod is not None
        for owner in self._sets.index("uid", controller_uid(pod)):
            self.queue.enqueue(owner.key)

    async def reconcile(self, key: str) -> float | None:
        owner = self._sets.get(key)
        if owner is None or owner.is_deleting:
            return None
        await self._revisions.keep(owner)
        pods = {ordinal(pod): pod for pod in self._pods.of(owner.uid)}
        if not self._pods.unseen(owner.uid):
            await self._step(owner, pods)
        await self._report(owner)
        return None

    async def _step(self, owner: RawObject, pods: dict[int, Pod]) -> None:
        """Do what order allows now: one pod at a time unless the set is managed in parallel."""
        wanted = wanted_replicas(owner)
        parallel = owner.spec.get("podManagementPolicy") == "Parallel"
        for index in range(wanted):
            pod = pods.get(index)
            if pod is None:
                await self._create(owner, index)
            elif is_finished(pod) and not self._pods.is_leaving(pod):
                await self._pods.delete(pod)
            elif is_ready(pod):
                continue
            if not parallel:
                return
        for index in sorted((i for i in pods if i >= wanted), reverse=True):
            if not self._pods.is_leaving(pods[index]):
                await self._pods.delete(pods[index])
            if not parallel:
                return
        await self._update(owner, pods, wanted)

    async def _update(self, owner: RawObject, pods: dict[int, Pod], wanted: int) -> None:
        """Replace pods of an older template, the highest number first, each only when all others are ready."""
        strategy = owner.spec.get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete" or not all(is_ready(pod) for pod in pods.values()):
            return
        partition = int((strategy.get("rollingUpdate") or {}).get("partition", 0))
        current = self._revision(owner)
        for index in range(wanted - 1, partition - 1, -1):
            pod = pods.get(index)
            if pod is not None and pod.metadata.labels.get(REVISION_LABEL) != current:
                await self._pods.delete(pod)
                return

    async def _create(self, owner: RawObject, index: int) -> None:
        name = f"{owner.name}-{index}"
        volumes = list(owner.spec["template"]["spec"].get("volumes") or [])
        for template in owner.spec.get("volumeClaimTemplates") or []:
            claim = f"{template['metadata']['name']}-{name}"
            await self._create_claim(owner, template, claim)
            volumes.append({"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim}})
        changes = {
            "metadata": {
                "name": name,
                "labels": {NAME_LABEL: name, INDEX_LABEL: str(index), REVISION_LABEL: self._revision(owner)},
            },
            "spec": {
                "hostname": name,
                "subdomain": owner.spec.get("serviceName", ""),
                **({"volumes": volumes} if volumes else {}),
            },
        }
        await self._pods.create(STATEFUL_SET, owner, owner.spec["template"], changes)

    async def _create_claim(self, owner: RawObject, template: Json, name: str) -> None:
        body = copy.deepcopy(template)
        labels = (owner.spec.get("selector") or {}).get("matchLabels") or {}
        body["metadata"] = {**body["metadata"], "name": name}
        body["metadata"]["labels"] = {**(body["metadata"].get("labels") or {}), **labels}
        body.update({"apiVersion": "v1", "kind": "PersistentVolumeClaim"})
        body.pop("status", None)
        try:
            await self.api.create(kinds.PVC, body, owner.namespace)
        except AlreadyExists:
            return

    async def _report(self, owner: RawObject) -> None:
        pods = self._pods.active(owner.uid)
        ready = sum(is_ready(pod) for pod in pods)
        current = self._revision(owner)
        updated = sum(pod.metadata.labels.get(REVISION_LABEL) == current for pod in pods)
        status = {
            "observedGeneration": owner.metadata.generation,
            "replicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "currentReplicas": updated,
            "updatedReplicas": updated,
            "updateRevision": current,
            "currentRevision": current,
        }
        await self.write_status(STATEFUL_SET, self._sets.get(owner.key) or owner, status)

    def _revision(self, owner: RawObject) -> str:
        return f"{owner.name}-{template_hash(owner.spec['template'])}"


def ordinal(pod: Pod) -> int:
    tail = pod.name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else -1
