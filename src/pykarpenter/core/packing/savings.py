"""Cheaper plans for the same pods: several covers of what may be moved, the cheapest wins, never above the first plan.

The first plan is the compatible one. Covers come from `core.cover`; each is rebuilt as planned machines of the kinds
the pods were planned for, so every rule that held keeps holding. Work is counted, not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pykarpenter.core.cover.exact import exact_cover, is_small
from pykarpenter.core.cover.problem import Bundle, CoverProblem
from pykarpenter.core.packing.claims import ClaimTable, Share
from pykarpenter.core.packing.emptying import Emptying
from pykarpenter.core.packing.kernel import Kernel
from pykarpenter.core.packing.kinds import Kind
from pykarpenter.core.packing.lower_bound import HAS_SOLVER
from pykarpenter.core.packing.sizing import Sizing, first_holding
from pykarpenter.core.packing.units import Unit, Workshop, workshops

_GAIN = 1e-9
# What later pods leave unused of a machine, in pods as they are in the batch: on average half of one does not fit. So
# two plans of nearly the same price are not equally good, and the one with fewer machines is cheaper in the end.
_LOST_PODS = 0.5
# Machines are emptied one by one only where there are so few lots of equal pods on them.
_FEW_LOTS = {"normal": 200, "thorough": 4000}


def cheaper_claims(kernel: Kernel, effort: str, should_stop: Callable[[], bool]) -> ClaimTable | None:
    """Claims that hold the same pods for less; None when nothing cheaper was found."""
    if effort == "off" or not HAS_SOLVER:
        return None
    improved: dict[int, list[_Machine]] = {}
    shops = workshops(kernel)
    for number, shop in enumerate(shops):
        today = _price_today(kernel, shop)
        best = _best_cover(shop, effort, today, should_stop)
        planned = None if best is None else _within_limits(shop, kernel, best)
        if planned is not None:
            improved[number] = planned
    if not improved:
        return None
    return _rebuilt(kernel, shops, improved)


def _price_today(kernel: Kernel, shop: Workshop) -> float:
    """What the machines to be replaced cost as they are planned."""
    claims, total = kernel.claims, 0.0
    positions = np.array(shop.positions, dtype=np.int64)
    of_kind = claims.kinds[positions]
    for index in np.unique(of_kind).tolist():
        kind = kernel.kinds.kinds[index]
        price = kind.selection.price[kind.template.table.row_type[kind.rows]]
        order = np.argsort(price, kind="stable")
        used = claims.used[positions[of_kind == index]]
        one = np.ones((len(used), 1), dtype=bool)
        cheapest = first_holding(kind.usable[order], used, one, np.zeros(len(order), dtype=np.int64))
        total += float(price[order[cheapest]].sum()) if (cheapest >= 0).all() else float("inf")
    return total


def _best_cover(shop: Workshop, effort: str, today: float, should_stop: Callable[[], bool]) -> list[Bundle] | None:
    """The cover that is cheapest once each machine weighs what is lost on it; None when today's plan is as good."""
    problem = CoverProblem(
        shop.requests, shop.demand, shop.capacity, shop.price, shop.allowed, shape=len(shop.units[0].vector)
    )
    lost = _LOST_PODS * today / int(shop.demand.sum())
    least = today + lost * len(shop.positions)
    chosen: list[Bundle] | None = None
    for bundles in _covers(shop, problem, effort, today, lost, should_stop):
        price = float(sum(shop.price[bundle.machine] * bundle.times for bundle in bundles))
        weighed = price + lost * sum(bundle.times for bundle in bundles)
        if price < today - _GAIN and weighed < least - _GAIN:
            chosen, least = bundles, weighed
            if is_small(problem):
                break
    return chosen


def _covers(
    shop: Workshop, problem: CoverProblem, effort: str, today: float, lost: float, should_stop: Callable[[], bool]
) -> Iterator[list[Bundle]]:
    """What may be better than today's plan: of a small demand the best there is, else the cheapest found."""
    if is_small(problem):
        yield from (found for weight in (lost, 0.0) if (found := exact_cover(problem, weight)) is not None)
        return
    sizing = Sizing(shop)
    best = _cheapest_cover(problem, sizing, effort, today, should_stop)
    starts = [[Bundle(-1, np.array(list(pods)), np.array(list(pods.values()))) for pods in shop.holdings]]
    if best is not None:
        starts += [sizing.fewer(best, lost), sizing.fewer(best), best]
        yield from starts[1:]
    yield from _emptied(shop, sizing, effort, starts)


def _emptied(shop: Workshop, sizing: Sizing, effort: str, starts: list[list[Bundle]]) -> Iterator[list[Bundle]]:
    """Covers, and the plan as it is, with machines emptied into the others, where they are few."""
    for start in starts:
        if sum(len(bundle.classes) * bundle.times for bundle in start) > _FEW_LOTS[effort]:
            continue
        sized, _ = sizing.right_sized(start)
        if all(bundle.machine >= 0 for bundle in sized):
            yield Emptying(shop, sizing, sized).run()


def _cheapest_cover(
    problem: CoverProblem, sizing: Sizing, effort: str, today: float, should_stop: Callable[[], bool]
) -> list[Bundle] | None:
    from pykarpenter.core.cover.portfolio import portfolio

    best: list[Bundle] | None = None
    cheapest = today
    for ceiling, covers in portfolio(problem, effort, should_stop):
        if cheapest <= ceiling:
            break
        for cover in covers:
            if should_stop():
                return best
            bundles, cost = sizing.right_sized(cover)
            if cost < cheapest - _GAIN:
                best, cheapest = bundles, cost
    return best


@dataclass(frozen=True, slots=True)
class _Machine:
    """A machine as it will be planned, as often as the bundle says; the kind says which types may be bought for it."""

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
    table = shop.template.table
    capacity, row = table.capacity(), int(shop.machine_row[bundle.machine])
    small = table.whole_types((capacity <= capacity[row] * times_chosen).all(axis=1), kind.selection.rows)
    return kernel.kinds.restrict(kind, small | (table.row_type == table.row_type[row]))


def _fits_limits(shop: Workshop, kernel: Kernel, machines: list[_Machine]) -> bool:
    remaining = shop.template.remaining or {}
    left = dict(remaining)
    largest = shop.template.largest()
    number = sum(machine.bundle.times for machine in machines)
    if all(amount >= number * largest.get(name, 0) for name, amount in remaining.items()):
        return True
    for position in shop.positions:
        for name, amount in _largest(kernel, position).items():
            left[name] = left.get(name, 0) + amount
    width = kernel.columns.width
    for machine in machines:
        used = (machine.bundle.pods @ shop.requests[machine.bundle.classes])[:width]
        for name, amount in shop.template.max_capacity(machine.kind.surviving(used)).items():
            left[name] = left.get(name, 0) - amount * machine.bundle.times
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
            positions = new.open(machine.kind.index, bundle.times)
            new.used[positions] = (bundle.pods @ shop.requests[bundle.classes])[: new.width]
            new.pods[positions] = bundle.pods.sum()
            for position in positions.tolist():
                for unit, pods in zip(bundle.classes.tolist(), bundle.pods.tolist(), strict=True):
                    new.shares[position].extend(supply[unit].take(pods))
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
