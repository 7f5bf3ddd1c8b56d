"""Which of the nodes that can take a pod is best: kube-scheduler's default scores and weights.

Every score is normalised to 0..100 over the nodes that passed the filters, then weighted and summed.
"""

from __future__ import annotations

import math

import numpy as np

from pykarpenter.sim.scheduler.filters import domain_sums, held_for, spread_eligible, spread_to_slots
from pykarpenter.sim.scheduler.node_table import Bools, Floats, NodeTable
from pykarpenter.sim.scheduler.occupancy import Occupancy
from pykarpenter.sim.scheduler.shapes import Shape, StaticView, static_view

# The weights of the default profile.
TAINT_TOLERATION = 3
NODE_AFFINITY = 2
TOPOLOGY_SPREAD = 2
INTER_POD_AFFINITY = 2
RESOURCES_FIT = 1
BALANCED_ALLOCATION = 1

MAX = 100.0


def total_score(shape: Shape, table: NodeTable, occupancy: Occupancy, passing: Bools) -> Floats:
    """The weighted sum for every slot; only those that pass mean anything."""
    static = static_view(shape, table)
    total = np.zeros(table.size, dtype=np.float64)
    if static.taint_penalty.any():
        total += TAINT_TOLERATION * _reversed(static.taint_penalty, passing)
    if static.affinity_score.any():
        total += NODE_AFFINITY * _proportional(static.affinity_score, passing)
    least, balanced = _allocation(shape, table)
    total += RESOURCES_FIT * least + BALANCED_ALLOCATION * balanced
    if shape.soft_spread:
        total += TOPOLOGY_SPREAD * _spread(shape, static, table, occupancy, passing)
    affinity = _inter_pod_affinity(shape, table, occupancy, passing)
    if affinity is not None:
        total += INTER_POD_AFFINITY * affinity
    return total


def _proportional(raw: Floats, passing: Bools) -> Floats:
    highest = float(raw[passing].max(initial=0.0))
    return np.floor(raw * MAX / highest) if highest > 0 else np.zeros_like(raw)


def _reversed(raw: Floats, passing: Bools) -> Floats:
    highest = float(raw[passing].max(initial=0.0))
    return MAX - np.floor(raw * MAX / highest) if highest > 0 else np.full_like(raw, MAX)


def _allocation(shape: Shape, table: NodeTable) -> tuple[Floats, Floats]:
    """LeastAllocated: the mean free share of cpu and memory. BalancedAllocation: how alike their used shares are."""
    fractions: list[Floats] = []
    least = np.zeros(table.size, dtype=np.float64)
    for index, row, amount in ((0, 0, shape.demand.scored_cpu), (1, 1, shape.demand.scored_memory)):
        allocatable = np.maximum(table.allocatable(row), 1).astype(np.float64)
        used = (table.scored(index) + amount).astype(np.float64)
        share = np.minimum(used / allocatable, 1.0)
        fractions.append(share)
        least += np.floor((1.0 - share) * MAX)
    return np.floor(least / 2), np.floor((1.0 - np.abs(fractions[0] - fractions[1]) / 2) * MAX)


def _spread(shape: Shape, static: StaticView, table: NodeTable, occupancy: Occupancy, passing: Bools) -> Floats:
    keyed = np.ones(table.size, dtype=np.bool_)
    for spread in shape.soft_spread:
        keyed &= table.column(spread.topology_key) >= 0
    raw = np.zeros(table.size, dtype=np.float64)
    scored = passing & keyed
    for spread in shape.soft_spread:
        column = table.column(spread.topology_key)
        sums = domain_sums(
            column, occupancy.counts(spread.term).view(table.size), spread_eligible(spread, static, table)
        )
        domains = len(np.unique(column[scored]))
        raw += spread_to_slots(column, sums) * math.log(domains + 2) + (spread.max_skew - 1)
    raw = np.round(raw)
    if not scored.any():
        return np.zeros(table.size, dtype=np.float64)
    highest, lowest = float(raw[scored].max()), float(raw[scored].min())
    if highest == 0:
        return np.where(keyed, MAX, 0.0)
    return np.where(keyed, np.floor(MAX * (highest + lowest - raw) / highest), 0.0)


def _inter_pod_affinity(shape: Shape, table: NodeTable, occupancy: Occupancy, passing: Bools) -> Floats | None:
    raw = np.zeros(table.size, dtype=np.float64)
    asked = False
    for rule in shape.preferred:
        column = table.column(rule.topology_key)
        sums = domain_sums(column, occupancy.counts(rule.term).view(table.size), table.live)
        raw += rule.weight * spread_to_slots(column, sums)
        asked = True
    for held in held_for(shape, occupancy):
        if held.weight is None:
            continue
        column = table.column(held.topology_key)
        sums = domain_sums(column, held.counts.view(table.size), table.live)
        raw += held.weight * spread_to_slots(column, sums)
        asked = True
    if not asked:
        return None
    highest, lowest = float(raw[passing].max()), float(raw[passing].min())
    if highest == lowest:
        return None
    return np.floor(MAX * (raw - lowest) / (highest - lowest))
