"""Volumes: claims get volumes (made or found), volumes are attached where pods use them and detached afterwards."""

from __future__ import annotations

import hashlib
from contextlib import suppress

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodes import VolumeAttachment
from pykarpenter.api.pods import Pod
from pykarpenter.api.storage import PersistentVolume, StorageClass
from pykarpenter.kube.cache import Change
from pykarpenter.kube.contract import Json
from pykarpenter.kube.errors import AlreadyExists, NotFound
from pykarpenter.sim.scheduler.volumes import NO_PROVISIONER, SELECTED_NODE
from pykarpenter.sim.views import PVC, RawObject
from pykarpenter.sim.workloads.owned_pods import is_finished
from pykarpenter.sim.workloads.part import Part, World


class VolumeBinder(Part):
    """Binds claims: at once, or where the first pod goes when their class waits for one."""

    def __init__(self, world: World, provision_s: float = 1.0) -> None:
        super().__init__("persistentvolume-binder", world)
        self._provision_s = provision_s
        self._claims = self.views.of(PVC)
        self._volumes = self.views.of(kinds.PV)
        self._classes = self.views.of(kinds.STORAGE_CLASS)
        self._nodes = self.views.of(kinds.NODE)
        self.views.on_change(PVC, self._claim_changed)
        self.views.on_change(kinds.STORAGE_CLASS, self._class_changed)

    def _claim_changed(self, change: Change[RawObject]) -> None:
        claim = change.new or change.old
        assert claim is not None
        if change.new is None:
            self.queue.enqueue(f"released|{claim.spec.get('volumeName', '')}")
        elif not claim.spec.get("volumeName") or claim.status.get("phase") != "Bound":
            self.queue.enqueue_after(claim.key, self._provision_s)

    def _class_changed(self, change: Change[StorageClass]) -> None:
        for claim in self._claims.values():
            if claim.status.get("phase") != "Bound":
                self.queue.enqueue(claim.key)

    async def reconcile(self, key: str) -> float | None:
        if key.startswith("released|"):
            await self._release(key.partition("|")[2])
            return None
        claim = self._claims.get(key)
        if claim is None or claim.is_deleting or claim.status.get("phase") == "Bound":
            return None
        named = claim.spec.get("volumeName")
        if named:
            await self._bind(claim, named)
            return None
        storage_class = self._classes.get(claim.spec.get("storageClassName") or "")
        if storage_class is None:
            return None
        selected = claim.metadata.annotations.get(SELECTED_NODE, "")
        if storage_class.volume_binding_mode == "WaitForFirstConsumer" and not selected:
            return None
        if storage_class.provisioner == NO_PROVISIONER:
            found = self._available(storage_class, selected)
            if found is not None:
                await self._bind(claim, found)
            return None
        await self._bind(claim, await self._provision(claim, storage_class, selected))
        return None

    def _available(self, storage_class: StorageClass, node_name: str) -> str | None:
        for volume in self._volumes.values():
            if volume.spec.storage_class_name != storage_class.name or volume.spec.claim_ref is not None:
                continue
            if not node_name or self._reaches(volume, node_name):
                return volume.name
        return None

    def _reaches(self, volume: PersistentVolume, node_name: str) -> bool:
        node = self._nodes.get(node_name)
        affinity = volume.spec.node_affinity
        if node is None or affinity is None or affinity.required is None:
            return node is not None
        return any(
            all(node.metadata.labels.get(e.key) in e.values for e in term.match_expressions)
            for term in affinity.required.node_selector_terms
        )

    async def _provision(self, claim: RawObject, storage_class: StorageClass, node_name: str) -> str:
        name = f"pvc-{claim.uid}"
        node = self._nodes.get(node_name)
        zone = node.metadata.labels.get(labels.ZONE) if node is not None else None
        if zone is None and storage_class.allowed_topologies:
            first = storage_class.allowed_topologies[0].match_label_expressions
            zone = next((e.values[0] for e in first if e.key == labels.ZONE and e.values), None)
        spec: Json = {
            "capacity": (claim.spec.get("resources") or {}).get("requests") or {"storage": "1Gi"},
            "accessModes": claim.spec.get("accessModes") or ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": storage_class.name,
            "csi": {"driver": storage_class.provisioner, "volumeHandle": f"vol-{claim.uid}"},
        }
        if zone is not None:
            expression = {"key": labels.ZONE, "operator": "In", "values": [zone]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
        with suppress(AlreadyExists):
            await self.api.create(kinds.PV, body)
        return name

    async def _bind(self, claim: RawObject, volume: str) -> None:
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.namespace,
            "name": claim.name,
            "uid": claim.uid,
        }
        await self.api.patch(kinds.PV, volume, {"spec": {"claimRef": reference}})
        await self.api.patch(kinds.PV, volume, {"status": {"phase": "Bound"}}, subresource="status")
        patch = {
            "metadata": {"annotations": {labels.BIND_COMPLETED: "yes"}},
            "spec": {"volumeName": volume},
        }
        await self.api.patch(PVC, claim.name, patch, claim.namespace)
        status = {
            "phase": "Bound",
            "accessModes": claim.spec.get("accessModes") or ["ReadWriteOnce"],
            "capacity": (claim.spec.get("resources") or {}).get("requests") or {"storage": "1Gi"},
        }
        await self.api.patch(PVC, claim.name, {"status": status}, claim.namespace, subresource="status")

    async def _release(self, volume: str) -> None:
        """The claim is gone: a volume that was made for it goes too, one that was found stays."""
        if volume.startswith("pvc-"):
            await self.api.delete(kinds.PV, volume)


