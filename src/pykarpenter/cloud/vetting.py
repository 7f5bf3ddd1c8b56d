"""What of a provider's instance types can be trusted: plug-ins are code by others, and a catalogue can break.

| Found | Done |
|---|---|
| an amount that is negative or beyond 64 bits | type quarantined: its last good description is used, else none (B28) |
| no cpu, a repeated name, no usable offering | type dropped and counted (B29) |
| a price that is missing, negative or no number | the offering can be launched, but has no price (B30) |
| an offering without a zone or capacity type, or in a zone its type is not in | offering dropped (B31) |
| nothing left where there was something | the last good catalogue stays (F45) |
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pykarpenter.api import labels
from pykarpenter.api.quantity import INT64_MAX
from pykarpenter.core.instance_types import InstanceType, Offering

# Memory of 8 EiB minus one is what 64 bits hold; anything near it is a broken unit, not a machine.
_MOST = INT64_MAX // 1024


@dataclass(frozen=True, slots=True)
class Vetted:
    """The types that decisions may use, and what was wrong with the others."""

    types: tuple[InstanceType, ...]
    # What was found -> how often, for the metric.
    dropped: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def vet(types: Iterable[InstanceType], last_good: Mapping[str, InstanceType] | None = None) -> Vetted:
    """Judge every type by itself; one bad type never costs another."""
    good: dict[str, InstanceType] = {}
    known = last_good or {}
    dropped: Counter[str] = Counter()
    problems: list[str] = []
    for item in types:
        if item.name in good:
            dropped["duplicate-name"] += 1
            problems.append(f"instance type {item.name!r} is listed twice; the first counts")
            continue
        amount = _absurd_amount(item)
        if amount:
            dropped["quarantined"] += 1
            problems.append(f"instance type {item.name!r}: {amount}; its last good description is used")
            if item.name in known:
                good[item.name] = known[item.name]
            continue
        kept = _with_usable_offerings(item, dropped, problems)
        if kept is not None:
            good[item.name] = kept
    if not good and known:
        problems.append("the catalogue is empty; the last good one stays in use")
        return Vetted(tuple(known.values()), dropped, tuple(problems))
    return Vetted(tuple(good.values()), dropped, tuple(problems))


def _absurd_amount(item: InstanceType) -> str:
    for what, amounts in (("capacity", item.capacity), ("overhead", item.overhead)):
        for name, amount in amounts.items():
            if not isinstance(amount, int) or not 0 <= amount <= _MOST:
                return f"{what} of {name} is {amount!r}"
    return ""


def _with_usable_offerings(item: InstanceType, dropped: Counter[str], problems: list[str]) -> InstanceType | None:
    if item.capacity.get("cpu", 0) <= 0:
        dropped["no-cpu"] += 1
        problems.append(f"instance type {item.name!r} has no cpu")
        return None
    offerings: list[Offering] = []
    for offering in item.offerings:
        place = _unusable_place(item, offering)
        if place:
            dropped["offering-place"] += 1
            problems.append(f"instance type {item.name!r}: {place}")
        elif offering.price is not None and (not math.isfinite(offering.price) or offering.price < 0):
            dropped["price"] += 1
            problems.append(f"instance type {item.name!r}: price {offering.price!r} in {offering.zone} is not used")
            offerings.append(replace(offering, price=None))
        else:
            offerings.append(offering)
    if not offerings:
        dropped["no-offerings"] += 1
        problems.append(f"instance type {item.name!r} has no usable offering")
        return None
    if len(offerings) == len(item.offerings) and all(a is b for a, b in zip(offerings, item.offerings, strict=True)):
        return item
    return replace(item, offerings=tuple(offerings))


def _unusable_place(item: InstanceType, offering: Offering) -> str:
    if not offering.zone:
        return "an offering without a zone is dropped"
    if offering.capacity_type not in labels.CAPACITY_TYPES:
        return f"an offering of capacity type {offering.capacity_type!r} is dropped"
    zones = item.requirements.get(labels.ZONE)
    if zones is not None and not zones.allows(offering.zone):
        return f"an offering in the unknown zone {offering.zone!r} is dropped"
    return ""
