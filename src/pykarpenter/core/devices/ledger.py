"""Who holds which devices in one decision: claims that stay allocated, machines that exist, and machines being planned.

A planned machine may still become one of several types, each with its own choice of devices; to all others it holds
the most that any of them uses. What belongs to claims of leaving pods only is free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from pykarpenter.api.devices import AllocationResult, ResourceClaim, ResourceClaimConsumer
from pykarpenter.api.quantity import InvalidQuantity, parse_quantity
from pykarpenter.core.devices.consumption import InUse, Usage, UsageKey, add, most, take_back
from pykarpenter.core.devices.pools import PUBLISHED, DeviceId, PoolDevice, qualified
from pykarpenter.core.requirements import Requirements

# ("node", index) or ("claim", position).
Holder = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Granted:
    """A claim that got its devices earlier in this decision."""

    holder: Holder
    # Its devices are the machine's own: whoever uses the claim must go there.
    tied: bool
    # Otherwise where its devices can be reached from.
    requirements: Requirements


@dataclass(slots=True)
class Ledger:
    """Amounts in use; the tables of the holders are only changed through `commit` and `keep`."""

    fixed: Usage = field(default_factory=dict)
    granted: dict[str, Granted] = field(default_factory=dict)
    # Grows with every change.
    version: int = 0
    _own: dict[Holder, dict[int, Usage]] = field(default_factory=dict)
    # The most of each holder in things of the cluster, and all of them together.
    _most: dict[Holder, Usage] = field(default_factory=dict)
    _total: Usage = field(default_factory=dict)
    # Holders of things of the cluster for more than one type, in the order they came to hold them.
    _undecided: dict[Holder, None] = field(default_factory=dict)

    def used(self, holder: Holder | None, group: int, *more: Usage) -> InUse:
        """All that is in use as one type of the holder sees it."""
        if holder is None or holder not in self._own:
            return InUse(self.fixed, self._total, *more)
        own = self._own[holder].get(group, {})
        return InUse(self.fixed, self._total, own, *more, less=self._most[holder])

    def groups(self, holder: Holder | None) -> Collection[int] | None:
        """The types that the holder has devices for; None when it has no devices yet."""
        found = self._own.get(holder) if holder is not None else None
        return None if found is None else list(found)

    def commit(self, holder: Holder, usages: Mapping[int, Usage]) -> None:
        """Add what each remaining type uses; types that are not named are given up."""
        before = self._own.get(holder, {})
        after: dict[int, Usage] = {}
        for group, usage in usages.items():
            after[group] = dict(before.get(group, {}))
            add(after[group], usage)
        self._own[holder] = after
        self._reckon(holder)

    def keep(self, holder: Holder, groups: Collection[int]) -> None:
        """Release what types held that the machine can no longer be."""
        own = self._own[holder]
        given_up = [group for group in own if group not in groups]
        for group in given_up:
            del own[group]
        if given_up:
            self._reckon(holder)

    def _reckon(self, holder: Holder) -> None:
        take_back(self._total, self._most.get(holder, {}))
        self._most[holder] = most(self._own[holder].values())
        add(self._total, self._most[holder])
        self.version += 1
        if self._most[holder] and len(self._own[holder]) > 1:
            self._undecided[holder] = None
        else:
            self._undecided.pop(holder, None)

    def undecided(self) -> list[Holder]:
        """Planned machines that hold things of the cluster for more than one type."""
        return list(self._undecided)


def is_leaving(namespace: str, reserved_for: Iterable[ResourceClaimConsumer], leaving: Collection[str]) -> bool:
    """Whether only pods that leave their nodes use the claim: then it is allocated anew."""
    users = list(reserved_for)
    return bool(users) and all(u.resource == "pods" and f"{namespace}/{u.name}" in leaving for u in users)


def in_use(claims: Iterable[ResourceClaim], leaving: Collection[str], devices: Mapping[DeviceId, PoolDevice]) -> Usage:
    """What the claims hold that stay allocated."""
    total: Usage = {}
    for claim in claims:
        allocation = claim.status.allocation
        if allocation is None or is_leaving(claim.namespace, claim.status.reserved_for, leaving):
            continue
        _hold(total, allocation, devices)
    return total


def _hold(total: Usage, allocation: AllocationResult, devices: Mapping[DeviceId, PoolDevice]) -> None:
    for result in allocation.devices.results:
        if result.admin_access:
            continue
        device = DeviceId(PUBLISHED, result.driver, result.pool, result.device)
        known = devices.get(device)
        key: UsageKey = ("device", device)
        if key not in total and known is not None:
            add(total, {("counter", counter): amount for counter, amount in known.counters})
        add(total, {key: Fraction(1)})
        consumed = {qualified(name, result.driver): value for name, value in result.consumed_capacity.items()}
        dimensions = known.capacity if known is not None and known.multiple else {}
        for name in {**dimensions, **consumed}:
            whole = dimensions[name].value if name in dimensions else Fraction(0)
            add(total, {("capacity", device, name): _amount(consumed.get(name), whole)})


def _amount(consumed: str | int | float | None, whole: Fraction) -> Fraction:
    """What a share takes; a share that does not say so, or says nonsense, takes the whole device."""
    try:
        return whole if consumed is None else parse_quantity(consumed)
    except InvalidQuantity:
        return whole