class VolumeAttacher(Part):
    """Keeps one VolumeAttachment for each volume on each node where a pod needs it. Keys are `node|volume`."""

    def __init__(self, world: World, detach_s: float = 2.0) -> None:
        super().__init__("attachdetach", world)
        self._detach_s = detach_s
        # A fault: volumes stay where they are although no pod needs them there; how often that was so.
        self.is_stuck = False
        self.refused = 0
        self._pods = self.views.of(kinds.POD)
        self._pods.add_index("claim", _claims)
        self._claims = self.views.of(PVC)
        self._volumes = self.views.of(kinds.PV)
        self._attachments = self.views.of(kinds.VOLUME_ATTACHMENT)
        self.views.on_change(kinds.POD, self._pod_changed)
        self.views.on_change(kinds.VOLUME_ATTACHMENT, self._attachment_changed)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        assert pod is not None
        if not pod.spec.node_name:
            return
        leaves = change.new is None or is_finished(pod)
        if not leaves and change.old is not None and change.old.spec.node_name:
            return
        for key in _claims(pod):
            claim = self._claims.get(key)
            volume = claim.spec.get("volumeName") if claim is not None else None
            if volume:
                self.queue.enqueue_after(f"{pod.spec.node_name}|{volume}", self._detach_s if leaves else 0.0)

    def _attachment_changed(self, change: Change[VolumeAttachment]) -> None:
        item = change.new
        if item is not None and change.old is None:
            self.queue.enqueue(f"{item.spec.node_name}|{item.spec.source.persistent_volume_name or ''}")

    async def reconcile(self, key: str) -> float | None:
        node_name, _, volume_name = key.partition("|")
        name = attachment_name(node_name, volume_name)
        if self._is_used(node_name, volume_name):
            await self._attach(name, node_name, volume_name)
        elif self.is_stuck and name in self._attachments:
            self.refused += 1
            return self._detach_s
        else:
            try:
                await self.api.delete(kinds.VOLUME_ATTACHMENT, name)
            except NotFound:
                return None
        return None

    def _is_used(self, node_name: str, volume_name: str) -> bool:
        volume = self._volumes.get(volume_name)
        reference = volume.spec.claim_ref if volume is not None else None
        if reference is None:
            return False
        users = self._pods.index("claim", f"{reference.namespace}/{reference.name}")
        return any(pod.spec.node_name == node_name and not is_finished(pod) for pod in users)

    async def _attach(self, name: str, node_name: str, volume_name: str) -> None:
        volume = self._volumes.get(volume_name)
        if name in self._attachments or volume is None or volume.spec.csi is None:
            return
        body = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": name},
            "spec": {
                "attacher": volume.spec.csi.driver,
                "nodeName": node_name,
                "source": {"persistentVolumeName": volume_name},
            },
        }
        try:
            await self.api.create(kinds.VOLUME_ATTACHMENT, body)
        except AlreadyExists:
            return
        await self.api.patch(kinds.VOLUME_ATTACHMENT, name, {"status": {"attached": True}}, subresource="status")


def attachment_name(node_name: str, volume_name: str) -> str:
    return f"csi-{hashlib.sha256(f'{volume_name}/{node_name}'.encode()).hexdigest()[:40]}"


def _claims(pod: Pod) -> list[str]:
    return [
        f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}"
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    ]
