"""Which devices machines have: published by drivers of initialized nodes, or promised by the type of a machine.

Slices that belong to a node which is gone or not initialized do not count; until it is initialized, the templates of
its type stand for what its drivers will publish.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from pykarpenter.api import labels
from pykarpenter.api.devices import ResourceSlice
from pykarpenter.api.labels import LabelRules
from pykarpenter.core.devices.consumption import Usage, add
from pykarpenter.core.devices.matching import Bindings
from pykarpenter.core.devices.placing import Term, labels_of
from pykarpenter.core.devices.pools import PROMISED, DeviceId, Pool, PoolDevice, Scope, gather
from pykarpenter.core.devices.search import Candidate, Supply
from pykarpenter.core.instance_types import InstanceType, by_name
from pykarpenter.core.interning import Bools, Ints
from pykarpenter.core.packing.node_table import NodeTable
from pykarpenter.core.packing.type_table import TypeTable
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView


@dataclass(slots=True)
class Promise:
    """What machines of types with the same templates will publish."""

    pools: list[Pool]
    bindings: Bindings


class DeviceSupply:
    """The devices of one decision; slices are read when somebody first asks."""

    def __init__(self, nodes: NodeTable, snapshot: ClusterSnapshot, rules: LabelRules) -> None:
        self._nodes = nodes
        self._snapshot = snapshot
        self._rules = rules
        self._group_ids: dict[str, int] = {}
        self._promises: list[Promise] = []
        self._row_groups: dict[int, Ints] = {}
        self._by_name: dict[str, dict[str, InstanceType]] = {}
        self._of_node: dict[int, Supply] = {}
        self._of_group: dict[int, Supply] = {}

    # Published.

    @cached_property
    def _views(self) -> dict[str, NodeView]:
        """Machines of the decision by the name of their Node."""
        table = self._nodes
        there = [view for view, here in zip(table.views, table.has_node.tolist(), strict=True) if here]
        return {view.node.name: view for view in there if view.node is not None}

    @cached_property
    def published(self) -> list[Pool]:
        slices = [item.spec for item in self._snapshot.devices.slices if self._counts(item)]
        return gather(slices, rules=self._rules)

    def _counts(self, item: ResourceSlice) -> bool:
        owners = [owner.name for owner in item.metadata.owner_references if owner.kind == "Node"]
        if item.spec.node_name:
            owners.append(item.spec.node_name)
        return all(name in self._views and self._views[name].initialized for name in owners)

    @cached_property
    def devices(self) -> dict[DeviceId, PoolDevice]:
        return {device.id: device for pool in self.published for device in pool.devices}

    @cached_property
    def _local(self) -> dict[str, list[Pool]]:
        found: dict[str, list[Pool]] = {}
        for pool in self.published:
            for name in sorted({scope.node_name for scope in _scopes(pool) if scope.is_local}):
                found.setdefault(name, []).append(pool)
        return found

    @cached_property
    def _shared(self) -> list[Pool]:
        """Pools with devices that more than one machine can reach."""
        return [pool for pool in self.published if any(not scope.is_local for scope in _scopes(pool))]

    @property
    def is_shared(self) -> bool:
        return bool(self._shared)

    # Promised.

    def group(self, item: InstanceType) -> int:
        promised = (item.dynamic_resources, item.attribute_bindings)
        key = repr(promised) if any(promised) else ""
        found = self._group_ids.get(key)
        if found is None:
            found = self._group_ids[key] = len(self._promises)
            pools = gather(item.dynamic_resources, PROMISED, self._rules)
            self._promises.append(Promise(pools, Bindings(item.attribute_bindings)))
        return found

    def groups(self, table: TypeTable) -> Ints:
        """The group of each row's type; types with equal templates are one group."""
        found = self._row_groups.get(id(table))
        if found is None:
            of_type = np.array([self.group(item) for item in table.types], dtype=np.int64)
            found = self._row_groups[id(table)] = of_type[table.row_type]
        return found

    def of_group(self, group: int) -> Supply:
        """What a new machine of such a type can have: devices of the cluster first, then its own."""
        found = self._of_group.get(group)
        if found is None:
            promise = self._promises[group]
            shared = [
                Candidate(device, device.scope.terms)
                for pool in self._shared
                for device in pool.devices
                if device.scope.terms is not None
            ]
            own = [Candidate(device, device.scope.terms or ()) for pool in promise.pools for device in pool.devices]
            found = self._of_group[group] = Supply(
                [*shared, *own],
                {key: amount for pool in [*self._shared, *promise.pools] for key, amount in pool.counters.items()},
                [pool for pool in [*self._shared, *promise.pools] if pool.problem],
                promise.bindings,
            )
        return found

    # Machines that exist.

    @cached_property
    def having_devices(self) -> Bools | None:
        """Machines that may have a device; None when every one may."""
        if self._shared:
            return None
        views = self._nodes.views[: self._nodes.targets]
        return np.array([not v.initialized or bool(v.node and v.node.name in self._local) for v in views], dtype=bool)

    def of_node(self, index: int) -> Supply:
        found = self._of_node.get(index)
        if found is None:
            found = self._of_node[index] = self._node(self._nodes.views[index])
        return found

    def _node(self, view: NodeView) -> Supply:
        name, own = node_name(view), labels_of(view.labels, self._rules)
        pools = sorted({p.id: p for p in [*self._local.get(name, []), *self._shared]}.values(), key=lambda p: p.id)
        promise = self._promise_for(view)
        if promise is not None:
            pools += promise.pools

        def here(scope: Scope) -> tuple[Term, ...] | None:
            """How the machine is in the scope: as one of its terms says, or without one; None when it is not."""
            if scope.terms is None:
                return () if scope.node_name in ("", name) else None
            return tuple(term for term in scope.terms if term.admits(name, own))[:1] or None

        return Supply(
            [
                Candidate(device, terms)
                for pool in pools
                for device in pool.devices
                if (terms := here(device.scope)) is not None
            ],
            {key: amount for pool in pools for key, amount in pool.counters.items()},
            [pool for pool in pools if pool.problem and any(here(scope) is not None for scope in pool.scopes)],
            promise.bindings if promise is not None else Bindings(),
        )

    def _promise_for(self, view: NodeView) -> Promise | None:
        if view.initialized:
            return None
        pool = view.pool_name
        if pool not in self._by_name:
            self._by_name[pool] = by_name(self._snapshot.instance_types.get(pool, ()))
        known = self._by_name[pool]
        groups = {self.group(known[name]) for name in _type_names(view) if name in known}
        # A claim that is not launched may become one of several types; it promises what all of them bring.
        return self._promises[groups.pop()] if len(groups) == 1 else None

    def taken_early(self, index: int, used: Usage) -> Usage:
        """What a machine that is not initialized has given out already, in terms of its type's templates."""
        view = self._nodes.views[index]
        promise = self._promise_for(view)
        found: Usage = {}
        if promise is None:
            return found
        name = node_name(view)
        pools = {(s.spec.driver, s.spec.pool.name) for s in self._snapshot.devices.slices if s.spec.node_name == name}
        promised = {(d.id.driver, d.id.name): d for pool in promise.pools for d in pool.devices}
        for key, amount in used.items():
            device = key[1]
            if not isinstance(device, DeviceId) or (device.driver, device.pool) not in pools:
                continue
            known = promised.get((device.driver, device.name))
            if known is not None:
                add(found, {(key[0], known.id, *key[2:]): amount})
                if key[0] == "device":
                    add(found, {("counter", counter): Fraction(share) for counter, share in known.counters})
        return found


def _type_names(view: NodeView) -> list[str]:
    certain = view.labels.get(labels.INSTANCE_TYPE)
    if certain is not None or view.claim is None:
        return [certain or ""]
    listed = [r for r in view.claim.spec.requirements if r.key == labels.INSTANCE_TYPE and r.operator == "In"]
    return listed[0].values if listed else []


def node_name(view: NodeView) -> str:
    return view.node.name if view.node is not None else view.name


def _scopes(pool: Pool) -> Iterator[Scope]:
    yield from (device.scope for device in pool.devices)
    if pool.problem:
        yield from pool.scopes
