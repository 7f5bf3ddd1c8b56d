"""Which nodes can take a pod now: ports, resources, spread, affinity and anti-affinity, over whole columns.

Each filter answers the slots that pass and the words kube-scheduler uses for those that do not. Volumes have their
own module. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pykarpenter.sim.scheduler.node_table import Bools, Floats, Ints, NodeTable
from pykarpenter.sim.scheduler.occupancy import Occupancy, ports_clash
from pykarpenter.sim.scheduler.shapes import Shape, Spread, StaticView, static_view
from pykarpenter.sim.scheduler.terms import Held

# (message, slots that pass)
Filter = tuple[str, Bools]


def dynamic_filters(shape: Shape, table: NodeTable, occupancy: Occupancy) -> Iterator[Filter]:
    """The filters that depend on the pods already placed, in kube-scheduler's order."""
    if shape.ports:
        yield "node(s) didn't have free ports for the requested pod ports", _ports(shape, table, occupancy)
    yield from resource_filters(shape, table)
    if shape.hard_spread:
        yield from _spread(shape, static_view(shape, table), table, occupancy)
    yield from _pod_affinity(shape, table, occupancy)


def resource_filters(shape: Shape, table: NodeTable) -> Iterator[Filter]:
    for row, amount in shape.demand.rows:
        name = table.resource_name(row)
        message = "Too many pods" if name == "pods" else f"Insufficient {name}"
        yield message, table.allocatable(row) - table.requested(row) >= amount


def domain_sums(column: Ints, weights: Ints, among: Bools) -> Floats:
    """For each number of the column's values, the sum of weights over those slots."""
    chosen = among & (column >= 0)
    sums = np.bincount(column[chosen], weights=weights[chosen], minlength=int(column.max(initial=-1)) + 1)
    return sums.astype(np.float64)


def spread_to_slots(column: Ints, sums: Floats) -> Floats:
    """Each slot's own domain's sum; 0 where the slot has no domain."""
    if not len(sums):
        return np.zeros(len(column), dtype=np.float64)
    return np.where(column >= 0, sums[column], 0.0)


def _ports(shape: Shape, table: NodeTable, occupancy: Occupancy) -> Bools:
    ok = np.ones(table.size, dtype=np.bool_)
    for slot, entries in occupancy.by_slot.items():
        if not any(entry.ports for entry in entries.values()):
            continue
        used = occupancy.ports_on(slot)
        ok[slot] = not any(ports_clash(wanted, port) for wanted in shape.ports for port in used)
    return ok


def spread_eligible(spread: Spread, static: StaticView, table: NodeTable) -> Bools:
    """The nodes whose domains and pods a constraint counts."""
    eligible = table.live.copy()
    if spread.honour_affinity:
        eligible &= static.affinity_ok
    if spread.honour_taints:
        eligible &= static.taints_ok
    return eligible


def _spread(shape: Shape, static: StaticView, table: NodeTable, occupancy: Occupancy) -> Iterator[Filter]:
    keyed = np.ones(table.size, dtype=np.bool_)
    for spread in shape.hard_spread:
        keyed &= table.column(spread.topology_key) >= 0
    yield "node(s) didn't match pod topology spread constraints (missing required label)", keyed
    ok = np.ones(table.size, dtype=np.bool_)
    for spread in shape.hard_spread:
        column = table.column(spread.topology_key)
        eligible = spread_eligible(spread, static, table) & keyed
        domains = np.unique(column[eligible])
        sums = domain_sums(column, occupancy.counts(spread.term).view(table.size), eligible)
        fewest = float(sums[domains].min()) if len(domains) and len(domains) >= spread.min_domains else 0.0
        own = 1 if occupancy.matches(spread.term, shape.labels) else 0
        ok &= spread_to_slots(column, sums) + own - fewest <= spread.max_skew
    yield "node(s) didn't match pod topology spread constraints", ok


def held_for(shape: Shape, occupancy: Occupancy) -> list[Held]:
    """Terms of placed pods that match this shape; cached until a new kind of term appears."""
    version, held = shape.held_cache
    if version != occupancy.held_version:
        held = occupancy.held_against(shape.labels)
        shape.held_cache = (occupancy.held_version, held)
    return held


def _pod_affinity(shape: Shape, table: NodeTable, occupancy: Occupancy) -> Iterator[Filter]:
    if shape.affinity_all is not None:
        yield "node(s) didn't match pod affinity rules", _affinity(shape, table, occupancy)
    if shape.anti_affinity:
        ok = np.ones(table.size, dtype=np.bool_)
        for rule in shape.anti_affinity:
            column = table.column(rule.topology_key)
            sums = domain_sums(column, occupancy.counts(rule.term).view(table.size), table.live)
            ok &= spread_to_slots(column, sums) == 0
        yield "node(s) didn't match pod anti-affinity rules", ok
    against = [held for held in held_for(shape, occupancy) if held.weight is None]
    if against:
        ok = np.ones(table.size, dtype=np.bool_)
        for held in against:
            column = table.column(held.topology_key)
            sums = domain_sums(column, held.counts.view(table.size), table.live)
            ok &= spread_to_slots(column, sums) == 0
        yield "node(s) didn't satisfy existing pods anti-affinity rules", ok


def _affinity(shape: Shape, table: NodeTable, occupancy: Occupancy) -> Bools:
    assert shape.affinity_all is not None
    counts = occupancy.counts(shape.affinity_all).view(table.size)
    keyed = np.ones(table.size, dtype=np.bool_)
    ok = np.ones(table.size, dtype=np.bool_)
    for rule in shape.affinity:
        column = table.column(rule.topology_key)
        keyed &= column >= 0
        ok &= spread_to_slots(column, domain_sums(column, counts, table.live)) > 0
    if not counts.any() and occupancy.matches(shape.affinity_all, shape.labels):
        # The first pod of a group that wants to be together may go anywhere.
        return keyed
    return ok & keyed
