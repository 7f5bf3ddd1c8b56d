"""The pods of one controller: which exist, which count, and what was asked for but has not been seen yet.

A watch lags behind writes. Without remembering its own creations and deletions a controller would create twice what
is wanted; this is Kubernetes' "expectations".
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from pykarpenter.api import kinds
from pykarpenter.api.kinds import Kind
from pykarpenter.api.meta import Object, condition_status
from pykarpenter.api.pods import Pod
from pykarpenter.kube.cache import Change
from pykarpenter.kube.contract import DeleteOptions, Json, KubeApi, Preconditions
from pykarpenter.kube.errors import NotFound
from pykarpenter.sim.views import Views, controller_uid, owner_uids
from pykarpenter.sim.workloads.part import owner_reference

_INDEX = "controller"
# After so many writes in a row others get a turn.
_CHUNK = 50


def is_ready(pod: Pod) -> bool:
    return condition_status(pod.status.conditions, "Ready") == "True" and not pod.is_deleting


def is_finished(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


class OwnedPods:
    """Pods by controlling owner; one for all workload controllers, made before the views run."""

    def __init__(self, api: KubeApi, views: Views) -> None:
        self._api = api
        self._cache = views.of(kinds.POD)
        self._cache.add_index(_INDEX, owner_uids)
        # Created and deleted pods that the watch has not shown yet: by owner UID, and by pod UID.
        self._unseen: dict[str, dict[str, None]] = {}
        self._leaving: dict[str, None] = {}
        self._writes = 0
        views.on_change(kinds.POD, self._seen)

    def of(self, owner_uid: str) -> list[Pod]:
        """Every pod the owner controls, sorted by key."""
        return self._cache.index(_INDEX, owner_uid)

    def active(self, owner_uid: str) -> list[Pod]:
        """Pods that run or will run: not finished and not on their way out."""
        return [p for p in self.of(owner_uid) if not is_finished(p) and not self.is_leaving(p)]

    def is_leaving(self, pod: Pod) -> bool:
        return pod.is_deleting or pod.uid in self._leaving

    def unseen(self, owner_uid: str) -> int:
        """How many created pods the watch still owes."""
        return len(self._unseen.get(owner_uid, ()))

    def unseen_keys(self, owner_uid: str) -> list[str]:
        return list(self._unseen.get(owner_uid, ()))

    def has_unseen(self, owner_uid: str, pod_key: str) -> bool:
        return pod_key in self._unseen.get(owner_uid, ())

    async def create(self, kind: Kind[Any], owner: Object, template: Json, changes: Json) -> None:
        """Create a pod from a template; `changes` overrides metadata and spec key by key."""
        body = pod_body(kind, owner, template, changes)
        pod = await self._api.create(kinds.POD, body, owner.namespace)
        if self._cache.get(pod.key) is None:
            self._unseen.setdefault(owner.uid, {})[pod.key] = None
        await self._breathe()

    async def delete(self, pod: Pod) -> None:
        self._leaving[pod.uid] = None
        try:
            await self._api.delete(kinds.POD, pod.name, pod.namespace, DeleteOptions(Preconditions(uid=pod.uid)))
        except NotFound:
            pass
        except Exception:
            self._leaving.pop(pod.uid, None)
            raise
        await self._breathe()

    async def _breathe(self) -> None:
        self._writes += 1
        if self._writes % _CHUNK == 0:
            await asyncio.sleep(0)

    def _seen(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        assert pod is not None
        if change.new is None or pod.is_deleting:
            self._leaving.pop(pod.uid, None)
        owner = controller_uid(pod)
        unseen = self._unseen.get(owner)
        if unseen is not None:
            unseen.pop(pod.key, None)
            if not unseen:
                del self._unseen[owner]


def pod_body(kind: Kind[Any], owner: Object, template: Json, changes: Json) -> Json:
    """A pod as its controller would create it."""
    metadata = copy.deepcopy(template.get("metadata") or {})
    spec = copy.deepcopy(template.get("spec") or {})
    for name, value in changes.get("metadata", {}).items():
        if isinstance(value, dict):
            metadata[name] = {**(metadata.get(name) or {}), **value}
        else:
            metadata[name] = value
    spec.update(changes.get("spec", {}))
    if "name" not in metadata:
        metadata.setdefault("generateName", f"{owner.name}-")
    metadata["ownerReferences"] = [owner_reference(kind, owner)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
