"""What allocations use up: devices, capacity of devices that several claims share, and counters of pools.

All of it is one flat table of amounts, so that holders can be added up and the most of several alternatives taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil

from pykarpenter.core.devices.pools import PUBLISHED, Amount, Capacity, CounterId, DeviceId, PoolDevice

# ("device", id), ("capacity", id, dimension) or ("counter", id).
UsageKey = tuple[str, DeviceId | CounterId] | tuple[str, DeviceId | CounterId, str]
Usage = dict[UsageKey, Amount]

_ONE = Fraction(1)
_NONE = Fraction(0)


def device_key(device: DeviceId) -> UsageKey:
    return ("device", device)


def is_published(key: UsageKey) -> bool:
    """Whether the amount is of something in the cluster, which other machines see too."""
    owner = key[1]
    return (owner.origin if isinstance(owner, DeviceId) else owner.pool.origin) == PUBLISHED


def consumed_capacity(device: PoolDevice, wanted: Mapping[str, Amount]) -> dict[str, Amount] | None:
    """What a request takes of each dimension of the device; None when the device cannot serve it."""
    if any(name not in device.capacity for name in wanted):
        return None
    found: dict[str, Amount] = {}
    for name, item in device.capacity.items():
        amount = _rounded(wanted.get(name), item)
        if amount is None or amount > item.value:
            return None
        found[name] = amount
    return found


def _rounded(wanted: Amount | None, item: Capacity) -> Amount | None:
    policy = item.policy
    if wanted is None:
        return item.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return wanted
    if policy.values:
        return next((value for value in policy.values if value >= wanted), None)
    amount = max(wanted, policy.low)
    if policy.step > 0:
        amount = policy.low + ceil((amount - policy.low) / policy.step) * policy.step
    return None if policy.high is not None and amount > policy.high else amount


class InUse:
    """Amounts in use as one machine sees them: a sum of tables, and what a search adds while it runs."""

    def __init__(self, *tables: Mapping[UsageKey, Amount], less: Mapping[UsageKey, Amount] | None = None) -> None:
        self._tables = [table for table in tables if table]
        self._less = less or {}
        self._added: Usage = {}

    def amount(self, key: UsageKey) -> Amount:
        found = self._added.get(key, _NONE)
        for table in self._tables:
            if key in table:
                found = found + table[key] if found else table[key]
        return found - self._less[key] if key in self._less else found

    def take(self, usage: Mapping[UsageKey, Amount]) -> None:
        add(self._added, usage)

    def give_back(self, usage: Mapping[UsageKey, Amount]) -> None:
        take_back(self._added, usage)


def charge(
    device: PoolDevice, wanted: Mapping[str, Amount], used: InUse, counters: Mapping[CounterId, Amount]
) -> Usage | str:
    """What taking the device for a request adds to what is used; a text says why it cannot be taken."""
    key = device_key(device.id)
    taken = used.amount(key)
    if taken and not device.multiple:
        return "in use"
    consumed = consumed_capacity(device, wanted)
    if consumed is None:
        return "without the requested capacity"
    added: Usage = {key: _ONE}
    if device.multiple:
        for name, amount in consumed.items():
            place: UsageKey = ("capacity", device.id, name)
            if used.amount(place) + amount > device.capacity[name].value:
                return "without enough capacity left"
            added[place] = amount
    if not taken:
        for counter, amount in device.counters:
            share: UsageKey = ("counter", counter)
            added[share] = added.get(share, Fraction(0)) + amount
            if used.amount(share) + added[share] > counters[counter]:
                return "blocked by shared counters that are used up"
    return added


def add(total: Usage, more: Mapping[UsageKey, Amount]) -> None:
    for key, amount in more.items():
        total[key] = total.get(key, Fraction(0)) + amount


def take_back(total: Usage, less: Mapping[UsageKey, Amount]) -> None:
    for key, amount in less.items():
        left = total[key] - amount
        if left:
            total[key] = left
        else:
            del total[key]


def most(alternatives: Iterable[Mapping[UsageKey, Amount]]) -> Usage:
    """The most that any of the alternatives uses of each thing in the cluster."""
    found: Usage = {}
    for usage in alternatives:
        for key, amount in usage.items():
            if is_published(key) and amount > found.get(key, 0):
                found[key] = amount
    return found
