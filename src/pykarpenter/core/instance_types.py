"""Instance types, their offerings and prices as plain data, and what of a machine pods can use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pykarpenter.api import labels
from pykarpenter.api.devices import ResourceSliceSpec
from pykarpenter.core.requirements import Requirements
from pykarpenter.core.resources import Resources


@dataclass(frozen=True, slots=True)
class Offering:
    """One way to buy a type: a zone, a capacity type and a price.

    `price` is None when the provider gave none that can be used (missing, negative, not a number): such an offering
    can be launched but takes no part in cost decisions. `available` means healthy; a full reservation is available
    with capacity 0 and not launchable.
    """

    requirements: Requirements
    price: float | None
    available: bool = True
    reservation_capacity: int = 0
    reservation_id: str = ""
    capacity_override: Mapping[str, int] = field(default_factory=dict)
    overhead_override: Mapping[str, int] = field(default_factory=dict)
    price_overlaid: bool = False

    @property
    def zone(self) -> str:
        return _single(self.requirements, labels.ZONE)

    @property
    def capacity_type(self) -> str:
        return _single(self.requirements, labels.CAPACITY_TYPE)

    @property
    def launchable(self) -> bool:
        if not self.available:
            return False
        return self.capacity_type != labels.RESERVED or self.reservation_capacity > 0


@dataclass(frozen=True, slots=True)
class AttributeBinding:
    """Devices, by driver and name, that will agree in an attribute which is known only once the machine runs."""

    attribute: str
    devices: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A machine type: every well-known label is defined in `requirements`."""

    name: str
    requirements: Requirements
    offerings: tuple[Offering, ...]
    capacity: Mapping[str, int]
    overhead: Mapping[str, int] = field(default_factory=dict)
    volume_attachment_limits: Mapping[str, int] = field(default_factory=dict)
    # What the drivers on such a machine will publish.
    dynamic_resources: tuple[ResourceSliceSpec, ...] = ()
    attribute_bindings: tuple[AttributeBinding, ...] = ()
    capacity_overlaid: bool = False

    def allocatable(self, offering: Offering | None = None) -> Resources:
        """What pods can use: capacity less overhead, memory further less huge pages; overrides replace by key."""
        capacity = dict(self.capacity)
        overhead = dict(self.overhead)
        if offering is not None:
            capacity.update(offering.capacity_override)
            overhead.update(offering.overhead_override)
        result = {name: max(0, amount - overhead.get(name, 0)) for name, amount in capacity.items()}
        pages = sum(amount for name, amount in capacity.items() if name.startswith("hugepages-"))
        if pages and "memory" in result:
            result["memory"] = max(0, result["memory"] - pages)
        return result

    def cheapest(self, requirements: Requirements, undefined: frozenset[str]) -> Offering | None:
        """The cheapest launchable compatible offering with a known price; None when there is none."""
        fitting = [
            o
            for o in self.offerings
            if o.launchable and o.price is not None and requirements.compatible(o.requirements, undefined)
        ]
        return min(fitting, key=lambda o: (o.price or 0.0, o.zone, o.capacity_type), default=None)


def _single(requirements: Requirements, key: str) -> str:
    values = requirements.get_or_exists(key).values
    return next(iter(values)) if len(values) == 1 else ""


def by_name(types: Iterable[InstanceType]) -> dict[str, InstanceType]:
    return {item.name: item for item in types}
