"""Which machine to buy for the pods that go together, and which pods to put together on one machine instead of two.

Every bundle gets the cheapest machine of a kind that welcomes all its pods. Then pairs are tried on one machine: where
that costs no more, or next to nothing more, one machine is better than two. Work is counted in rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pykarpenter.core.cover.problem import Bundle
from pykarpenter.core.interning import Bools, Floats, Ints
from pykarpenter.core.packing.units import Workshop

# Machines sized at a time: bounds the memory of the comparison.
_BLOCK = 128
# What one machine may cost beside the two that it replaces.
_FEWER = 1.001
# How often pairs are looked for in each way.
_CYCLES = 6


def first_holding(capacity: Ints, used: Ints, welcome: Bools, kind_of: Ints) -> Ints:
    """For each row of `used` the first row of `capacity` that holds it and is of a kind that welcomes it, or -1."""
    first = np.full(len(used), -1, dtype=np.int64)
    if not len(capacity) or not len(used):
        return first
    # Resources of which every machine has enough for all decide nothing.
    decisive = [(have, needed) for have, needed in zip(capacity.T, used.T, strict=True) if needed.max() > have.min()]
    for start in range(0, len(used), _BLOCK):
        block = slice(start, start + _BLOCK)
        fits = welcome[block][:, kind_of]
        for have, needed in decisive:
            fits &= have[None] >= needed[block, None]
        first[block] = np.where(fits.any(axis=1), fits.argmax(axis=1), -1)
    return first


@dataclass(slots=True)
class _Lots:
    """Bundles as arrays: what each uses, which kinds welcome it, its machine, how many such machines there are."""

    used: Ints
    welcome: Bools
    machine: Ints
    times: Ints
    # Classes and pods of each.
    content: list[tuple[Ints, Ints]]


class Sizing:
    """Sizes the bundles of one workshop."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._by_price = np.argsort(shop.price, kind="stable")
        self._capacity = shop.capacity[self._by_price]
        self._most = shop.capacity.max(axis=0)
        self._kind_of = shop.machine_kind[self._by_price]

    def right_sized(self, bundles: list[Bundle]) -> tuple[list[Bundle], float]:
        """Each bundle on the cheapest machine of a kind that welcomes all its pods, and what that costs."""
        shop = self._shop
        used, welcome = self._sums(bundles)
        chosen = self._cheapest(used, welcome)
        sized = [replace(bundle, machine=machine) for machine, bundle in zip(chosen.tolist(), bundles, strict=True)]
        times = np.array([bundle.times for bundle in bundles], dtype=np.int64)
        return sized, float((shop.price[chosen] * times).sum())

    def fewer(self, bundles: list[Bundle], more: float = 0.0) -> list[Bundle]:
        """The bundles with pairs put on one machine where that costs next to nothing more, or at most so many $/h."""
        used, welcome = self._sums(bundles)
        lots = _Lots(
            used,
            welcome,
            np.array([bundle.machine for bundle in bundles], dtype=np.int64),
            np.array([bundle.times for bundle in bundles], dtype=np.int64),
            [(bundle.classes, bundle.pods) for bundle in bundles],
        )
        while self._doubled(lots, more):
            pass
        for _ in range(_CYCLES):
            if not sum([self._paired(lots, way, more) for way in ("shape", "size", "across")]):
                break
        return [
            Bundle(machine, *content, times)
            for machine, content, times in zip(lots.machine.tolist(), lots.content, lots.times.tolist(), strict=True)
        ]

    def _sums(self, bundles: list[Bundle]) -> tuple[Ints, Bools]:
        starts = np.cumsum([0, *(len(bundle.classes) for bundle in bundles[:-1])])
        classes = np.concatenate([bundle.classes for bundle in bundles])
        pods = np.concatenate([bundle.pods for bundle in bundles])
        used = np.add.reduceat(self._shop.requests[classes] * pods[:, None], starts, axis=0)
        welcome = np.logical_and.reduceat(self._shop.welcome[classes], starts, axis=0)
        return used, welcome

    def _cheapest(self, used: Ints, welcome: Bools) -> Ints:
        """The machine for each; -1 where none holds it."""
        first = first_holding(self._capacity, used, welcome, self._kind_of)
        chosen: Ints = np.where(first >= 0, self._by_price[first], -1)
        return chosen

    # Fewer machines.

    def _doubled(self, lots: _Lots, more: float) -> int:
        """Machines that there are several of, filled twice over; answers how many were."""
        several = np.flatnonzero(lots.times > 1)
        return self._join(lots, several, several, more)

    def _paired(self, lots: _Lots, way: str, more: float) -> int:
        first, second = self._pairs(lots, way)
        return self._join(lots, first, second, more)

    def _pairs(self, lots: _Lots, way: str) -> tuple[Ints, Ints]:
        """Who is tried with whom: what one has too little of the other may have too much of; or large with small."""
        free = self._shop.capacity[lots.machine] - lots.used
        share = free / np.maximum(self._shop.capacity[lots.machine], 1)
        price = self._shop.price[lots.machine]
        kind = self._shop.machine_kind[lots.machine] if way != "across" else np.zeros(len(price), np.int64)
        order = np.lexsort((share[:, 0] - share[:, 1] if way == "shape" else price, kind))
        first: list[Ints] = []
        second: list[Ints] = []
        for number in np.unique(kind).tolist():
            mine = order[kind[order] == number]
            half = len(mine) // 2
            first.append(mine[:half])
            second.append(mine[::-1][:half])
        return np.concatenate(first), np.concatenate(second)

    def _join(self, lots: _Lots, first: Ints, second: Ints, more: float) -> int:
        """Put each pair on one machine where that is no dearer; answers how many pairs were."""
        alone = first is second
        used = lots.used[first] + lots.used[second]
        welcome = lots.welcome[first] & lots.welcome[second]
        # Most pairs break a rule over hostnames or lie in different zones: seen without looking at machines.
        possible = np.flatnonzero((used <= self._most).all(axis=1) & welcome.any(axis=1))
        if not len(possible):
            return 0
        price: Floats = self._shop.price
        first, second, used, welcome = first[possible], second[possible], used[possible], welcome[possible]
        machine = self._cheapest(used, welcome)
        both = price[lots.machine[first]] + price[lots.machine[second]]
        good = np.flatnonzero((machine >= 0) & (price[machine] <= both * _FEWER + more))
        pairs = lots.times[first] // 2 if alone else np.minimum(lots.times[first], lots.times[second])
        for index in good.tolist():
            one, other = int(first[index]), int(second[index])
            lots.content.append(_together(lots.content[one], lots.content[other]))
            lots.times[one] -= pairs[index]
            lots.times[other] -= pairs[index]
        lots.used = np.concatenate([lots.used, used[good]])
        lots.welcome = np.concatenate([lots.welcome, welcome[good]])
        lots.machine = np.concatenate([lots.machine, machine[good]])
        lots.times = np.concatenate([lots.times, pairs[good]])
        left = np.flatnonzero(lots.times > 0)
        lots.used, lots.welcome, lots.machine = lots.used[left], lots.welcome[left], lots.machine[left]
        lots.times, lots.content = lots.times[left], [lots.content[index] for index in left.tolist()]
        return len(good)


def _together(one: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    classes, where = np.unique(np.concatenate([one[0], other[0]]), return_inverse=True)
    pods = np.zeros(len(classes), dtype=np.int64)
    np.add.at(pods, where, np.concatenate([one[1], other[1]]))
    return classes, pods
