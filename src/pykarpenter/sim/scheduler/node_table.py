"""Nodes as columns: resources, labels and taints in arrays, one slot for each node.

Filters and scores read whole columns at once; nothing here decides. `version` moves when a label, a taint, a cordon or
the set of nodes changes, `supply` when a pod that did not fit before might fit now.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pykarpenter.api.nodes import Node, Taint
from pykarpenter.api.quantity import available

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

# `matchFields: metadata.name` is looked up like a label under a key that no label can have.
NAME_FIELD = "metadata.name="

# kube-scheduler counts pods without requests as this much when it scores (never when it filters).
DEFAULT_MILLI_CPU = 100
DEFAULT_MEMORY = 200 * 1024 * 1024

_FIRST_CAPACITY = 64
_TaintKey = tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod takes from a node: (row, amount) pairs that must fit, and the amounts that scores count."""

    rows: tuple[tuple[int, int], ...]
    scored_cpu: int
    scored_memory: int


class _Column:
    """One label key: for each slot the number of its value, or -1."""

    def __init__(self, capacity: int) -> None:
        self.ids: Ints = np.full(capacity, -1, dtype=np.int64)
        self.numbers: dict[str, int] = {}

    def number(self, value: str) -> int:
        return self.numbers.setdefault(value, len(self.numbers))


