"""Whom a pod may push away: the node where removing lower-priority pods makes room at the least harm.

Tries nodes by really taking pods out of the scheduler's picture and putting them back; the picture is unchanged when
the answer is given. Order of harm: broken PDBs, the highest victim priority, the sum of priorities, the number of
victims, then the node's slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pykarpenter.api.pods import Pod
from pykarpenter.sim.scheduler.engine import Engine
from pykarpenter.sim.scheduler.occupancy import Placed
from pykarpenter.sim.scheduler.shapes import Shape, static_view
from pykarpenter.sim.scheduler.volumes import VolumesRefused

# kube-scheduler looks at 10% of the nodes and at least 100 of them.
_MOST_CANDIDATES = 100

# Whether a PodDisruptionBudget would be broken by removing these pods, as a count.
Violations = Callable[[list[Pod]], int]


@dataclass(frozen=True, slots=True)
class Preemption:
    node: str
    victims: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class NoPreemption:
    message: str


def preempt(engine: Engine, pod: Pod, shape: Shape, violations: Violations) -> Preemption | NoPreemption:
    """The cheapest preemption, or why there is none in the scheduler's words."""
    if pod.spec.preemption_policy == "Never":
        return NoPreemption("not eligible due to preemptionPolicy=Never.")
    candidates = _candidates(engine, pod, shape)
    best: tuple[tuple[int, int, int, int, int], Preemption] | None = None
    for slot in candidates[:_MOST_CANDIDATES]:
        victims = _victims(engine, pod, shape, slot)
        if victims is None:
            continue
        pods = [entry.pod for entry in victims]
        harm = (
            violations(pods),
            max((entry.priority for entry in victims), default=-(2**31)),
            sum(entry.priority for entry in victims),
            len(victims),
            slot,
        )
        if best is None or harm < best[0]:
            best = (harm, Preemption(engine.table.names[slot], tuple(pods)))
    return best[1] if best is not None else NoPreemption(_nobody(engine, shape))


def _nobody(engine: Engine, shape: Shape) -> str:
    """Why nobody is pushed away: nodes that could never help, and nodes without anyone less important."""
    count = engine.table.node_count
    possible = int(static_view(shape, engine.table).passing.sum())
    parts = []
    if possible:
        parts.append(f"{possible} No preemption victims found for incoming pod")
    if count > possible:
        parts.append(f"{count - possible} Preemption is not helpful for scheduling")
    return f"0/{count} nodes are available: {', '.join(parts)}."


def _candidates(engine: Engine, pod: Pod, shape: Shape) -> list[int]:
    """Slots that pass the filters no preemption can change, hold someone less important, and could have room."""
    priority = pod.spec.priority or 0
    if not engine.occupancy.holds_below(priority):
        return []
    room = np.zeros((len(shape.demand.rows), engine.table.size), dtype=np.int64)
    lesser = np.zeros(engine.table.size, dtype=np.bool_)
    rows = {row: index for index, (row, _) in enumerate(shape.demand.rows)}
    for entry in engine.occupancy.placed.values():
        if entry.priority >= priority:
            continue
        lesser[entry.slot] = True
        for row, amount in entry.demand.rows:
            if row in rows:
                room[rows[row], entry.slot] += amount
    ok = static_view(shape, engine.table).passing & lesser
    for index, (row, amount) in enumerate(shape.demand.rows):
        ok &= engine.table.allocatable(row) - engine.table.requested(row) + room[index] >= amount
    return [int(slot) for slot in np.flatnonzero(ok)]


def _victims(engine: Engine, pod: Pod, shape: Shape, slot: int) -> list[Placed] | None:
    """Whom the pod must push off the slot; None when even removing all lesser pods does not help."""
    priority = pod.spec.priority or 0
    lesser = [entry for entry in engine.occupancy.on_slot(slot) if entry.priority < priority]
    # Spare the most important first, and of equals those that started first.
    lesser.sort(key=lambda e: (-e.priority, e.pod.status.start_time or "~", e.key))
    supply = engine.table.supply
    for entry in lesser:
        engine.occupancy.remove(entry.key)
    victims: list[Placed] = []
    try:
        if not _fits(engine, pod, shape, slot):
            return None
        for entry in lesser:
            engine.occupancy.put(entry)
            if not _fits(engine, pod, shape, slot):
                engine.occupancy.remove(entry.key)
                victims.append(entry)
        return victims
    finally:
        for entry in lesser:
            if entry.key not in engine.occupancy.placed:
                engine.occupancy.put(entry)
        # Nothing really left: shapes that were refused stay refused.
        engine.table.supply = supply


def _fits(engine: Engine, pod: Pod, shape: Shape, slot: int) -> bool:
    try:
        return bool(engine.passing(pod, shape)[slot])
    except VolumesRefused:
        return False
