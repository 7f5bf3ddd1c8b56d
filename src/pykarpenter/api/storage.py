"""Volumes as scheduling sees them: claims, volumes and storage classes."""

from __future__ import annotations

import msgspec

from pykarpenter.api.meta import Object, Wire
from pykarpenter.api.pods import NodeSelector


class PersistentVolumeClaimSpec(Wire):
    storage_class_name: str | None = None
    volume_name: str = ""
    access_modes: list[str] = []


class PersistentVolumeClaimStatus(Wire):
    phase: str = ""


class PersistentVolumeClaim(Object):
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class CSIPersistentVolumeSource(Wire):
    driver: str = ""
    volume_handle: str = ""


class VolumePathSource(Wire):
    """A `local` or `hostPath` volume: only its presence matters."""

    path: str = ""


class AWSElasticBlockStoreSource(Wire):
    volume_id: str = msgspec.field(name="volumeID", default="")


class VolumeNodeAffinity(Wire):
    required: NodeSelector | None = None


class ClaimReference(Wire):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeSpec(Wire):
    csi: CSIPersistentVolumeSource | None = None
    local: VolumePathSource | None = None
    host_path: VolumePathSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreSource | None = None
    node_affinity: VolumeNodeAffinity | None = None
    storage_class_name: str = ""
    claim_ref: ClaimReference | None = None


class PersistentVolume(Object):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class TopologySelectorTerm(Wire):
    match_label_expressions: list[TopologySelectorLabelRequirement] = []


class TopologySelectorLabelRequirement(Wire):
    key: str
    values: list[str] = []


class StorageClass(Object):
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologySelectorTerm] = []
