"""Memory of offerings that a cloud has just refused, so that plans look elsewhere for a while."""

from __future__ import annotations

from dataclasses import replace

from pykarpenter.core.instance_types import InstanceType

# (instance type, zone, capacity type)
OfferingKey = tuple[str, str, str]

# Long enough that a refused offering is not asked for in every pass, short enough to notice that it is back.
DEFAULT_TTL_S = 180.0


class UnavailableOfferings:
    """Keys with the time until which they are avoided; `now` is epoch seconds throughout."""

    def __init__(self, ttl_s: float = DEFAULT_TTL_S) -> None:
        self._ttl_s = ttl_s
        self._until: dict[OfferingKey, float] = {}

    def mark(self, key: OfferingKey, now: float) -> None:
        self._until[key] = now + self._ttl_s

    def current(self, now: float) -> frozenset[OfferingKey]:
        """What is to be avoided now; entries that are over are dropped."""
        over = [key for key, until in self._until.items() if until <= now]
        for key in over:
            del self._until[key]
        return frozenset(self._until)


def without_offerings(item: InstanceType, refused: frozenset[OfferingKey]) -> InstanceType:
    """The type with refused offerings marked unavailable; the same object when none of its own is among them."""
    if not any((item.name, o.zone, o.capacity_type) in refused for o in item.offerings):
        return item
    offerings = tuple(
        replace(o, available=False) if (item.name, o.zone, o.capacity_type) in refused else o for o in item.offerings
    )
    return replace(item, offerings=offerings)
