"""Which planned machines can be smaller, or need not be bought, once their pods fill what is free on the others.

From bundles of pods on planned machines, one machine after the other is emptied into the room that the rest already
pays for. Never onto a machine whose kind does not welcome the pods, and never where the fleet gets dearer. Work is
counted in machines looked at.
"""

from __future__ import annotations

import numpy as np

from pykarpenter.core.cover.problem import Bundle
from pykarpenter.core.interning import Ints
from pykarpenter.core.packing.sizing import Sizing
from pykarpenter.core.packing.units import Workshop

_GAIN = 1e-9
# How often every machine is looked at again after some have changed.
_CYCLES = 4


class Emptying:
    """Bundles of one workshop, each machine on its own."""

    def __init__(self, shop: Workshop, sizing: Sizing, bundles: list[Bundle]) -> None:
        self._shop = shop
        self._sizing = sizing
        self._pods = [_content(bundle) for bundle in bundles for _ in range(bundle.times)]
        self._machine = np.array([b.machine for b in bundles for _ in range(b.times)], dtype=np.int64)
        self._free = shop.capacity[self._machine] - np.array([self._used(pods) for pods in self._pods])
        self._size = (shop.requests / np.maximum(shop.capacity.max(axis=0), 1)).max(axis=1)

    def run(self) -> list[Bundle]:
        """The machines that are left."""
        for _ in range(_CYCLES):
            # Those that waste most come first: what they hold has the best chance to fit elsewhere.
            share = (self._free / np.maximum(self._shop.capacity[self._machine], 1)).min(axis=1)
            order = np.argsort(-share * self._shop.price[self._machine], kind="stable")
            if not sum([self._emptied(at) for at in order.tolist() if self._pods[at]]):
                break
        return [
            Bundle(int(machine), np.array(list(pods)), np.array(list(pods.values())))
            for machine, pods in zip(self._machine, self._pods, strict=True)
            if pods
        ]

    def _emptied(self, at: int) -> bool:
        """Move what fits elsewhere; done only if the rest then needs a cheaper machine or none."""
        free = self._free.copy()
        rest: dict[int, int] = {}
        moved: list[tuple[int, int, int]] = []
        for unit in sorted(self._pods[at], key=lambda u: (-self._size[u], u)):
            left = self._pods[at][unit]
            for target, pods in self._places(free, unit, left, at):
                free[target] -= self._shop.requests[unit] * pods
                moved.append((unit, target, pods))
                left -= pods
            if left:
                rest[unit] = left
        if not moved:
            return False
        machine, price = self._sized(rest)
        if price > float(self._shop.price[self._machine[at]]) - _GAIN:
            return False
        for unit, target, pods in moved:
            self._pods[target][unit] = self._pods[target].get(unit, 0) + pods
        self._free = free
        self._pods[at] = rest
        if rest:
            self._machine[at] = machine
            self._free[at] = self._shop.capacity[machine] - self._used(rest)
        else:
            self._free[at] = 0
        return True

    def _places(self, free: Ints, unit: int, wanted: int, but: int) -> list[tuple[int, int]]:
        """Machines with room for pods of the unit and how many each takes: those with the least room first."""
        shop, need = self._shop, self._shop.requests[unit]
        columns = need.nonzero()[0]
        room = (free[:, columns] // need[columns]).min(axis=1)
        room[~shop.welcome[unit, shop.machine_kind[self._machine]]] = 0
        room[but] = 0
        found: list[tuple[int, int]] = []
        for target in np.argsort(room, kind="stable").tolist():
            if wanted and room[target] > 0:
                found.append((target, min(wanted, int(room[target]))))
                wanted -= found[-1][1]
        return found

    def _sized(self, pods: dict[int, int]) -> tuple[int, float]:
        if not pods:
            return -1, 0.0
        alone = Bundle(-1, np.array(list(pods)), np.array(list(pods.values())))
        sized, price = self._sizing.right_sized([alone])
        return sized[0].machine, price

    def _used(self, pods: dict[int, int]) -> Ints:
        used: Ints = np.array(list(pods.values())) @ self._shop.requests[list(pods)]
        return used


def _content(bundle: Bundle) -> dict[int, int]:
    """Pods by unit; a bundle may name a unit several times."""
    found: dict[int, int] = {}
    for unit, pods in zip(bundle.classes.tolist(), bundle.pods.tolist(), strict=True):
        found[unit] = found.get(unit, 0) + pods
    return found