class NodeTable:
    def __init__(self) -> None:
        self.size = 0
        self.version = 0
        self.supply = 0
        self.names: list[str] = []
        self.nodes: list[Node | None] = []
        self.slot_of: dict[str, int] = {}
        self.taint_sets: list[tuple[Taint, ...]] = []
        self._taint_numbers: dict[_TaintKey, int] = {}
        self._free: list[int] = []
        self._rows: dict[str, int] = {}
        self._columns: dict[str, _Column] = {}
        self._capacity = _FIRST_CAPACITY
        self._allocatable: Ints = np.zeros((8, _FIRST_CAPACITY), dtype=np.int64)
        self._requested: Ints = np.zeros((8, _FIRST_CAPACITY), dtype=np.int64)
        self._scored: Ints = np.zeros((2, _FIRST_CAPACITY), dtype=np.int64)
        self._live: Bools = np.zeros(_FIRST_CAPACITY, dtype=np.bool_)
        self._unschedulable: Bools = np.zeros(_FIRST_CAPACITY, dtype=np.bool_)
        self._taints: Ints = np.zeros(_FIRST_CAPACITY, dtype=np.int64)
        for resource in ("cpu", "memory", "pods"):
            self.row(resource)

    # Columns that filters and scores read; all are views of the first `size` slots.

    @property
    def live(self) -> Bools:
        return self._live[: self.size]

    @property
    def unschedulable(self) -> Bools:
        return self._unschedulable[: self.size]

    @property
    def taints(self) -> Ints:
        """For each slot the index into `taint_sets`."""
        return self._taints[: self.size]

    @property
    def node_count(self) -> int:
        return len(self.slot_of)

    def allocatable(self, row: int) -> Ints:
        return self._allocatable[row, : self.size]

    def requested(self, row: int) -> Ints:
        return self._requested[row, : self.size]

    def scored(self, index: int) -> Ints:
        """Requests as scores count them: 0 is cpu, 1 is memory."""
        return self._scored[index, : self.size]

    def column(self, key: str) -> Ints:
        """For each slot the number of its value of the label, -1 where it has none."""
        return self._column(key).ids[: self.size]

    def value_number(self, key: str, value: str) -> int:
        """The number of a value in `column(key)`; -2, which no slot has, for a value nobody has."""
        return self._column(key).numbers.get(value, -2)

    def values(self, key: str) -> Mapping[str, int]:
        return self._column(key).numbers

    def resource_name(self, row: int) -> str:
        return next(name for name, index in self._rows.items() if index == row)

    def row(self, resource: str) -> int:
        """The row of a resource; a new resource gets the next one."""
        found = self._rows.get(resource)
        if found is not None:
            return found
        row = len(self._rows)
        if row == len(self._allocatable):
            grow = np.zeros_like(self._allocatable)
            self._allocatable = np.concatenate([self._allocatable, grow])
            self._requested = np.concatenate([self._requested, grow])
        self._rows[resource] = row
        return row

    def demand(self, requests: Mapping[str, int]) -> Demand:
        rows = tuple((self.row(name), amount) for name, amount in sorted(requests.items()) if amount > 0)
        return Demand(rows, requests.get("cpu") or DEFAULT_MILLI_CPU, requests.get("memory") or DEFAULT_MEMORY)

    # Changes.

    def upsert(self, node: Node) -> int:
        """Enter a node or what changed of it; answers its slot."""
        slot = self.slot_of.get(node.name)
        before = self.nodes[slot] if slot is not None else None
        if slot is None:
            slot = self._new_slot(node.name)
        self.nodes[slot] = node
        if before is None or _describes_differently(before, node):
            self._describe(slot, node)
            self.version += 1
            self.supply += 1
        if before is None or before.status.allocatable != node.status.allocatable:
            self._allocatable[:, slot] = 0
            for name, amount in available(node.status.allocatable).items():
                self._allocatable[self.row(name), slot] = amount
            self.supply += 1
        return slot

    def remove(self, name: str) -> int | None:
        """Forget a node; answers the slot that became free. Its pods must have been taken out before."""
        slot = self.slot_of.pop(name, None)
        if slot is None:
            return None
        self.nodes[slot] = None
        self._live[slot] = False
        self._allocatable[:, slot] = 0
        self._requested[:, slot] = 0
        self._scored[:, slot] = 0
        for column in self._columns.values():
            column.ids[slot] = -1
        heapq.heappush(self._free, slot)
        self.version += 1
        self.supply += 1
        return slot

    def take(self, slot: int, demand: Demand) -> None:
        for row, amount in demand.rows:
            self._requested[row, slot] += amount
        self._scored[0, slot] += demand.scored_cpu
        self._scored[1, slot] += demand.scored_memory

    def give_back(self, slot: int, demand: Demand) -> None:
        for row, amount in demand.rows:
            self._requested[row, slot] -= amount
        self._scored[0, slot] -= demand.scored_cpu
        self._scored[1, slot] -= demand.scored_memory
        self.supply += 1

    def _new_slot(self, name: str) -> int:
        if self._free:
            slot = heapq.heappop(self._free)
            self.names[slot] = name
        else:
            slot = self.size
            if slot == self._capacity:
                self._grow()
            self.size += 1
            self.names.append(name)
            self.nodes.append(None)
        self.slot_of[name] = slot
        self._live[slot] = True
        return slot

    def _grow(self) -> None:
        extra = self._capacity
        self._allocatable = np.pad(self._allocatable, ((0, 0), (0, extra)))
        self._requested = np.pad(self._requested, ((0, 0), (0, extra)))
        self._scored = np.pad(self._scored, ((0, 0), (0, extra)))
        self._live = np.pad(self._live, (0, extra))
        self._unschedulable = np.pad(self._unschedulable, (0, extra))
        self._taints = np.pad(self._taints, (0, extra))
        for column in self._columns.values():
            column.ids = np.pad(column.ids, (0, extra), constant_values=-1)
        self._capacity += extra

    def _describe(self, slot: int, node: Node) -> None:
        self._unschedulable[slot] = node.spec.unschedulable
        self._taints[slot] = self._taint_number(node.spec.taints)
        for key, column in self._columns.items():
            value = _value_of(node, key)
            column.ids[slot] = -1 if value is None else column.number(value)

    def _taint_number(self, taints: Iterable[Taint]) -> int:
        listed = tuple(taints)
        key = tuple((t.key, t.value, t.effect) for t in listed)
        number = self._taint_numbers.get(key)
        if number is None:
            number = self._taint_numbers[key] = len(self.taint_sets)
            self.taint_sets.append(listed)
        return number

    def _column(self, key: str) -> _Column:
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = _Column(self._capacity)
            for slot, node in enumerate(self.nodes):
                value = _value_of(node, key) if node is not None else None
                if value is not None:
                    column.ids[slot] = column.number(value)
        return column


def _value_of(node: Node, key: str) -> str | None:
    return node.name if key == NAME_FIELD else node.metadata.labels.get(key)


def _describes_differently(old: Node, new: Node) -> bool:
    return (
        old.metadata.labels != new.metadata.labels
        or old.spec.unschedulable != new.spec.unschedulable
        or old.spec.taints != new.spec.taints
    )
