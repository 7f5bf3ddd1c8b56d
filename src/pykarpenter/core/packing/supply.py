"""What can be launched: templates, requirement sets and kinds, kept from one decision to the next while unchanged.

Only the pools' remaining limits belong to a single decision; they are set anew each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.interning import RequirementSets, ResourceColumns
from pykarpenter.core.packing.daemons import DaemonShape
from pykarpenter.core.packing.kinds import KindTable
from pykarpenter.core.packing.node_table import NodeTable
from pykarpenter.core.packing.templates import (
    Template,
    daemon_types,
    dynamic_pools,
    limits_left,
    template_labels,
    template_requirements,
)
from pykarpenter.core.packing.type_table import TypeTable
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.reasons import Refusal, Why
from pykarpenter.core.snapshot import ClusterSnapshot

# Kinds remembered before starting afresh: limits that shrink with every decision make new ones for ever.
MAX_KINDS = 5_000
NO_TYPES = "nodepool requirements filtered out all available instance types"


@dataclass(slots=True, eq=False)
class Supply:
    """The templates in the order they are tried, and everything derived from them."""

    templates: list[Template]
    empty_pools: dict[str, Refusal]
    sets: RequirementSets
    kinds: KindTable

    @property
    def prefers_no_schedule(self) -> bool:
        return any(t.effect == "PreferNoSchedule" for template in self.templates for t in template.taints)


@dataclass(slots=True)
class SupplyCache:
    """Catalogues as tables, and the supply of the last decision."""

    columns: ResourceColumns
    _tables: dict[int, tuple[tuple[InstanceType, ...], frozenset[str], TypeTable]] = field(default_factory=dict)
    _supply: tuple[tuple[object, ...], list[object], Supply] | None = None

    def table(self, types: tuple[InstanceType, ...], well_known: frozenset[str]) -> TypeTable:
        known = self._tables.get(id(types))
        if known is None or known[0] is not types or known[1] != well_known:
            if len(self._tables) >= 256:
                self._tables.clear()
            known = self._tables[id(types)] = (types, well_known, TypeTable(types, self.columns, well_known))
        return known[2]

    def supply(
        self,
        snapshot: ClusterSnapshot,
        settings: PackingSettings,
        daemons: Sequence[DaemonShape],
        credited: frozenset[str],
        nodes: NodeTable,
    ) -> Supply:
        """The supply for one decision, with what the limits leave beside the machines there are."""
        pools = [pool for pool in dynamic_pools(snapshot, settings) if snapshot.instance_types.get(pool.name)]
        held: list[object] = [*pools, *(snapshot.instance_types[pool.name] for pool in pools), *daemons]
        key = self._key(settings, credited, held)
        known = self._supply
        if known is None or known[0] != key or len(known[2].kinds.kinds) > MAX_KINDS:
            made = self._make(snapshot, settings, daemons, credited)
            # Making tables may have named new resources.
            known = self._supply = (self._key(settings, credited, held), held, made)
        for template in known[2].templates:
            usages = [nodes.pool_usage.get(template.name, {}), snapshot.promised.get(template.name, {})]
            template.remaining = limits_left(template.pool, usages)
        return known[2]

    def _key(self, settings: PackingSettings, credited: frozenset[str], held: Sequence[object]) -> tuple[object, ...]:
        rules = settings.label_rules
        return (rules.well_known, rules.restricted_domains, credited, self.columns.width, *map(id, held))

    def _make(
        self,
        snapshot: ClusterSnapshot,
        settings: PackingSettings,
        daemons: Sequence[DaemonShape],
        credited: frozenset[str],
    ) -> Supply:
        rules = settings.label_rules
        sets = RequirementSets(rules.well_known)
        supply = Supply([], {}, sets, KindTable(sets, credited))
        for pool in dynamic_pools(snapshot, settings):
            types = snapshot.instance_types.get(pool.name)
            if not types:
                continue
            table = self.table(types, rules.well_known)
            try:
                requirements = template_requirements(pool, rules)
            except ValueError as error:
                supply.empty_pools[pool.name] = Refusal(Why.NO_INSTANCE_TYPES, f"requirements: {error}")
                continue
            if not table.select(requirements).offerings.any():
                supply.empty_pools[pool.name] = Refusal(Why.NO_INSTANCE_TYPES, NO_TYPES)
                continue
            taints = tuple(pool.spec.template.spec.taints)
            supply.templates.append(
                Template(
                    index=len(supply.templates),
                    pool=pool,
                    labels=template_labels(pool),
                    requirements=requirements,
                    taints=taints,
                    table=table,
                    daemons=daemon_types(daemons, taints, requirements, table),
                    remaining=None,
                    _columns=self.columns,
                )
            )
        return supply
