"""The scheduling decision: a pod and the cluster as it stands in, a node or the reasons against every node out.

Holds the scheduler's picture of nodes and pods; knows no API, no clock and no tasks. Ties are broken by one seeded
generator over nodes in slot order, so equal histories give equal placements.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pykarpenter.api.meta import LabelSelector
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.core.recent import Recent
from pykarpenter.sim.scheduler.filters import Filter, dynamic_filters
from pykarpenter.sim.scheduler.node_table import Bools, NodeTable
from pykarpenter.sim.scheduler.occupancy import Occupancy
from pykarpenter.sim.scheduler.scores import total_score
from pykarpenter.sim.scheduler.shapes import Shape, make_shape, shape_key, static_view
from pykarpenter.sim.scheduler.volumes import VolumesRefused, VolumeWorld, volume_filters

# An extra filter of a test or fault: (pod, node) -> whether the node may take the pod.
ExtraFilter = Callable[[Pod, Node], bool]

# Shapes that were not met among so many pods are let go, and at most so many are kept.
_KEPT_SHAPES = 1024


@dataclass(frozen=True, slots=True)
class Refused:
    """No node can take the pod now; `message` is what its PodScheduled condition says."""

    message: str


class Engine:
    def __init__(self, seed: int = 0) -> None:
        self.table = NodeTable()
        self.occupancy = Occupancy(self.table)
        self.volumes = VolumeWorld()
        self.extra_filter: ExtraFilter | None = None
        self._random = random.Random(seed)
        self._shapes: Recent[bytes, Shape] = Recent(_KEPT_SHAPES)
        self._met = 0
        self._waiting_by_node: dict[str, dict[str, Pod]] = {}

    # What happened in the cluster.

    def set_node(self, node: Node) -> None:
        known = node.name in self.table.slot_of
        slot = self.table.upsert(node)
        if not known:
            for pod in self._waiting_by_node.pop(node.name, {}).values():
                self.occupancy.add(pod, slot)

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods are remembered in case a node of that name comes back."""
        slot = self.table.slot_of.get(name)
        if slot is None:
            return
        for entry in self.occupancy.on_slot(slot):
            self.occupancy.remove(entry.key)
            self._waiting_by_node.setdefault(name, {})[entry.key] = entry.pod
        self.table.remove(name)

    def set_bound_pod(self, pod: Pod) -> None:
        """A pod that occupies `spec.nodeName`, which may not be known yet."""
        slot = self.table.slot_of.get(pod.spec.node_name)
        if slot is None:
            self._waiting_by_node.setdefault(pod.spec.node_name, {})[pod.key] = pod
            return
        entry = self.occupancy.placed.get(pod.key)
        if entry is not None and entry.slot == slot and _occupies_the_same(entry.pod, pod):
            return
        self.occupancy.add(pod, slot)

    def remove_pod(self, pod: Pod) -> None:
        self.occupancy.remove(pod.key)
        waiting = self._waiting_by_node.get(pod.spec.node_name)
        if waiting is not None:
            waiting.pop(pod.key, None)
            if not waiting:
                del self._waiting_by_node[pod.spec.node_name]

    def assume(self, pod: Pod, node_name: str) -> None:
        """Count the pod on the node before the API server knows of it."""
        self.occupancy.add(pod, self.table.slot_of[node_name])

    def forget(self, pod_key: str) -> None:
        self.occupancy.remove(pod_key)

    # Decisions.

    def shape_of(self, pod: Pod, default_selector: Callable[[Pod], LabelSelector | None]) -> Shape:
        self._met += 1
        if self._met % _KEPT_SHAPES == 0:
            self._shapes.turn()
            self.occupancy.turn()
        key = shape_key(pod)
        shape = self._shapes.get(key)
        return self._shapes.put(key, make_shape(pod, self.table, default_selector(pod))) if shape is None else shape

    def place(self, pod: Pod, shape: Shape, nominated: str = "") -> str | Refused:
        """The node nominated for the pod if it passes, else the best one; or why there is none."""
        if not shape.claims and shape.failed_supply == self.table.supply:
            return Refused(shape.failed_message)
        try:
            passing = self.passing(pod, shape)
        except VolumesRefused as error:
            return Refused(self._counted([str(error)]))
        if not passing.any():
            return self._refusal(pod, shape)
        if nominated and passing[self.table.slot_of[nominated]]:
            return nominated
        return self.table.names[self._best(shape, passing)]

    def passing(self, pod: Pod, shape: Shape) -> Bools:
        """The slots that pass every filter; raises VolumesRefused."""
        passing = static_view(shape, self.table).passing.copy()
        for _, ok in self._dynamic(pod, shape):
            passing &= ok
            if not passing.any():
                break
        return passing

    def _dynamic(self, pod: Pod, shape: Shape) -> Iterator[Filter]:
        if shape.claims:
            yield from volume_filters(shape, pod, self.volumes, self.table, self.occupancy)
        yield from dynamic_filters(shape, self.table, self.occupancy)
        if self.extra_filter is not None:
            allowed = [n is not None and self.extra_filter(pod, n) for n in self.table.nodes]
            yield "node(s) were rejected by an extra filter", np.array(allowed, dtype=np.bool_)

    def _best(self, shape: Shape, passing: Bools) -> int:
        slots = np.flatnonzero(passing)
        if len(slots) == 1:
            return int(slots[0])
        scores = total_score(shape, self.table, self.occupancy, passing)[slots]
        best = slots[scores == scores.max()]
        return int(best[0] if len(best) == 1 else best[self._random.randrange(len(best))])

    def _refusal(self, pod: Pod, shape: Shape) -> Refused:
        if not self.table.node_count:
            return self._remember(shape, "no nodes available to schedule pods")
        reasons: Counter[str] = Counter()
        alive = self.table.live.copy()
        resources_failed = np.zeros(self.table.size, dtype=np.bool_)
        for message, ok in (*static_view(shape, self.table).filters, *self._dynamic(pod, shape)):
            is_short = message.startswith("Insufficient ") or message == "Too many pods"
            # One plugin names every resource that is short; the plugins after it no longer see such nodes.
            failed = alive & ~ok & (is_short | ~resources_failed)
            count = int(failed.sum())
            if not count:
                continue
            reasons[message] += count
            if is_short:
                resources_failed |= failed
            else:
                alive &= ok & ~resources_failed
        return self._remember(shape, self._counted([f"{count} {text}" for text, count in reasons.items()]))

    def _remember(self, shape: Shape, message: str) -> Refused:
        shape.failed_supply = self.table.supply
        shape.failed_message = message
        return Refused(message)

    def _counted(self, reasons: list[str]) -> str:
        return f"0/{self.table.node_count} nodes are available: {', '.join(sorted(reasons))}."


def _occupies_the_same(old: Pod, new: Pod) -> bool:
    """Whether an update leaves everything the scheduler counts as it was; most updates are status alone."""
    return (
        old.is_deleting == new.is_deleting
        and old.metadata.labels == new.metadata.labels
        and old.spec.containers == new.spec.containers
        and _resized(old) == _resized(new)
    )


def _resized(pod: Pod) -> list[object]:
    """What statuses say about resources: only set where the cluster resizes pods in place."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return [(s.name, s.allocated_resources, s.resources) for s in statuses if s.allocated_resources or s.resources]
