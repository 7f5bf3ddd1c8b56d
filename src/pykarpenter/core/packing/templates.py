"""NodePools as machine templates: what a new machine of each would be, and what the pool's limits still allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pykarpenter.api import labels
from pykarpenter.api.labels import LabelRules
from pykarpenter.api.meta import condition_status, find_condition
from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.nodes import Taint
from pykarpenter.api.pods import Toleration
from pykarpenter.api.quantity import InvalidQuantity, available_units
from pykarpenter.core.interning import Bools, Ints, ResourceColumns
from pykarpenter.core.packing.daemons import DaemonShape
from pykarpenter.core.packing.type_table import TypeTable
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.ports import HostPort, first_conflict
from pykarpenter.core.reasons import PoolRefusal, Why
from pykarpenter.core.requirements import Requirements, from_expressions, from_labels, requirement
from pykarpenter.core.resources import Resources
from pykarpenter.core.snapshot import ClusterSnapshot
from pykarpenter.core.taints import first_untolerated

# Keys that only exist while deciding, so that DaemonSets selecting ready nodes are reckoned with.
SIMULATION_ONLY = (labels.REGISTERED, labels.INITIALIZED)
NODES = "nodes"


@dataclass(slots=True, eq=False)
class Template:
    """One NodePool that may launch machines for pods."""

    index: int
    pool: NodePool
    labels: Mapping[str, str]
    requirements: Requirements
    taints: tuple[Taint, ...]
    table: TypeTable
    # Daemons per type: which types get them.
    daemons: list[tuple[DaemonShape, Bools]]
    # What the limits leave, by resource; None without limits.
    remaining: Resources | None
    _columns: ResourceColumns
    _tolerated: dict[tuple[Toleration, ...], Taint | None] = field(default_factory=dict)
    _largest: Resources | None = None

    @property
    def name(self) -> str:
        return self.pool.name

    def untolerated(self, tolerations: tuple[Toleration, ...]) -> Taint | None:
        if tolerations not in self._tolerated:
            self._tolerated[tolerations] = first_untolerated(self.taints, tolerations)
        return self._tolerated[tolerations]

    def overhead(self) -> Ints:
        """DaemonSet requests of each row."""
        total = np.zeros((self.table.row_count, self._columns.width), dtype=np.int64)
        for shape, types in self.daemons:
            vector = self._columns.vector(shape.requests)
            total = self._columns.padded(total)
            total[types[self.table.row_type]] += vector
        return total

    def usable(self) -> Ints:
        """What pods can have of each row once its daemons run; negative when they do not fit themselves."""
        overhead = self.overhead()
        return self.table.allocatable() - overhead

    def port_conflicts(self, ports: Sequence[HostPort]) -> Bools | None:
        """Rows whose daemons hold one of the ports; None when there are none."""
        blocked: Bools | None = None
        for shape, types in self.daemons:
            if shape.ports and first_conflict(ports, shape.ports) is not None:
                rows = types[self.table.row_type]
                blocked = rows if blocked is None else blocked | rows
        return blocked

    def within_limits(self, offered: Bools, share: int = 1) -> Bools | None:
        """Rows whose capacity is at most a share (1/share) of what the limits leave; None when they exclude none.

        Types that one of the offered rows makes too large are left out whole.
        """
        if self.remaining is None:
            return None
        if self.remaining.get(NODES, 1) < 1:
            return np.zeros(self.table.row_count, dtype=bool)
        most = self.largest()
        if all(most.get(name, 0) <= max(left, -1) // share for name, left in self.remaining.items() if name != NODES):
            return None
        allowed = np.ones(self.table.row_count, dtype=bool)
        capacity = self.table.capacity()
        for name, left in self.remaining.items():
            if name != NODES and name in self._columns.names:
                allowed &= capacity[:, self._columns.names.index(name)] <= max(left, -1) // share
        return self.table.whole_types(allowed, offered)

    def charge(self, capacity: Mapping[str, int]) -> None:
        """Subtract a planned machine from what the limits leave."""
        if self.remaining is not None:
            for name in self.remaining:
                self.remaining[name] -= capacity.get(name, 0)

    def largest(self) -> Resources:
        """The most of each resource that any row has."""
        if self._largest is None:
            self._largest = self.max_capacity(np.arange(self.table.row_count))
        return self._largest

    def max_capacity(self, rows: Ints) -> Resources:
        """The most that a machine of any of these rows adds to the pool's usage."""
        most = self.table.capacity()[rows].max(axis=0)
        return {**self._columns.mapping(most), NODES: 1}


