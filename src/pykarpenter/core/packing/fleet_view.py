"""A cluster as the fleet planner sees it: classes of movable pods, machines with what is free, kinds to buy.

Built with the packing engine's own tables, so that requirements, taints, DaemonSets, limits per hostname and prices
mean the same. Rules between machines (zones, affinities) are left out: plans are checked by a full what-if before
anybody acts on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pykarpenter.api.pods import Pod
from pykarpenter.core.cover.problem import CoverProblem
from pykarpenter.core.fleet.problem import FleetProblem
from pykarpenter.core.interning import Bools, Floats, Ints
from pykarpenter.core.packing.classes import PodClass
from pykarpenter.core.packing.engine import Decision
from pykarpenter.core.packing.kernel import Kernel
from pykarpenter.core.packing.lower_bound import accepting_machines
from pykarpenter.core.packing.what_if import WhatIfBase
from pykarpenter.core.packing_settings import never_stop


@dataclass(frozen=True, slots=True)
class Movable:
    """A machine whose pods may move: its name, its price and those pods."""

    node: str
    price: float
    pods: tuple[Pod, ...]
    # What moving each of the pods counts.
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class FleetView:
    """The problem, and which machine each of its rows is."""

    problem: FleetProblem
    nodes: tuple[str, ...]


def fleet_view(base: WhatIfBase, movable: Sequence[Movable], closed: frozenset[str]) -> FleetView | None:
    """The fleet with these machines movable; others only take pods in. None when a kind's price is unknown."""
    pods = [pod for machine in movable for pod in machine.pods]
    decision = Decision(base.engine, base.snapshot, base.settings, never_stop)
    nodes = base.nodes.without((), frozenset(), closed)
    kernel, batch = decision.prepare(nodes, pods)
    classes = batch.classes
    kinds = _kinds(kernel, classes)
    if kinds is None or not classes:
        return None
    class_of = {pod.key: number for number, cls in enumerate(classes) for pod in cls.pods}
    by_name = {machine.node: machine for machine in movable}
    # Machines whose pods have a class each: one that holds a pod which nothing may place again stays.
    rows = [
        index
        for index, view in enumerate(kernel.nodes.views[: kernel.nodes.targets])
        if view.name in by_name or view.initialized
    ]
    names = [kernel.nodes.views[index].name for index in rows]
    accepts = _accepts(kernel, classes, frozenset(base.uninitialized) | closed)[rows]
    held = np.zeros((len(rows), len(classes)), np.int64)
    price = np.zeros(len(rows))
    removable = np.zeros(len(rows), bool)
    for row, name in enumerate(names):
        machine = by_name.get(name)
        if machine is None:
            continue
        price[row] = machine.price
        removable[row] = all(pod.key in class_of for pod in machine.pods)
        for pod in machine.pods:
            if pod.key in class_of and removable[row]:
                held[row, class_of[pod.key]] += 1
    free = np.maximum(kernel.nodes.free[rows], 0)
    kinds = kinds.with_demand(held.sum(axis=0))
    weights = _weights(classes, by_name)
    return FleetView(FleetProblem(kinds, price, free, held, removable, accepts, weights), tuple(names))


def _kinds(kernel: Kernel, classes: Sequence[PodClass]) -> CoverProblem | None:
    capacity: list[Ints] = []
    price: list[Floats] = []
    for root in kernel.roots:
        prices = root.selection.price[root.template.table.row_type[root.rows]]
        capacity.append(root.usable)
        price.append(prices)
    if not capacity or not classes:
        return None
    prices_all = np.concatenate(price)
    known = np.isfinite(prices_all) & (prices_all > 0)
    if not known.any():
        return None
    allowed = np.array([accepting_machines(kernel, cls) for cls in classes])
    requests = np.array([cls.vector for cls in classes])
    demand = np.array([len(cls.pods) for cls in classes], np.int64)
    return CoverProblem(requests, demand, np.concatenate(capacity)[known], prices_all[known], allowed[:, known])


def _accepts(kernel: Kernel, classes: Sequence[PodClass], closed: frozenset[str]) -> Bools:
    """Machines that would take a pod of each class if they had room: `[N, C]`."""
    nodes = kernel.nodes
    found = np.zeros((nodes.targets, len(classes)), bool)
    for number, cls in enumerate(classes):
        for rung in cls.rungs[:1]:
            for guest in rung.guests:
                admitted = nodes.tolerated(rung.tolerations) & nodes.compatible(kernel.kinds.sets[guest])
                found[:, number] |= admitted[: nodes.targets]
        if cls.ports or cls.rungs[0].hosts:
            # At most one to a machine, or a matter of what else runs there: new machines only.
            found[:, number] = False
    for index, view in enumerate(nodes.views[: nodes.targets]):
        if view.name in closed:
            found[index] = False
    return found


def _weights(classes: Sequence[PodClass], by_name: Mapping[str, Movable]) -> Floats:
    weight = {pod.key: machine.weight for machine in by_name.values() for pod in machine.pods}
    return np.array([max(weight.get(pod.key, 1.0) for pod in cls.pods) for cls in classes])
