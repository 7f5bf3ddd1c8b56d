"""Machines that exist or are on their way, as arrays: free resources, taints, label columns and the pods they hold.

Rows are made from NodeViews and kept by identity between decisions; a table is put together from rows for each one.
Nodes marked for deletion are no targets, but their pods that stay behind still count for topology.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
from pykarpenter.core.requirements import Requirements
from pykarpenter.core.resources import Resources, add, pod_requests, subtract
from pykarpenter.core.snapshot import NodeView
from pykarpenter.core.taints import first_untolerated


class RequestMemo:
    """Requests of pods, computed once per distinct spec and container status."""

    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._known: dict[bytes, Resources] = {}

    def requests(self, pod: Pod) -> Resources:
        status = pod.status
        parts: list[object] = [pod.spec]
        if status.container_statuses or status.init_container_statuses:
            resize = find_condition(status.conditions, "PodResizePending")
            parts += [status.container_statuses, status.init_container_statuses, resize.reason if resize else ""]
        key = self._encode(parts)
        found = self._known.get(key)
        if found is None:
            if len(self._known) > 50_000:
                self._known.clear()
            found = self._known[key] = pod_requests(pod)
        return found


@dataclass(slots=True, eq=False)
class NodeRow:
    """What is derived from one NodeView alone."""

    view: NodeView
    free: Resources
    daemon_requests: Resources
    ports: tuple[HostPort, ...]
    # Pods that count for topology: not terminating. Key, namespace and labels.
    counted: tuple[tuple[str, str, Mapping[str, str]], ...]
    # Pods with required anti-affinity, terminating ones included: they still keep others away.
    guarded: tuple[Pod, ...]
    with_volumes: tuple[Pod, ...]


def node_row(view: NodeView, memo: RequestMemo) -> NodeRow:
    totals: list[Resources] = []
    daemons: list[Resources] = []
    ports: list[HostPort] = []
    counted = []
    guarded = []
    volumes = []
    for pod in view.pods:
        requests = memo.requests(pod)
        totals.append(requests)
        if is_daemon(pod):
            daemons.append(requests)
        ports.extend(host_ports(pod.spec))
        if not pod.is_deleting:
            counted.append((pod.key, pod.metadata.namespace, pod.metadata.labels))
        affinity = pod.spec.affinity
        if affinity is not None and affinity.pod_anti_affinity is not None and affinity.pod_anti_affinity.required:
            guarded.append(pod)
        if pod.spec.volumes:
            volumes.append(pod)
    free = subtract(view.allocatable, add(*totals))
    return NodeRow(view, free, add(*daemons), tuple(ports), tuple(counted), tuple(guarded), tuple(volumes))


class NodeTable:
    """The machines of one decision; the first `targets` of them can take pods, in the order they are tried."""

    def __init__(
        self, rows: Sequence[NodeRow], daemons: NodeDaemons, columns: ResourceColumns, in_batch: frozenset[str]
    ) -> None:
        ordered = sorted(rows, key=lambda r: (r.view.marked_for_deletion, not r.view.initialized, r.view.name))
        self.rows = ordered
        self.views = [row.view for row in ordered]
        self.targets = sum(not view.marked_for_deletion for view in self.views)
        self._columns = columns
        self.free = self._free(daemons)
        self._taints: dict[tuple[Taint, ...], int] = {}
        taint_ids = [self._taints.setdefault(view.taints, len(self._taints)) for view in self.views]
        self.taint_ids: Ints = np.array(taint_ids, dtype=np.int64)
        self.taint_sets = list(self._taints)
        self._label_columns: dict[str, tuple[Ints, list[str]]] = {}
        self._tolerated: dict[tuple[Toleration, ...], Bools] = {}
        self._index_bound_pods(in_batch)

    def __len__(self) -> int:
        return len(self.rows)

    def _free(self, daemons: NodeDaemons) -> Ints:
        for row in self.rows:
            self._columns.add(row.free)
        frees = []
        for row in self.rows:
            wanted = daemons.total(row.view.labels, row.view.taints)
            left = subtract(wanted, row.daemon_requests) if wanted else {}
            frees.append(subtract(row.free, {name: amount for name, amount in left.items() if amount > 0}))
        table = np.zeros((len(frees), self._columns.width), dtype=np.int64)
        for index, free in enumerate(frees):
            vector = self._columns.vector(free)
            if len(vector) > table.shape[1]:
                table = self._columns.padded(table)
            table[index, : len(vector)] = vector
        return table

    def widen(self) -> None:
        """Add columns for resources that pods brought along."""
        self.free = self._columns.padded(self.free)

    def _index_bound_pods(self, in_batch: frozenset[str]) -> None:
        ids: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
        nodes: list[int] = []
        kinds: list[int] = []
        self.label_classes: list[tuple[str, Mapping[str, str]]] = []
        for index, row in enumerate(self.rows):
            for key, namespace, pod_labels in row.counted:
                if key in in_batch:
                    continue
                identity = (namespace, tuple(sorted(pod_labels.items())))
                found = ids.get(identity)
                if found is None:
                    found = ids[identity] = len(ids)
                    self.label_classes.append((namespace, pod_labels))
                nodes.append(index)
                kinds.append(found)
        self.bound_nodes: Ints = np.array(nodes, dtype=np.int64)
        self.bound_kinds: Ints = np.array(kinds, dtype=np.int64)

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