def dynamic_pools(snapshot: ClusterSnapshot, settings: PackingSettings) -> list[NodePool]:
    """Pools that may launch machines for pods, in the order they are tried: weight, then name, both descending."""
    return sorted(
        (pool for pool in snapshot.node_pools if _may_launch(pool, settings)),
        key=lambda pool: (pool.spec.weight or 0, pool.name),
        reverse=True,
    )


def _may_launch(pool: NodePool, settings: PackingSettings) -> bool:
    if not _is_managed(pool, settings):
        return False
    return not pool.is_static and not pool.is_deleting and condition_status(pool.status.conditions, "Ready") == "True"


def _is_managed(pool: NodePool, settings: PackingSettings) -> bool:
    reference = pool.spec.template.spec.node_class_ref
    managed = settings.managed_class_kinds
    return managed is None or (reference.group, reference.kind) in managed


def idle_pools(snapshot: ClusterSnapshot, settings: PackingSettings) -> list[PoolRefusal]:
    """Pools that would launch machines for pods but cannot now, each with what is in the way."""
    found = []
    for pool in sorted(snapshot.node_pools, key=lambda item: item.name):
        if pool.is_static or not _is_managed(pool, settings):
            continue
        problem = _obstacle(pool, snapshot)
        if problem:
            found.append(PoolRefusal(pool.name, Why.NO_NODE_POOLS, problem))
    return found


def _obstacle(pool: NodePool, snapshot: ClusterSnapshot) -> str:
    if pool.is_deleting:
        return "is being deleted"
    ready = find_condition(pool.status.conditions, "Ready")
    if ready is None or ready.status != "True":
        return f"is not ready: {ready.message}" if ready is not None and ready.message else "is not ready"
    types = snapshot.instance_types.get(pool.name)
    if types is None:
        return "its instance types are not known yet"
    return "" if types else "has no instance types"


def template_labels(pool: NodePool) -> dict[str, str]:
    """Labels that every machine of the pool carries."""
    spec = pool.spec.template
    found = {**spec.metadata.labels, labels.NODEPOOL: pool.name}
    reference = spec.spec.node_class_ref
    if reference.kind:
        found[reference.label_key] = reference.name
    return found


def template_requirements(pool: NodePool, rules: LabelRules) -> Requirements:
    """The pool's requirements and labels, plus what only exists while deciding; raises ValueError."""
    declared = from_expressions(pool.spec.template.spec.requirements, rules)
    with_labels = declared.merged(from_labels(template_labels(pool), rules).values())
    return with_labels.merged(requirement(key, "In", ["true"]) for key in SIMULATION_ONLY)


def limits_left(pool: NodePool, usages: Sequence[Mapping[str, int]]) -> Resources | None:
    """The pool's limits less what its machines and promised claims have; None without limits."""
    left: Resources = {}
    for name, value in pool.spec.limits.items():
        try:
            left[name] = available_units(name, value)
        except InvalidQuantity:
            # The pool is about to lose its Ready; until then an unknown limit leaves no room.
            left[name] = 0
    if not left:
        return None
    for usage in usages:
        for name in left:
            left[name] -= usage.get(name, 0)
    return left


def daemon_types(
    shapes: Sequence[DaemonShape], taints: Sequence[Taint], host: Requirements, table: TypeTable
) -> list[tuple[DaemonShape, Bools]]:
    """For each DaemonSet that lands on machines of the template, the types that get its pod."""
    found = []
    for shape in shapes:
        if not shape.tolerates(taints):
            continue
        types = np.zeros(len(table.types), dtype=bool)
        for alternative in shape.alternatives:
            if host.compatible(alternative, table.well_known):
                types |= table.types_meeting(alternative)
        if types.any():
            found.append((shape, types))
    return found
