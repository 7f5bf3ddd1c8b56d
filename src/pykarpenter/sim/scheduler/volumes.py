"""Where a pod's volumes let it go: bound volumes, claims that wait for their first consumer, attachment limits.

Reads claims, volumes, storage classes and CSI nodes; says which claims must be provisioned on the chosen node. It
never binds anything itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from pykarpenter.api import labels
from pykarpenter.api.nodes import CSINode
from pykarpenter.api.pods import NodeSelectorRequirement, NodeSelectorTerm, Pod
from pykarpenter.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from pykarpenter.sim.scheduler.filters import Filter
from pykarpenter.sim.scheduler.node_table import Bools, NodeTable
from pykarpenter.sim.scheduler.occupancy import Occupancy
from pykarpenter.sim.scheduler.shapes import Shape, term_mask

SELECTED_NODE = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = "kubernetes.io/no-provisioner"


class VolumesRefused(Exception):
    """The pod can go nowhere whatever the nodes are; the message is the scheduler's."""


@dataclass(slots=True)
class VolumeWorld:
    """Claims by `namespace/name`; volumes, classes and CSI nodes by name."""

    claims: dict[str, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: dict[str, PersistentVolume] = field(default_factory=dict)
    classes: dict[str, StorageClass] = field(default_factory=dict)
    csi_nodes: dict[str, CSINode] = field(default_factory=dict)

    def claims_of(self, pod: Pod, names: tuple[str, ...]) -> list[PersistentVolumeClaim]:
        """The pod's claims; raises VolumesRefused when one is missing or going away."""
        found: list[PersistentVolumeClaim] = []
        for name in names:
            claim = self.claims.get(f"{pod.namespace}/{name}")
            if claim is None:
                raise VolumesRefused(f'persistentvolumeclaim "{name}" not found')
            if claim.is_deleting:
                raise VolumesRefused(f'persistentvolumeclaim "{name}" is being deleted')
            found.append(claim)
        return found

    def is_delayed(self, claim: PersistentVolumeClaim) -> bool:
        found = self.classes.get(claim.spec.storage_class_name or "")
        return found is not None and found.volume_binding_mode == "WaitForFirstConsumer"

    def unbound(self, pod: Pod, names: tuple[str, ...]) -> list[PersistentVolumeClaim]:
        return [claim for claim in self.claims_of(pod, names) if not is_bound(claim)]

    def driver_of(self, claim: PersistentVolumeClaim) -> str:
        volume = self.volumes.get(claim.spec.volume_name)
        if volume is not None and volume.spec.csi is not None:
            return volume.spec.csi.driver
        found = self.classes.get(claim.spec.storage_class_name or "")
        return found.provisioner if found is not None else ""


def is_bound(claim: PersistentVolumeClaim) -> bool:
    return bool(claim.spec.volume_name) and claim.status.phase == "Bound"


def volume_filters(
    shape: Shape, pod: Pod, world: VolumeWorld, table: NodeTable, occupancy: Occupancy
) -> Iterator[Filter]:
    """The volume filters of one pod; raises VolumesRefused when no node can help."""
    claims = world.claims_of(pod, shape.claims)
    # A claim that names a volume waits for the binder, not for a node.
    if any(not is_bound(c) and (c.spec.volume_name or not world.is_delayed(c)) for c in claims):
        raise VolumesRefused("pod has unbound immediate PersistentVolumeClaims")
    yield "node(s) exceed max volume count", _within_limits(claims, world, table, occupancy)
    conflict = np.ones(table.size, dtype=np.bool_)
    bindable = np.ones(table.size, dtype=np.bool_)
    for claim in claims:
        if is_bound(claim):
            conflict &= _reaches(world.volumes.get(claim.spec.volume_name), table)
        else:
            bindable &= _can_bind(claim, world, table)
    yield "node(s) had volume node affinity conflict", conflict
    yield "node(s) didn't find available persistent volumes to bind", bindable


def _reaches(volume: PersistentVolume | None, table: NodeTable) -> Bools:
    """The nodes from which a volume can be used; a volume that is gone is reachable from none."""
    if volume is None:
        return np.zeros(table.size, dtype=np.bool_)
    ok = np.ones(table.size, dtype=np.bool_)
    affinity = volume.spec.node_affinity
    if affinity is not None and affinity.required is not None:
        ok = np.zeros(table.size, dtype=np.bool_)
        for term in affinity.required.node_selector_terms:
            ok |= term_mask(term, table)
    zone = volume.metadata.labels.get(labels.ZONE)
    if zone is not None:
        ok &= table.column(labels.ZONE) == table.value_number(labels.ZONE, zone)
    return ok


def _can_bind(claim: PersistentVolumeClaim, world: VolumeWorld, table: NodeTable) -> Bools:
    storage_class = world.classes[claim.spec.storage_class_name or ""]
    if storage_class.provisioner == NO_PROVISIONER:
        ok = np.zeros(table.size, dtype=np.bool_)
        for volume in world.volumes.values():
            if volume.spec.storage_class_name == storage_class.name and volume.spec.claim_ref is None:
                ok |= _reaches(volume, table)
        return ok
    selected = claim.metadata.annotations.get(SELECTED_NODE)
    if selected is not None and selected in table.slot_of:
        ok = np.zeros(table.size, dtype=np.bool_)
        ok[table.slot_of[selected]] = True
        return ok
    if not storage_class.allowed_topologies:
        return np.ones(table.size, dtype=np.bool_)
    ok = np.zeros(table.size, dtype=np.bool_)
    for topology in storage_class.allowed_topologies:
        expressions = [
            NodeSelectorRequirement(key=e.key, operator="In", values=e.values) for e in topology.match_label_expressions
        ]
        ok |= term_mask(NodeSelectorTerm(match_expressions=expressions), table)
    return ok


def _within_limits(
    claims: list[PersistentVolumeClaim], world: VolumeWorld, table: NodeTable, occupancy: Occupancy
) -> Bools:
    ok = np.ones(table.size, dtype=np.bool_)
    wanted: dict[str, set[str]] = {}
    for claim in claims:
        wanted.setdefault(world.driver_of(claim), set()).add(claim.key)
    for name, slot in table.slot_of.items():
        csi = world.csi_nodes.get(name)
        for driver in csi.spec.drivers if csi is not None else []:
            limit = driver.allocatable.count if driver.allocatable is not None else None
            new = wanted.get(driver.name)
            if limit is None or not new:
                continue
            ok[slot] &= len(new | _attached(slot, driver.name, world, occupancy)) <= limit
    return ok


def _attached(slot: int, driver: str, world: VolumeWorld, occupancy: Occupancy) -> set[str]:
    found: set[str] = set()
    for entry in occupancy.by_slot.get(slot, {}).values():
        for volume in entry.pod.spec.volumes:
            if volume.persistent_volume_claim is None:
                continue
            claim = world.claims.get(f"{entry.pod.namespace}/{volume.persistent_volume_claim.claim_name}")
            if claim is not None and world.driver_of(claim) == driver:
                found.add(claim.key)
    return found
