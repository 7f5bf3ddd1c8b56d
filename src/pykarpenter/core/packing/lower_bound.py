"""What no plan for the same pods could undercut, in $/h: reported beside the price so that users see the gap.

Every rule left out only loosens the bound: requirements count as far as they exclude machine types, rules over
hostnames as places on a machine, capacity that exists as free. Without the solver the bound looks at one resource at
a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

import numpy as np

from pykarpenter.core.cover.problem import CoverProblem
from pykarpenter.core.interning import Bools, Ints
from pykarpenter.core.packing.classes import PodClass
from pykarpenter.core.packing.kernel import Kernel
from pykarpenter.core.packing.kinds import Kind
from pykarpenter.core.packing.rungs import Consulted
from pykarpenter.core.topology.groups import Group, GroupKind

HAS_SOLVER = find_spec("highspy") is not None


def lower_bound(kernel: Kernel, classes: list[PodClass], given_up: Mapping[int, int]) -> float | None:
    """The bound for the placed pods; None when a machine's price is not known, so that no bound is.

    `given_up` says how many pods of which class lost their place when the plan was written down.
    """
    placed = {cls.index: cls.placed - given_up.get(cls.index, 0) for cls in classes}
    if not any(placed.values()) or not kernel.claims.count:
        return 0.0
    problem = _problem(kernel, [cls for cls in classes if placed[cls.index]], placed)
    if problem is None:
        return None
    free = _free(kernel, problem)
    if HAS_SOLVER:
        from pykarpenter.core.cover.bound import resource_bound

        return resource_bound(problem, free)[0]
    return _one_resource_at_a_time(problem, free)


def _problem(kernel: Kernel, classes: list[PodClass], placed: Mapping[int, int]) -> CoverProblem | None:
    groups = _host_groups(classes)
    width = kernel.columns.width
    capacity, price, owner = [], [], []
    for number, root in enumerate(kernel.roots):
        prices = root.selection.price[root.template.table.row_type[root.rows]]
        if not np.isfinite(prices).all():
            return None
        limits = np.array([g.rule.max_skew if g.rule.kind is GroupKind.SPREAD else 1 for g in groups], np.int64)
        capacity.append(np.hstack([root.usable, np.broadcast_to(limits, (len(root.rows), len(limits)))]))
        price.append(prices)
        owner.append(np.full(len(root.rows), number, np.int64))
    if not capacity:
        return None
    merged: dict[tuple[bytes, bytes, tuple[int, ...]], list[int]] = {}
    masks: list[Bools] = []
    rows: list[Ints] = []
    number_of = {id(group): number for number, group in enumerate(groups)}
    accepting: dict[tuple[int, ...], tuple[Bools, bytes]] = {}
    for cls in classes:
        kinds = _possible_kinds(kernel, cls)
        alike = tuple(kind.index for kind in kinds)
        if alike not in accepting:
            made = _rows_of(kernel, kinds)
            accepting[alike] = (made, np.packbits(made).tobytes())
        mask, packed = accepting[alike]
        places = tuple(sorted({number_of[id(i.group)] for i in cls.rungs[-1].hosts if _takes_place(i)}))
        key = (cls.vector.tobytes(), packed, places)
        known = merged.get(key)
        if known is None:
            row = np.zeros(width + len(groups), np.int64)
            row[:width] = cls.vector
            row[[width + p for p in places]] = 1
            merged[key] = known = [len(rows), 0]
            rows.append(row)
            masks.append(mask)
        known[1] += placed[cls.index]
    demand = np.zeros(len(rows), np.int64)
    for index, number in merged.values():
        demand[index] = number
    return CoverProblem(
        np.array(rows), demand, np.concatenate(capacity), np.concatenate(price), np.array(masks), shape=width
    )


def accepting_machines(kernel: Kernel, cls: PodClass) -> Bools:
    """Machines that could take a pod of the class at any point of its ladder."""
    return _rows_of(kernel, _possible_kinds(kernel, cls))


def _possible_kinds(kernel: Kernel, cls: PodClass) -> list[Kind]:
    """What a new machine could be for a pod of the class, for every pool and point of the ladder."""
    found: list[Kind] = []
    for root in kernel.roots:
        for rung in cls.rungs:
            if root.template.untolerated(rung.tolerations) is not None:
                continue
            for guest in rung.guests:
                kind = kernel.with_guest(root, cls, guest)
                if kind is not None:
                    found.append(kind)
    return found


def _rows_of(kernel: Kernel, kinds: list[Kind]) -> Bools:
    """The rows of all pools that belong to one of the kinds."""
    parts: list[Bools] = []
    for root in kernel.roots:
        mask = np.zeros(len(root.rows), bool)
        for kind in kinds:
            if kind.template is root.template:
                mask |= np.isin(root.rows, kind.rows)
        parts.append(mask)
    return np.concatenate(parts)


def _host_groups(classes: list[PodClass]) -> list[Group]:
    """Rules over hostnames that hold at the end of some ladder, so that no relaxation takes them away."""
    found: dict[int, Group] = {}
    for cls in classes:
        for item in cls.rungs[-1].hosts:
            if _takes_place(item):
                found[id(item.group)] = item.group
    return list(found.values())


def _takes_place(item: Consulted) -> bool:
    """Whether the rule lets only so many pods of a class share a machine."""
    return item.counts_itself and item.group.rule.kind in (GroupKind.SPREAD, GroupKind.ANTI_AFFINITY)


def _free(kernel: Kernel, problem: CoverProblem) -> Ints | None:
    """What machines that exist had free before this decision; rules over hostnames do not limit it."""
    nodes = kernel.nodes
    if not nodes.targets:
        return None
    width = kernel.columns.width
    free = np.full(problem.requests.shape[1], np.iinfo(np.int64).max // 4, np.int64)
    free[:width] = np.maximum(nodes.free[: nodes.targets], 0).sum(axis=0)
    for shares in kernel.node_shares.values():
        for share in shares:
            free[:width] += share.members.vector * share.count
    return free


def _one_resource_at_a_time(problem: CoverProblem, free: Ints | None) -> float:
    totals = (problem.requests * problem.demand[:, None]).sum(axis=0)
    if free is not None:
        totals = np.maximum(totals - free, 0)
    usable = problem.allowed.any(axis=0)
    best = 0.0
    for resource in np.flatnonzero(totals).tolist():
        amount = problem.capacity[usable, resource]
        if (amount > 0).any():
            best = max(best, float(totals[resource] * (problem.price[usable][amount > 0] / amount[amount > 0]).min()))
    return best
