"""Cheaper plans for the same pods: several covers of what may be moved, the cheapest wins, never above the first plan.

The first plan is the compatible one. Covers come from `core.cover`; each is rebuilt as planned machines of the kinds
the pods were planned for, so every rule that held keeps holding. Work is counted, not timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pykarpenter.core.cover.problem import Bundle, CoverProblem
from pykarpenter.core.packing.claims import ClaimTable, Share
from pykarpenter.core.packing.kernel import Kernel
from pykarpenter.core.packing.kinds import Kind
from pykarpenter.core.packing.lower_bound import HAS_SOLVER
from pykarpenter.core.packing.units import Unit, Workshop, workshops

_GAIN = 1e-9
# Machines sized at a time: bounds the memory of the comparison.
_BLOCK = 128


def cheaper_claims(kernel: Kernel, effort: str, should_stop: Callable[[], bool]) -> ClaimTable | None:
    """Claims that hold the same pods for less; None when nothing cheaper was found."""
    if effort == "off" or not HAS_SOLVER:
        return None
    improved: dict[int, list[_Machine]] = {}
    shops = workshops(kernel)
    for number, shop in enumerate(shops):
        today = float(sum(_claim_price(kernel, position) for position in shop.positions))
        best = _best_cover(shop, effort, today, should_stop)
        planned = None if best is None else _within_limits(shop, kernel, best)
        if planned is not None:
            improved[number] = planned
    if not improved:
        return None
    return _rebuilt(kernel, shops, improved)


def _claim_price(kernel: Kernel, position: int) -> float:
    kind = kernel.kinds.kinds[int(kernel.claims.kinds[position])]
    rows = kind.surviving(kernel.claims.used[position])
    if not len(rows):
        return float("inf")
    return float(kind.selection.price[kind.template.table.row_type[rows]].min())


def _best_cover(shop: Workshop, effort: str, today: float, should_stop: Callable[[], bool]) -> list[Bundle] | None:
    from pykarpenter.core.cover.portfolio import portfolio

    problem = CoverProblem(
        shop.requests, shop.demand, shop.capacity, shop.price, shop.allowed, shape=len(shop.units[0].vector)
    )
    best: list[Bundle] | None = None
    cheapest = today
    for ceiling, covers in portfolio(problem, effort, should_stop):
        if cheapest <= ceiling:
            break
        for cover in covers:
            if should_stop():
                return best
            bundles, cost = _right_sized(shop, cover)
            if cost < cheapest - _GAIN:
                best, cheapest = bundles, cost
    return best


def _right_sized(shop: Workshop, bundles: list[Bundle]) -> tuple[list[Bundle], float]:
    """Each bundle on the cheapest machine of a kind that welcomes all its pods."""
    by_price = np.argsort(shop.price, kind="stable")
    capacity = shop.capacity[by_price]
    kind_of = shop.machine_kind[by_price]
    used = np.array([bundle.pods @ shop.requests[bundle.classes] for bundle in bundles])
    welcome = np.array([shop.welcome[bundle.classes].all(axis=0) for bundle in bundles])
    chosen = np.zeros(len(bundles), dtype=np.int64)
    for start in range(0, len(bundles), _BLOCK):
        block = slice(start, start + _BLOCK)
        fits = (capacity[None] >= used[block, None]).all(axis=2) & welcome[block][:, kind_of]
        chosen[block] = by_price[fits.argmax(axis=1)]
    sized = [Bundle(int(machine), b.classes, b.pods) for machine, b in zip(chosen.tolist(), bundles, strict=True)]
    return sized, float(shop.price[chosen].sum())


@dataclass(frozen=True, slots=True)
class _Machine:
    """A machine of the cover as it will be planned: the kind says which types may be bought for it."""

    bundle: Bundle
    kind: Kind


def _within_limits(shop: Workshop, kernel: Kernel, bundles: list[Bundle]) -> list[_Machine] | None:
    """The machines, each charged as the largest type that may be bought for it, within what the limits left.

    Where all types that fit would pass the limits, those much larger than the chosen one are given up; None when even
    that is too much.
    """
    for times_chosen in (None, 4, 1):
        machines = [_Machine(bundle, _planned_kind(shop, kernel, bundle, times_chosen)) for bundle in bundles]
        if shop.template.remaining is None or _fits_limits(shop, kernel, machines):
            return machines
    return None


def _planned_kind(shop: Workshop, kernel: Kernel, bundle: Bundle, times_chosen: int | None) -> Kind:
    kind = shop.kinds[int(shop.machine_kind[bundle.machine])]
    if times_chosen is None:
        return kind
    capacity = shop.template.table.capacity()
    chosen = capacity[int(shop.machine_row[bundle.machine])]
    return kernel.kinds.restrict(kind, (capacity <= chosen * times_chosen).all(axis=1))


def _fits_limits(shop: Workshop, kernel: Kernel, machines: list[_Machine]) -> bool:
    remaining = shop.template.remaining or {}
    left = dict(remaining)
    for position in shop.positions:
        for name, amount in _largest(kernel, position).items():
            left[name] = left.get(name, 0) + amount
    width = kernel.columns.width
    for machine in machines:
        used = (machine.bundle.pods @ shop.requests[machine.bundle.classes])[:width]
        for name, amount in shop.template.max_capacity(machine.kind.surviving(used)).items():
            left[name] = left.get(name, 0) - amount
    return all(left[name] >= 0 for name in remaining)


def _largest(kernel: Kernel, position: int) -> dict[str, int]:
    kind = kernel.kinds.kinds[int(kernel.claims.kinds[position])]
    return kind.template.max_capacity(kind.surviving(kernel.claims.used[position]))


def _rebuilt(kernel: Kernel, shops: list[Workshop], improved: dict[int, list[_Machine]]) -> ClaimTable:
    """A claim table with the untouched claims first, then the machines of the covers."""
    old, new = kernel.claims, ClaimTable(kernel.columns.width)
    moved = {position for number in improved for position in shops[number].positions}
    for position in range(old.count):
        if position not in moved:
            _copy_claim(old, new, position)
    for number, machines in improved.items():
        shop = shops[number]
        supply = [_Supply(unit) for unit in shop.units]
        for machine in machines:
            bundle = machine.bundle
            position = int(new.open(machine.kind.index, 1)[0])
            for unit, pods in zip(bundle.classes.tolist(), bundle.pods.tolist(), strict=True):
                new.shares[position].extend(supply[unit].take(pods))
                new.used[position] += shop.units[unit].vector * pods
                new.pods[position] += pods
    return new


def _copy_claim(old: ClaimTable, new: ClaimTable, position: int) -> None:
    copy = int(new.open(int(old.kinds[position]), 1)[0])
    new.used[copy] = old.used[position]
    new.pods[copy] = old.pods[position]
    new.shares[copy] = old.shares[position]
    if position in old.ports:
        new.ports[copy] = old.ports[position]
    if position in old.volumes:
        new.volumes[copy] = old.volumes[position]
    if position in old.devices:
        new.devices[copy] = old.devices[position]
    if position in old.holds:
        new.holds[copy] = old.holds[position]
    if position in old.min_values_relaxed:
        new.min_values_relaxed.add(copy)


class _Supply:
    """Hands out a unit's pods in runs."""

    def __init__(self, unit: Unit) -> None:
        self._runs = [(share.members, share.start, share.count) for share in unit.shares]
        self._next = 0
        self._used = 0

    def take(self, pods: int) -> list[Share]:
        result: list[Share] = []
        while pods:
            members, start, count = self._runs[self._next]
            part = min(pods, count - self._used)
            result.append(Share(members, start + self._used, part))
            self._used += part
            pods -= part
            if self._used == count:
                self._next += 1
                self._used = 0
        return result
