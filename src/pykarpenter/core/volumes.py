"""What a pod's volumes demand of a node: where they can be reached and how many attachments they take.

Also decides whether a pod's claims allow it to be scheduled at all. Reads only the snapshot's volume objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pykarpenter.api import labels
from pykarpenter.api.labels import DEFAULT_RULES, LabelRules
from pykarpenter.api.nodes import CSINode
from pykarpenter.api.pods import Pod
from pykarpenter.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from pykarpenter.core.requirements import Requirements, from_expressions, requirement
from pykarpenter.core.snapshot import VolumeObjects

# In-tree provisioners that CSI drivers have taken over; attachment limits are published under the driver's name.
_IN_TREE = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
_EBS = "ebs.csi.aws.com"


class VolumeLookupError(Exception):
    """A volume object that is needed cannot be read: the pod fits nowhere until it can."""


@dataclass(frozen=True, slots=True)
class VolumeDemand:
    """Alternatives of node requirements (empty: unconstrained) and claim keys per CSI driver."""

    alternatives: tuple[Requirements, ...] = ()
    attachments: Mapping[str, frozenset[str]] = field(default_factory=dict)


def claim_names(pod: Pod) -> list[str]:
    """Names of the claims the pod mounts, ephemeral ones included."""
    return [name for _, name in _mounts(pod)]


def _mounts(pod: Pod) -> Iterator[tuple[str, str]]:
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.name, volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            yield volume.name, f"{pod.metadata.name}-{volume.name}"


def claims_problem(
    pod: Pod,
    objects: VolumeObjects,
    unsupported_drivers: frozenset[str] = frozenset(),
    unsupported_keys: frozenset[str] = frozenset(),
) -> str:
    """Why the pod's claims keep it from being scheduled, or an empty string."""
    for name in claim_names(pod):
        claim = objects.claims.get(f"{pod.metadata.namespace}/{name}")
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found; create it or correct the volume'
        problem = _claim_problem(claim, objects, unsupported_keys)
        if not problem:
            driver = _driver(claim, objects)
            if driver and driver in unsupported_drivers:
                problem = f'uses CSI driver "{driver}", which this provider does not support'
        if problem:
            return f'persistentvolumeclaim "{name}" {problem}'
    return ""


def _claim_problem(claim: PersistentVolumeClaim, objects: VolumeObjects, unsupported_keys: frozenset[str]) -> str:
    if claim.is_deleting:
        return "is being deleted"
    if claim.status.phase == "Lost":
        return "has lost its volume"
    if claim.spec.volume_name:
        volume = objects.volumes.get(claim.spec.volume_name)
        if volume is None:
            return f'is bound to persistentvolume "{claim.spec.volume_name}", which does not exist'
        if volume.is_deleting:
            return f'is bound to persistentvolume "{volume.name}", which is being deleted'
        if labels.BIND_COMPLETED not in claim.metadata.annotations:
            return f'names persistentvolume "{volume.name}" but is not bound to it yet'
        return ""
    if not claim.spec.storage_class_name:
        return "is unbound and names no storage class"
    storage_class = objects.classes.get(claim.spec.storage_class_name)
    if storage_class is None:
        return f'names storage class "{claim.spec.storage_class_name}", which does not exist'
    if (storage_class.volume_binding_mode or "Immediate") == "Immediate":
        return f'is unbound and its storage class "{storage_class.name}" binds immediately; wait for it to bind'
    for term in storage_class.allowed_topologies:
        for expression in term.match_label_expressions:
            if expression.key in unsupported_keys:
                return f'needs topology key "{expression.key}", which this provider does not support'
    return ""


def volume_demand(pod: Pod, objects: VolumeObjects, rules: LabelRules = DEFAULT_RULES) -> VolumeDemand:
    """What the pod's volumes need; raises VolumeLookupError when a bound volume cannot be read."""
    alternatives: list[Requirements] = [Requirements()]
    attachments: dict[str, set[str]] = {}
    constrained = False
    for name in claim_names(pod):
        key = f"{pod.metadata.namespace}/{name}"
        claim = objects.claims.get(key)
        if claim is None:
            continue
        driver = _driver(claim, objects)
        if driver:
            attachments.setdefault(driver, set()).add(key)
        options = _topology(claim, objects, rules)
        if options:
            constrained = True
            alternatives = _combine(alternatives, options)
    return VolumeDemand(
        tuple(alternatives) if constrained else (),
        {driver: frozenset(keys) for driver, keys in sorted(attachments.items())},
    )


def _combine(left: Sequence[Requirements], right: Sequence[Requirements]) -> list[Requirements]:
    """The cross product, keeping combinations that can meet; all of them when none can, so that the pod fails later."""
    pairs = [(a, b) for a in left for b in right]
    meeting = [(a, b) for a, b in pairs if a.intersects(b)]
    return [a.merged(b.values()) for a, b in (meeting or pairs)]


def _topology(claim: PersistentVolumeClaim, objects: VolumeObjects, rules: LabelRules) -> list[Requirements]:
    if claim.spec.volume_name:
        volume = objects.volumes.get(claim.spec.volume_name)
        if volume is None:
            raise VolumeLookupError(f'persistentvolume "{claim.spec.volume_name}" of claim "{claim.name}" not found')
        return _bound_topology(volume, rules)
    storage_class = objects.classes.get(claim.spec.storage_class_name or "")
    return _unbound_topology(storage_class, rules) if storage_class is not None else []


def _bound_topology(volume: PersistentVolume, rules: LabelRules) -> list[Requirements]:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return []
    on_host = volume.spec.local is not None or volume.spec.host_path is not None
    options = []
    for term in affinity.required.node_selector_terms:
        kept = [e for e in term.match_expressions if not (on_host and e.key == labels.HOSTNAME)]
        options.append(from_expressions(kept, rules))
    return options


def _unbound_topology(storage_class: StorageClass, rules: LabelRules) -> list[Requirements]:
    return [
        Requirements(requirement(e.key, "In", e.values, rules=rules) for e in term.match_label_expressions)
        for term in storage_class.allowed_topologies
    ]


def _driver(claim: PersistentVolumeClaim, objects: VolumeObjects) -> str:
    """The CSI driver that attaches the claim; empty when unknown."""
    if claim.spec.volume_name:
        volume = objects.volumes.get(claim.spec.volume_name)
        if volume is None:
            return ""
        if volume.spec.csi is not None:
            return volume.spec.csi.driver
        return _EBS if volume.spec.aws_elastic_block_store is not None else ""
    storage_class = objects.classes.get(claim.spec.storage_class_name or "")
    if storage_class is None:
        return ""
    return _IN_TREE.get(storage_class.provisioner, storage_class.provisioner)


def bound_attachments(pods: Sequence[Pod], objects: VolumeObjects) -> dict[str, set[str]]:
    """Claim keys per driver that pods on a node already hold; what cannot be resolved is left out."""
    held: dict[str, set[str]] = {}
    for pod in pods:
        for name in claim_names(pod):
            key = f"{pod.metadata.namespace}/{name}"
            claim = objects.claims.get(key)
            driver = _driver(claim, objects) if claim is not None else ""
            if driver:
                held.setdefault(driver, set()).add(key)
    return held


def attachment_limits(csi_node: CSINode | None, fallback: Mapping[str, int]) -> dict[str, int | None]:
    """The most attachments per driver; None is unlimited. Unpublished drivers take the instance type's limit."""
    limits: dict[str, int | None] = dict(fallback)
    for driver in csi_node.spec.drivers if csi_node is not None else []:
        limits[driver.name] = driver.allocatable.count if driver.allocatable is not None else None
    return limits
