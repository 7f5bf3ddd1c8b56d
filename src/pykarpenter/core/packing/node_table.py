"""Machines that exist or are on their way, as arrays: free resources, taints, label columns and the pods they hold.

Rows are made from NodeViews and kept by identity between decisions; a table is put together from rows for each one.
Nodes marked for deletion are no targets, but their pods that stay behind still count for topology.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from pykarpenter.api import labels
from pykarpenter.api.meta import find_condition
from pykarpenter.api.nodes import Taint
from pykarpenter.api.pods import Pod, Toleration
from pykarpenter.core.draining import is_daemon
from pykarpenter.core.interning import Bools, Ints, ResourceColumns
from pykarpenter.core.packing.daemons import NodeDaemons
from pykarpenter.core.ports import HostPort, host_ports
from pykarpenter.core.recent import Recent
from pykarpenter.core.requirements import Requirements
from pykarpenter.core.resources import Resources, add, pod_requests, subtract
from pykarpenter.core.snapshot import NodeView
from pykarpenter.core.taints import first_untolerated

# Distinct specs whose requests are kept until it is looked which of them are in use.
MAX_SPECS = 25_000


class RequestMemo:
    """Requests of pods, computed once per distinct spec and container status."""

    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._known: Recent[bytes, Resources] = Recent(MAX_SPECS)

    def requests(self, pod: Pod) -> Resources:
        spec, status = pod.spec, pod.status
        # Only what requests follow from: injected volumes and the node's name differ from pod to pod.
        parts: list[object] = [spec.containers, spec.init_containers, spec.resources, spec.overhead]
        if status.container_statuses or status.init_container_statuses:
            resize = find_condition(status.conditions, "PodResizePending")
            parts += [status.container_statuses, status.init_container_statuses, resize.reason if resize else ""]
        key = self._encode(parts)
        found = self._known.get(key)
        return self._known.put(key, pod_requests(pod)) if found is None else found

    def turn(self) -> None:
        """Let go of specs that were not asked for since the last turn."""
        self._known.turn()


class NodeInterner:
    """Small numbers for label sets of pods and taint sets of machines, kept between decisions."""

    def __init__(self) -> None:
        self._labels: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
        self.label_classes: list[tuple[str, Mapping[str, str]]] = []
        self._taints: dict[tuple[Taint, ...], int] = {}
        self.taint_sets: list[tuple[Taint, ...]] = []
        # Namespaces of pods seen on machines.
        self.namespaces: dict[str, None] = {}

    def label_class(self, namespace: str, pod_labels: Mapping[str, str]) -> int:
        identity = (namespace, tuple(sorted(pod_labels.items())))
        found = self._labels.get(identity)
        if found is None:
            found = self._labels[identity] = len(self.label_classes)
            self.label_classes.append((namespace, pod_labels))
            self.namespaces[namespace] = None
        return found

    def taint_set(self, taints: tuple[Taint, ...]) -> int:
        found = self._taints.get(taints)
        if found is None:
            found = self._taints[taints] = len(self.taint_sets)
            self.taint_sets.append(taints)
        return found

    def __len__(self) -> int:
        return len(self.label_classes) + len(self.taint_sets)

    def compacted(self, rows: Iterable[NodeRow]) -> tuple[NodeInterner, list[NodeRow]]:
        """An interner that knows only what the rows have, and the rows in its numbers; these stay as they are."""
        kept, moved = NodeInterner(), list(rows)
        numbers: Ints = np.full(len(self.label_classes), -1, dtype=np.int64)
        for index in sorted({index for row in moved for index in row.counted.tolist()}):
            numbers[index] = kept.label_class(*self.label_classes[index])
        return kept, [
            replace(row, counted=numbers[row.counted], taint_set=kept.taint_set(self.taint_sets[row.taint_set]))
            for row in moved
        ]


@dataclass(slots=True, eq=False)
class NodeRow:
    """What is derived from one NodeView alone."""

    view: NodeView
    free: Resources
    daemon_requests: Resources
    ports: tuple[HostPort, ...]
    taint_set: int
    # Label classes of the pods that count for topology (not terminating), and their keys beside them.
    counted: Ints
    counted_keys: tuple[str, ...]
    # Pods with required anti-affinity, terminating ones included: they still keep others away.
    guarded: tuple[Pod, ...]
    with_volumes: tuple[Pod, ...]
    # Free resources less the daemons still to come, and which DaemonSets that was reckoned with.
    vector: Ints
    reckoned_with: object = None


def node_row(view: NodeView, memo: RequestMemo, interner: NodeInterner) -> NodeRow:
    totals: list[Resources] = []
    daemons: list[Resources] = []
    ports: list[HostPort] = []
    counted: list[tuple[int, str]] = []
    guarded = []
    volumes = []
    for pod in view.pods:
        requests = memo.requests(pod)
        totals.append(requests)
        if is_daemon(pod):
            daemons.append(requests)
        ports.extend(host_ports(pod.spec))
        if not pod.is_deleting:
            counted.append((interner.label_class(pod.metadata.namespace, pod.metadata.labels), pod.key))
        affinity = pod.spec.affinity
        if affinity is not None and affinity.pod_anti_affinity is not None and affinity.pod_anti_affinity.required:
            guarded.append(pod)
        if pod.spec.volumes:
            volumes.append(pod)
    return NodeRow(
        view=view,
        free=subtract(view.allocatable, add(*totals)),
        daemon_requests=add(*daemons),
        ports=tuple(ports),
        taint_set=interner.taint_set(view.taints),
        counted=np.array([index for index, _ in counted], dtype=np.int64),
        counted_keys=tuple(key for _, key in counted),
        guarded=tuple(guarded),
        with_volumes=tuple(volumes),
        vector=np.zeros(0, dtype=np.int64),
    )


class NodeTable:
    """The machines of one decision; the first `targets` of them can take pods, in the order they are tried."""

    def __init__(
        self,
        rows: Sequence[NodeRow],
        daemons: NodeDaemons,
        columns: ResourceColumns,
        interner: NodeInterner,
        in_batch: frozenset[str],
    ) -> None:
        ordered = sorted(rows, key=lambda r: (r.view.marked_for_deletion, not r.view.initialized, r.view.name))
        self.rows = ordered
        self.views = [row.view for row in ordered]
        self.targets = sum(not view.marked_for_deletion for view in self.views)
        self._columns = columns
        self.free = self._free(daemons)
        self.taint_ids: Ints = np.array([row.taint_set for row in ordered], dtype=np.int64)
        self.taint_sets = interner.taint_sets
        self.label_classes = interner.label_classes
        self._label_columns: dict[str, tuple[Ints, list[str]]] = {}
        self._tolerated: dict[tuple[Toleration, ...], Bools] = {}
        self.has_node: Bools = np.array([view.node is not None for view in self.views], dtype=bool)
        self.pool_usage = self._pool_usage()
        self.guarded = [(index, pod) for index, row in enumerate(ordered) for pod in row.guarded]
        self.with_ports = [index for index, row in enumerate(ordered) if row.ports]
        # Machines that pods which could as well stay where they are must not use.
        self.closed: Ints = np.zeros(0, dtype=np.int64)
        self._index_of: dict[str, int] | None = None
        self.leave_out(in_batch)

    def __len__(self) -> int:
        return len(self.rows)

    def _free(self, daemons: NodeDaemons) -> Ints:
        for row in self.rows:
            if row.reckoned_with is not daemons.identity:
                wanted = daemons.total(row.view.labels, row.view.taints)
                left = subtract(wanted, row.daemon_requests) if wanted else {}
                free = subtract(row.free, {name: amount for name, amount in left.items() if amount > 0})
                row.vector = self._columns.vector(free)
                row.reckoned_with = daemons.identity
        width = self._columns.width
        if self.rows and all(len(row.vector) == width for row in self.rows):
            rows: Ints = np.array([row.vector for row in self.rows], dtype=np.int64)
            return rows
        table = np.zeros((len(self.rows), width), dtype=np.int64)
        for index, row in enumerate(self.rows):
            table[index, : len(row.vector)] = row.vector
        return table

    def _pool_usage(self) -> dict[str, Resources]:
        """What the machines of each pool count for against its limits, `nodes` included; leaving ones do not."""
        usage: dict[str, Resources] = {}
        for view in self.views[: self.targets]:
            pool = view.labels.get(labels.NODEPOOL)
            if pool:
                total = usage.setdefault(pool, {"nodes": 0})
                total["nodes"] += 1
                for name, amount in view.capacity.items():
                    total[name] = total.get(name, 0) + amount
        return usage

    def fresh(self) -> NodeTable:
        """The same machines with nothing placed on them yet; everything but the free resources is shared."""
        other = copy(self)
        other.free = self.free.copy()
        return other

    def without(self, removed: Iterable[str], in_batch: frozenset[str], closed: Iterable[str] = ()) -> NodeTable:
        """The machines as if some were gone with all their pods; the others keep their places in the table."""
        other = self.fresh()
        if self._index_of is None:
            self._index_of = {view.name: index for index, view in enumerate(self.views)}
        index_of = self._index_of
        gone = np.array([index_of[name] for name in sorted(removed) if name in index_of], dtype=np.int64)
        other.closed = np.array([index_of[name] for name in sorted(closed) if name in index_of], dtype=np.int64)
        other.closed = other.closed[other.closed < self.targets]
        # Short of everything: no pod fits.
        other.free[gone] = -1
        other.has_node = self.has_node.copy()
        other.has_node[gone] = False
        other.pool_usage = {pool: dict(usage) for pool, usage in self.pool_usage.items()}
        for index in gone[gone < self.targets].tolist():
            view = self.views[index]
            usage = other.pool_usage.get(view.labels.get(labels.NODEPOOL, ""))
            if usage is not None:
                usage["nodes"] -= 1
                for name, amount in view.capacity.items():
                    usage[name] -= amount
        left = set(gone.tolist())
        other.guarded = [(i, pod) for i, pod in self.guarded if i not in left and pod.key not in in_batch]
        kept = ~np.isin(self.bound_nodes, gone)
        other.bound_nodes, other.bound_kinds = self.bound_nodes[kept], self.bound_kinds[kept]
        return other

    def widen(self) -> None:
        """Add columns for resources that pods brought along."""
        self.free = self._columns.padded(self.free)

    def leave_out(self, in_batch: frozenset[str]) -> None:
        """Index the bound pods that count for topology: all but those that are being placed themselves."""
        counted = [self._counted(row, in_batch) for row in self.rows]
        sizes = [len(item) for item in counted]
        self.bound_nodes: Ints = np.repeat(np.arange(len(counted), dtype=np.int64), sizes)
        self.bound_kinds: Ints = np.concatenate(counted) if counted else np.zeros(0, dtype=np.int64)

    @staticmethod
    def _counted(row: NodeRow, in_batch: frozenset[str]) -> Ints:
        if not in_batch or in_batch.isdisjoint(row.counted_keys):
            return row.counted
        kept = [key not in in_batch for key in row.counted_keys]
        left: Ints = row.counted[np.array(kept, dtype=bool)]
        return left

    def column(self, key: str) -> tuple[Ints, list[str]]:
        """Value ids of a label for every machine, -1 where it is absent, and the values."""
        found = self._label_columns.get(key)
        if found is None:
            values: dict[str, int] = {}
            ids = []
            for view in self.views:
                value = view.labels.get(key)
                if value is None:
                    value = self._stand_in(view, key)
                ids.append(-1 if value is None else values.setdefault(value, len(values)))
            found = (np.array(ids, dtype=np.int64), list(values))
            self._label_columns[key] = found
        return found

    @staticmethod
    def _stand_in(view: NodeView, key: str) -> str | None:
        """The value under a deprecated name of the key; a machine's own name is its hostname."""
        if key == labels.HOSTNAME:
            return view.name
        return next(
            (view.labels[old] for old, new in labels.ALIASES.items() if new == key and old in view.labels), None
        )

    def compatible(self, wanted: Requirements) -> Bools:
        """Machines whose labels satisfy the requirements; an absent label satisfies only a negative one."""
        mask = np.ones(len(self.rows), dtype=bool)
        for key, item in wanted.items():
            ids, values = self.column(key)
            truth = np.array([*(item.allows(value) for value in values), item.is_negative], dtype=bool)
            mask &= truth[ids]
        return mask

    def tolerated(self, tolerations: tuple[Toleration, ...]) -> Bools:
        """Machines all of whose taints are tolerated."""
        found = self._tolerated.get(tolerations)
        if found is None:
            truth = [first_untolerated(taints, tolerations) is None for taints in self.taint_sets]
            found = np.array(truth, dtype=bool)[self.taint_ids] if truth else np.zeros(0, dtype=bool)
            self._tolerated[tolerations] = found
        return found

    def rooms(self, vector: Ints) -> Ints:
        """How many pods of that size each target has room for; a machine short of anything has none."""
        free = self.free[: self.targets]
        wanted = np.flatnonzero(vector)
        rooms: Ints = (free[:, wanted] // vector[wanted]).min(axis=1)
        rooms[(free < 0).any(axis=1)] = 0
        return np.maximum(rooms, 0)

    def has_prefer_no_schedule(self) -> bool:
        return any(t.effect == "PreferNoSchedule" for view in self.views[: self.targets] for t in view.taints)


def keys_of(pods: Iterable[Pod]) -> frozenset[str]:
    return frozenset(pod.key for pod in pods)
