"""What the cloud sells now: prices that move, offerings that run short, reservations that fill up.

Everything follows from the catalogue, a seed and the time, so a price needs no history to be known.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pykarpenter.api import labels
from pykarpenter.cloud.catalog import RESERVATION_ID, Catalog
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.requirements import Requirement, Requirements

# (instance type, zone, capacity type)
OfferingKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Machines paid for in advance."""

    id: str
    instance_type: str
    zone: str
    count: int
    price: float = 0.0


@dataclass(slots=True)
class Market:
    """The catalogue as it stands; change shortages and reservations through the methods."""

    catalog: Catalog
    seed: int = 0
    # Spot prices change this often; None leaves them as the catalogue has them.
    price_period_s: float | None = None
    price_swing: float = 0.3
    shortages: dict[OfferingKey, None] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    # Replaces the catalogue's types while set: prices gone, lists empty, and other bad data.
    bad_data: tuple[InstanceType, ...] | None = None
    bad_answers: int = 0
    _changes: int = 0
    _cached: tuple[tuple[int, int, tuple[tuple[str, int], ...]], tuple[InstanceType, ...]] | None = None

    def run_short(self, keys: Iterable[OfferingKey]) -> None:
        """From now on launches of these offerings are refused; the catalogue still shows them."""
        self.shortages.update(dict.fromkeys(keys))

    def restock(self, keys: Iterable[OfferingKey] | None = None) -> None:
        for key in list(self.shortages) if keys is None else keys:
            self.shortages.pop(key, None)

    def reserve(self, reservation: Reservation) -> None:
        self.reservations[reservation.id] = reservation
        self._changes += 1

    def keys(self, *, zone: str = "", capacity_type: str = "", family: str = "") -> list[OfferingKey]:
        """Offerings of the catalogue that match what is given; `family` is the beginning of a type's name."""
        return [
            (item.name, o.zone, o.capacity_type)
            for item in self.catalog.types
            if item.name.startswith(family)
            for o in item.offerings
            if (not zone or o.zone == zone) and (not capacity_type or o.capacity_type == capacity_type)
        ]

    def types(self, now: float, reserved_used: dict[str, int]) -> tuple[InstanceType, ...]:
        """Types with the prices and free reservations of this moment; the same objects while nothing changed."""
        if self.bad_data is not None:
            self.bad_answers += 1
            return self.bad_data
        period = int(now // self.price_period_s) if self.price_period_s else 0
        key = (period, self._changes, tuple(sorted(reserved_used.items())))
        if self._cached is not None and self._cached[0] == key:
            return self._cached[1]
        if period == 0 and not self.reservations:
            types = self.catalog.types
        else:
            types = tuple(self._priced(item, period, reserved_used) for item in self.catalog.types)
        self._cached = (key, types)
        return types

    def _priced(self, item: InstanceType, period: int, used: dict[str, int]) -> InstanceType:
        offerings = [self._moved(item.name, offering, period) for offering in item.offerings]
        reserved = [r for r in self.reservations.values() if r.instance_type == item.name]
        if not reserved:
            return replace(item, offerings=tuple(offerings))
        offerings = [_without_reservation(offering) for offering in offerings]
        offerings.extend(_reserved_offering(r, r.count - used.get(r.id, 0)) for r in reserved)
        types = item.requirements.without(labels.CAPACITY_TYPE)
        kinds = frozenset(o.capacity_type for o in offerings)
        requirements = types.merged([Requirement(labels.CAPACITY_TYPE, kinds)])
        return replace(item, offerings=tuple(offerings), requirements=requirements)

    def _moved(self, name: str, offering: Offering, period: int) -> Offering:
        if not period or offering.price is None or offering.capacity_type != labels.SPOT:
            return offering
        draw = random.Random(f"{self.seed}/{name}/{offering.zone}/{period}").uniform(
            -self.price_swing, self.price_swing
        )
        return replace(offering, price=round(offering.price * (1.0 + draw), 6))


def _without_reservation(offering: Offering) -> Offering:
    return replace(offering, requirements=offering.requirements.merged([Requirement(RESERVATION_ID)]))


def _reserved_offering(reservation: Reservation, free: int) -> Offering:
    requirements = Requirements(
        [
            Requirement(labels.CAPACITY_TYPE, frozenset({labels.RESERVED})),
            Requirement(labels.ZONE, frozenset({reservation.zone})),
            Requirement(RESERVATION_ID, frozenset({reservation.id})),
        ]
    )
    return Offering(requirements, reservation.price, reservation_capacity=max(0, free), reservation_id=reservation.id)
