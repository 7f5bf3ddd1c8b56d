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
from pykarpenter.core.recent import Recent
from pykarpenter.core.snapshot import ClusterSnapshot

# Kinds and requirement sets remembered before starting afresh: limits that shrink with every decision make new ones for
# ever, and so do pods that ask for something else each time.
MAX_KINDS = 5_000
MAX_SETS = 20_000
# After so many supplies, what none of them asked of a catalogue is let go: it was for templates that are no more.
SUPPLIES_KEPT = 16
NO_TYPES = "nodepool requirements filtered out all available instance types"


@dataclass(slots=True, eq=False)
class Supply:
    """The templates in the order they are tried, and everything derived from them."""

    templates: list[Template]
    empty_pools: dict[str, Refusal]
    sets: RequirementSets
    kinds: KindTable

    @property
    def is_full(self) -> bool:
        return len(self.kinds.kinds) > MAX_KINDS or len(self.sets) > MAX_SETS

    @property
    def prefers_no_schedule(self) -> bool:
        return any(t.effect == "PreferNoSchedule" for template in self.templates for t in template.taints)


@dataclass(slots=True)
class SupplyCache:
    """Catalogues as tables, and the supply of the last decision."""

    columns: ResourceColumns
    # By the catalogue's identity, which stays taken as long as the table is kept.
    _tables: Recent[int, tuple[tuple[InstanceType, ...], frozenset[str], TypeTable]] = field(
        default_factory=lambda: Recent(128)
    )
    _made: int = 0
    _supply: tuple[tuple[object, ...], list[object], Supply] | None = None

    def table(self, types: tuple[InstanceType, ...], well_known: frozenset[str]) -> TypeTable:
        known = self._tables.get(id(types))
        if known is None or known[0] is not types or known[1] != well_known:
            known = self._tables.put(id(types), (types, well_known, TypeTable(types, self.columns, well_known)))
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
        if known is None or known[0] != key or known[2].is_full:
            made = self._make(snapshot, settings, daemons, credited)
            # Making tables may have named new resources.
            known = self._supply = (self._key(settings, credited, held), held, made)
        for template in known[2].templates:
            usages = [nodes.pool_usage.get(template.name, {}), snapshot.promised.get(template.name, {})]
            template.remaining = limits_left(template.pool, usages)
        return known[2]

    def _begin(self) -> None:
        # A pool has one catalogue at a time, and tables are large: only those of the last supply are worth keeping.
        self._tables.turn()
        self._made += 1
        if self._made % SUPPLIES_KEPT == 0:
            for _, _, table in self._tables.values():
                table.turn()

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
        self._begin()
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
