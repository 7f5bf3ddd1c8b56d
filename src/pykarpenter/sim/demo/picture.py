"""The cluster at a glance: nodes with their fill, pending pods and the bill, as plain values for a view to draw."""

from __future__ import annotations

from dataclasses import dataclass

from pykarpenter.api import kinds, labels
from pykarpenter.sim.cloud.instances import instance_id
from pykarpenter.sim.cluster import EmbeddedCluster


@dataclass(frozen=True, slots=True)
class NodePicture:
    """One machine; fills are shares between 0 and 1."""

    name: str
    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float
    pods: int
    cpu: float
    memory: float
    state: str


@dataclass(frozen=True, slots=True)
class Picture:
    nodes: tuple[NodePicture, ...]
    pending: int
    running: int
    price_per_hour: float


def take_picture(cluster: EmbeddedCluster) -> Picture:
    pods = [pod for pod in cluster.views.of(kinds.POD).values() if pod.status.phase in ("Pending", "Running")]
    booting = [
        NodePicture(
            instance.node_name,
            instance.tags.get(labels.NODEPOOL, ""),
            instance.item.name,
            instance.offering.zone,
            instance.offering.capacity_type,
            instance.price,
            0,
            0.0,
            0.0,
            "booting",
        )
        for instance in cluster.cloud.live()
        if instance.node_name not in cluster.views.of(kinds.NODE)
    ]
    nodes = [_node(cluster, node.name) for node in cluster.views.of(kinds.NODE).values()]
    return Picture(
        tuple(sorted((*nodes, *booting), key=lambda n: (n.pool, n.name))),
        sum(not pod.spec.node_name for pod in pods),
        sum(pod.status.phase == "Running" for pod in pods),
        cluster.cloud.price_per_hour(),
    )


def _node(cluster: EmbeddedCluster, name: str) -> NodePicture:
    node = cluster.views.of(kinds.NODE).get(name)
    assert node is not None
    engine = cluster.scheduler.engine
    slot = engine.table.slot_of.get(name)
    instance = cluster.cloud.instances.get(instance_id(node.spec.provider_id))
    found = node.metadata.labels
    return NodePicture(
        name,
        found.get(labels.NODEPOOL, ""),
        found.get(labels.INSTANCE_TYPE, ""),
        found.get(labels.ZONE, ""),
        found.get(labels.CAPACITY_TYPE, ""),
        instance.price if instance is not None else 0.0,
        len(engine.occupancy.by_slot.get(slot, {})) if slot is not None else 0,
        _share(cluster, slot, 0),
        _share(cluster, slot, 1),
        _state(found, node.is_deleting, any(t.key == labels.DISRUPTED_TAINT for t in node.spec.taints)),
    )


def _share(cluster: EmbeddedCluster, slot: int | None, row: int) -> float:
    if slot is None:
        return 0.0
    table = cluster.scheduler.engine.table
    available = int(table.allocatable(row)[slot])
    return int(table.requested(row)[slot]) / available if available else 0.0


def _state(found: dict[str, str], deleting: bool, disrupted: bool) -> str:
    if deleting or disrupted:
        return "draining"
    if found.get(labels.INITIALIZED) == "true":
        return "ready"
    return "registered" if found.get(labels.REGISTERED) == "true" else "joining"
