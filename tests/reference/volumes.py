"""Volumes as constraints: topology alternatives and attachment counts, recomputed at every question."""

from __future__ import annotations

from pykarpenter.api import labels
from pykarpenter.api.pods import Pod
from pykarpenter.api.storage import PersistentVolume
from pykarpenter.core.requirements import Requirements, from_expressions, requirement
from pykarpenter.core.snapshot import ClusterSnapshot
from tests.reference.selection import claim_names

IN_TREE = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}


def alternatives(pod: Pod, snapshot: ClusterSnapshot, rules: labels.LabelRules) -> list[Requirements]:
    """Every combination of the volumes' topologies, in order; one empty set when nothing constrains."""
    combined: list[Requirements] = [Requirements()]
    for key in claim_names(pod):
        options = _claim_options(key, snapshot, rules)
        if options:
            combined = [
                a.merged(b.values()) for a in _crossable(combined, options) for b in options if a.intersects(b)
            ] or [a.merged(b.values()) for a in combined for b in options]
    return combined


def _crossable(combined: list[Requirements], options: list[Requirements]) -> list[Requirements]:
    return [a for a in combined if any(a.intersects(b) for b in options)]


def _claim_options(key: str, snapshot: ClusterSnapshot, rules: labels.LabelRules) -> list[Requirements]:
    claim = snapshot.volumes.claims.get(key)
    if claim is None:
        return []
    if claim.spec.volume_name:
        volume = snapshot.volumes.volumes.get(claim.spec.volume_name)
        return _volume_options(volume, rules) if volume is not None else []
    storage_class = snapshot.volumes.classes.get(claim.spec.storage_class_name or "")
    if storage_class is None:
        return []
    return [
        Requirements(requirement(e.key, "In", e.values, rules=rules) for e in term.match_label_expressions)
        for term in storage_class.allowed_topologies
    ]


def _volume_options(volume: PersistentVolume, rules: labels.LabelRules) -> list[Requirements]:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return []
    local = volume.spec.local is not None or volume.spec.host_path is not None
    options = []
    for term in affinity.required.node_selector_terms:
        expressions = [e for e in term.match_expressions if not (local and e.key == labels.HOSTNAME)]
        options.append(from_expressions(expressions, rules))
    return options


def drivers(pod: Pod, snapshot: ClusterSnapshot) -> dict[str, set[str]]:
    """Distinct claims per CSI driver."""
    result: dict[str, set[str]] = {}
    for key in claim_names(pod):
        driver = _driver(key, snapshot)
        if driver:
            result.setdefault(driver, set()).add(key)
    return result


def _driver(key: str, snapshot: ClusterSnapshot) -> str:
    claim = snapshot.volumes.claims.get(key)
    if claim is None:
        return ""
    if claim.spec.volume_name:
        volume = snapshot.volumes.volumes.get(claim.spec.volume_name)
        if volume is not None:
            if volume.spec.csi is not None:
                return volume.spec.csi.driver
            if volume.spec.aws_elastic_block_store is not None:
                return "ebs.csi.aws.com"
            return ""
    storage_class = snapshot.volumes.classes.get(claim.spec.storage_class_name or "")
    if storage_class is None:
        return ""
    return IN_TREE.get(storage_class.provisioner, storage_class.provisioner)


def bound_volume_lost(pod: Pod, snapshot: ClusterSnapshot) -> bool:
    """A claim that points at a volume which is gone fails the pod everywhere."""
    for key in claim_names(pod):
        claim = snapshot.volumes.claims.get(key)
        if claim is not None and claim.spec.volume_name and claim.spec.volume_name not in snapshot.volumes.volumes:
            return True
    return False


def merge_drivers(*parts: dict[str, set[str]]) -> dict[str, set[str]]:
    merged: dict[str, set[str]] = {}
    for part in parts:
        for driver, keys in part.items():
            merged.setdefault(driver, set()).update(keys)
    return merged
