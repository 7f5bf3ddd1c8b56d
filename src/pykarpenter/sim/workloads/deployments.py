"""Deployments: one ReplicaSet for each template, rolled from old to new within surge and unavailability."""

from __future__ import annotations

import copy
import hashlib
import math
from typing import Any

import msgspec

from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.kube.cache import Change
from pykarpenter.kube.contract import Json
from pykarpenter.kube.errors import AlreadyExists
from pykarpenter.sim.views import DEPLOYMENT, REPLICA_SET, RawObject, controller_uid, owner_uids
from pykarpenter.sim.workloads.part import SETTLE_S, Part, World, owner_reference

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
CHANGE_CAUSE = "kubernetes.io/change-cause"


def template_hash(template: Json) -> str:
    """A short name for a template: equal templates share a ReplicaSet."""
    encoded = msgspec.json.encode(template, order="deterministic")
    number = int.from_bytes(hashlib.sha256(encoded).digest()[:8])
    # The alphabet of generated names: no vowels, so no words.
    alphabet = "bcdfghjklmnpqrstvwxz2456789"
    letters = []
    for _ in range(10):
        number, rest = divmod(number, len(alphabet))
        letters.append(alphabet[rest])
    return "".join(letters)


class Deployments(Part):
    def __init__(self, world: World) -> None:
        super().__init__("deployment", world)
        self._deployments = self.views.of(DEPLOYMENT)
        self._deployments.add_index("uid", lambda item: (item.uid,))
        self._sets = self.views.of(REPLICA_SET)
        self._sets.add_index("owner", owner_uids)
        self.views.on_change(DEPLOYMENT, self._deployment_changed)
        self.views.on_change(REPLICA_SET, self._set_changed)

    def _deployment_changed(self, change: Change[RawObject]) -> None:
        new, old = change.new, change.old
        if new is not None and (old is None or old.spec != new.spec or _cause(old) != _cause(new)):
            self.queue.enqueue(new.key)

    def _set_changed(self, change: Change[RawObject]) -> None:
        item = change.new or change.old
        assert item is not None
        for owner in self._deployments.index("uid", controller_uid(item)):
            self.queue.enqueue(owner.key)

    async def reconcile(self, key: str) -> float | None:
        deployment = self._deployments.get(key)
        if deployment is None or deployment.is_deleting:
            return None
        sets = self._sets.index("owner", deployment.uid)
        name = f"{deployment.name}-{template_hash(deployment.spec['template'])}"
        new = next((item for item in sets if item.name == name), None)
        if deployment.spec.get("paused") and sets:
            await self._stand_still(deployment, new or max(sets, key=revision), sets)
            return None
        old = [item for item in sets if item.name != name]
        if new is None:
            await self._create_set(deployment, name, sets)
            return SETTLE_S
        await self._number(deployment, new, old)
        await self._roll(deployment, new, old)
        await self._forget_old(deployment, old)
        await self._report(deployment, new, old)
        return None

    async def _stand_still(self, deployment: RawObject, current: RawObject, sets: list[RawObject]) -> None:
        """A paused Deployment follows its size, not its template."""
        others = [item for item in sets if item.name != current.name]
        if not any(wanted_replicas(item) for item in others):
            await self._scale(current, wanted_replicas(deployment))
        await self._report(deployment, current, others)

    async def _number(self, deployment: RawObject, new: RawObject, old: list[RawObject]) -> None:
        """The set in use has the highest revision, also when an old template comes back; the Deployment shows it."""
        newest = max(revision(new), 1 + max((revision(item) for item in old), default=0))
        cause = _cause(deployment)
        if revision(new) != newest or new.metadata.annotations.get(CHANGE_CAUSE) != cause:
            patch = {"metadata": {"annotations": {REVISION: str(newest), CHANGE_CAUSE: cause}}}
            await self.api.patch(REPLICA_SET, new.name, patch, new.namespace)
        if revision(deployment) != newest:
            shown = {"metadata": {"annotations": {REVISION: str(newest)}}}
            await self.api.patch(DEPLOYMENT, deployment.name, shown, deployment.namespace)

    async def _create_set(self, deployment: RawObject, name: str, sets: list[RawObject]) -> None:
        template = copy.deepcopy(deployment.spec["template"])
        pod_hash = name.rsplit("-", 1)[1]
        labels = {**(template.get("metadata", {}).get("labels") or {}), HASH_LABEL: pod_hash}
        template.setdefault("metadata", {})["labels"] = labels
        selector = copy.deepcopy(deployment.spec["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: pod_hash}
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": {REVISION: str(1 + max((revision(item) for item in sets), default=0))},
                "ownerReferences": [owner_reference(DEPLOYMENT, deployment)],
            },
            "spec": {
                "replicas": 0 if sets else wanted_replicas(deployment),
                "selector": selector,
                "template": template,
            },
        }
        try:
            await self.api.create(REPLICA_SET, body, deployment.namespace)
        except AlreadyExists:
            return

    async def _roll(self, deployment: RawObject, new: RawObject, old: list[RawObject]) -> None:
        wanted = wanted_replicas(deployment)
        old_total = sum(wanted_replicas(item) for item in old)
        if not old_total:
            await self._scale(new, wanted)
            return
        strategy = deployment.spec.get("strategy") or {}
        if strategy.get("type") == "Recreate":
            for item in old:
                await self._scale(item, 0)
            if not any(item.status.get("replicas") for item in old):
                await self._scale(new, wanted)
            return
        rolling = strategy.get("rollingUpdate") or {}
        surge = share(rolling.get("maxSurge", "25%"), wanted, round_up=True)
        unavailable = share(rolling.get("maxUnavailable", "25%"), wanted, round_up=False)
        if not surge and not unavailable:
            unavailable = 1
        room = wanted + surge - old_total - wanted_replicas(new)
        await self._scale(new, min(wanted, wanted_replicas(new) + max(0, room)))
        available = sum(int(item.status.get("availableReplicas", 0)) for item in (new, *old))
        unready_new = wanted_replicas(new) - int(new.status.get("availableReplicas", 0))
        spare = wanted_replicas(new) + old_total - (wanted - unavailable) - max(0, unready_new)
        await self._shrink(old, min(max(0, spare), old_total), max(0, available - (wanted - unavailable)))

    async def _shrink(self, old: list[RawObject], most: int, healthy_most: int) -> None:
        """Take pods from old sets: broken ones freely within `most`, healthy ones only within `healthy_most`."""
        for item in sorted(old, key=lambda o: (revision(o), o.name)):
            size = wanted_replicas(item)
            broken = max(0, size - int(item.status.get("availableReplicas", 0)))
            healthy = min(size - broken, healthy_most)
            take = min(most, broken + healthy)
            if take <= 0:
                continue
            healthy_most -= max(0, take - broken)
            most -= take
            await self._scale(item, size - take)

    async def _scale(self, item: RawObject, replicas: int) -> None:
        if wanted_replicas(item) != replicas:
            patch = {"metadata": {"resourceVersion": item.metadata.resource_version}, "spec": {"replicas": replicas}}
            await self.api.patch(REPLICA_SET, item.name, patch, item.namespace)

    async def _forget_old(self, deployment: RawObject, old: list[RawObject]) -> None:
        limit = int(deployment.spec.get("revisionHistoryLimit", 10))
        empty = [item for item in old if not wanted_replicas(item) and not item.status.get("replicas")]
        for item in sorted(empty, key=revision)[: max(0, len(empty) - limit)]:
            await self.api.delete(REPLICA_SET, item.name, item.namespace)

    async def _report(self, deployment: RawObject, new: RawObject, old: list[RawObject]) -> None:
        sets = (new, *old)
        wanted = wanted_replicas(deployment)
        total = sum(int(item.status.get("replicas", 0)) for item in sets)
        available = sum(int(item.status.get("availableReplicas", 0)) for item in sets)
        rolling = (deployment.spec.get("strategy") or {}).get("rollingUpdate") or {}
        enough = available >= wanted - share(rolling.get("maxUnavailable", "25%"), wanted, round_up=False)
        complete = int(new.status.get("availableReplicas", 0)) >= wanted and total == wanted
        status = {
            "observedGeneration": deployment.metadata.generation,
            "replicas": total,
            "updatedReplicas": int(new.status.get("replicas", 0)),
            "readyReplicas": sum(int(item.status.get("readyReplicas", 0)) for item in sets),
            "availableReplicas": available,
            "unavailableReplicas": max(0, wanted - available),
            "conditions": [
                self._condition(
                    deployment,
                    "Available",
                    enough,
                    "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
                    f"Deployment {'has' if enough else 'does not have'} minimum availability.",
                ),
                self._condition(
                    deployment,
                    "Progressing",
                    True,
                    "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated",
                    f'ReplicaSet "{new.name}" {"has successfully progressed" if complete else "is progressing"}.',
                ),
            ],
        }
        await self.write_status(DEPLOYMENT, deployment, status)

    def _condition(self, deployment: RawObject, kind: str, holds: bool, reason: str, message: str) -> Json:
        before: dict[str, Any] = next((c for c in deployment.status.get("conditions", []) if c["type"] == kind), {})
        now = format_timestamp(self.clock.now())
        status = "True" if holds else "False"
        same = before.get("status") == status
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": before["lastTransitionTime"] if same else now,
            "lastUpdateTime": before["lastUpdateTime"] if same and before.get("reason") == reason else now,
        }


def _cause(deployment: RawObject) -> str | None:
    return deployment.metadata.annotations.get(CHANGE_CAUSE)


def wanted_replicas(obj: RawObject) -> int:
    return int(obj.spec.get("replicas", 1))


def revision(item: RawObject) -> int:
    return int(item.metadata.annotations.get(REVISION, "0"))


def share(value: int | str, of: int, *, round_up: bool) -> int:
    """An absolute number or a percentage of `of`."""
    if isinstance(value, int):
        return value
    exact = of * int(value.rstrip("%")) / 100
    return math.ceil(exact) if round_up else math.floor(exact)
