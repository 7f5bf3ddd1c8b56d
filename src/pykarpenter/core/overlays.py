"""NodeOverlays: a pool's instance types with other prices and extra capacity.

Overlays are taken by weight, then name, both descending; the first one wins for each offering's price and for each
resource. Equal weight on the same thing is a conflict: the later overlay is skipped as a whole, in every pool, and
what it would have altered is free for the ones after it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pykarpenter.api.extras import NodeOverlay
from pykarpenter.api.labels import NODEPOOL, WELL_KNOWN_RESOURCES, LabelRules
from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.quantity import InvalidQuantity, available
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.requirements import Requirements, from_expressions, from_labels

_NUMBER = re.compile(r"\d+(\.\d+)?")
_ADJUSTMENT = re.compile(r"([+-])(\d*\.?\d+)(%?)")


@dataclass(frozen=True, slots=True)
class OverlaidTypes:
    """The altered types of one pool, and overlays that take no part with the reason."""

    types: tuple[InstanceType, ...]
    rejected: dict[str, tuple[str, str]]


@dataclass(slots=True)
class _Reader:
    """One overlay made ready; raises ValueError for what cannot be read."""

    overlay: NodeOverlay
    requirements: Requirements
    capacity: dict[str, int]

    @property
    def name(self) -> str:
        return self.overlay.name

    @property
    def weight(self) -> int:
        return self.overlay.spec.weight or 0

    @property
    def prices(self) -> bool:
        return self.overlay.spec.price is not None or self.overlay.spec.price_adjustment is not None

    def price(self, before: float | None) -> float | None:
        spec = self.overlay.spec
        if spec.price is not None:
            return float(spec.price)
        match = _ADJUSTMENT.fullmatch(spec.price_adjustment or "")
        if match is None or before is None:
            return before
        amount = float(match.group(2)) * (1 if match.group(1) == "+" else -1)
        return max(0.0, before * (1 + amount / 100) if match.group(3) else before + amount)


@dataclass(slots=True)
class _Touched:
    """What one overlay alters in one pool: offerings by (type, index), resources by (type, name)."""

    prices: list[tuple[str, int]] = field(default_factory=list)
    resources: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class _Ledger:
    """Who altered what in one pool."""

    prices: dict[tuple[str, int], _Reader] = field(default_factory=dict)
    resources: dict[tuple[str, str], _Reader] = field(default_factory=dict)

    def rival(self, reader: _Reader, found: _Touched) -> str:
        """The name of an overlay of the same weight that has a part of this already; empty when there is none."""
        holders = [self.prices.get(key) for key in found.prices]
        holders += [self.resources.get(key) for key in found.resources]
        return next((h.name for h in holders if h is not None and h.weight == reader.weight), "")

    def enter(self, reader: _Reader, found: _Touched) -> None:
        """The first one keeps what it has."""
        for price_key in found.prices:
            self.prices.setdefault(price_key, reader)
        for resource_key in found.resources:
            self.resources.setdefault(resource_key, reader)


def apply_overlays(
    pool: NodePool, types: tuple[InstanceType, ...], overlays: Sequence[NodeOverlay], rules: LabelRules
) -> OverlaidTypes:
    """The pool's types as overlays make them; the very tuple when nothing changes."""
    (ledger,), rejected = _evaluate([(pool, types)], overlays, rules)
    if not ledger.prices and not ledger.resources:
        return OverlaidTypes(types, rejected)
    return OverlaidTypes(tuple(_altered(item, ledger) for item in types), rejected)


def rejected_overlays(
    pools: Sequence[tuple[NodePool, tuple[InstanceType, ...]]], overlays: Sequence[NodeOverlay], rules: LabelRules
) -> dict[str, tuple[str, str]]:
    """The overlays that take part nowhere, with reason and message, judged over all pools and their types at once."""
    return _evaluate(pools, overlays, rules)[1]


def _evaluate(
    pools: Sequence[tuple[NodePool, tuple[InstanceType, ...]]], overlays: Sequence[NodeOverlay], rules: LabelRules
) -> tuple[list[_Ledger], dict[str, tuple[str, str]]]:
    """A ledger for each pool in its order, and the overlays that were entered in none of them."""
    rejected: dict[str, tuple[str, str]] = {}
    ledgers = [_Ledger() for _ in pools]
    hosts = [from_labels({**p.spec.template.metadata.labels, NODEPOOL: p.name}, rules) for p, _ in pools]
    for overlay in sorted(overlays, key=lambda o: (o.spec.weight or 0, o.name), reverse=True):
        try:
            reader = _read(overlay, rules)
        except ValueError as error:
            rejected[overlay.name] = ("RuntimeValidation", str(error))
            continue
        touched = [_touched(reader, host, types) for host, (_, types) in zip(hosts, pools, strict=True)]
        pairs = list(zip(ledgers, touched, strict=True))
        rival = next((name for ledger, found in pairs if (name := ledger.rival(reader, found))), "")
        if rival:
            rejected[overlay.name] = ("Conflict", f"conflicts with overlay {rival!r} of the same weight")
            continue
        for ledger, found in pairs:
            ledger.enter(reader, found)
    return ledgers, rejected


def _read(overlay: NodeOverlay, rules: LabelRules) -> _Reader:
    spec = overlay.spec
    if spec.price is not None and _NUMBER.fullmatch(spec.price) is None:
        raise ValueError(f"spec.price {spec.price!r} is no price; write a number such as 0.25")
    if spec.price_adjustment is not None and _ADJUSTMENT.fullmatch(spec.price_adjustment) is None:
        raise ValueError(f"spec.priceAdjustment {spec.price_adjustment!r} is no adjustment; write +0.05 or -10%")
    try:
        capacity = available(spec.capacity)
    except InvalidQuantity as error:
        raise ValueError(f"spec.capacity: {error}") from error
    reserved = sorted(set(capacity) & set(WELL_KNOWN_RESOURCES))
    if reserved:
        raise ValueError(f"spec.capacity.{reserved[0]} comes from the provider and cannot be overlaid")
    return _Reader(overlay, from_expressions(spec.requirements, rules), capacity)


def _touched(reader: _Reader, host: Requirements, types: Sequence[InstanceType]) -> _Touched:
    """What the overlay would alter in one pool."""
    found = _Touched()
    for item in types:
        machine = host.merged(r for r in item.requirements.values() if r.key != NODEPOOL)
        if not machine.compatible(reader.requirements):
            continue
        matching = [i for i, o in enumerate(item.offerings) if _matches(machine, o, reader.requirements)]
        if not matching:
            continue
        if reader.prices:
            found.prices.extend((item.name, i) for i in matching)
        found.resources.extend((item.name, name) for name in reader.capacity)
    return found


def _matches(machine: Requirements, offering: Offering, wanted: Requirements) -> bool:
    narrowed = machine.merged(offering.requirements.values())
    return narrowed.compatible(wanted)


def _altered(item: InstanceType, ledger: _Ledger) -> InstanceType:
    offerings = tuple(
        offering
        if (reader := ledger.prices.get((item.name, index))) is None
        else replace(offering, price=reader.price(offering.price), price_overlaid=True)
        for index, offering in enumerate(item.offerings)
    )
    extra = {name: reader.capacity[name] for (owner, name), reader in ledger.resources.items() if owner == item.name}
    return replace(
        item,
        offerings=offerings,
        capacity={**item.capacity, **extra} if extra else item.capacity,
        capacity_overlaid=item.capacity_overlaid or bool(extra),
    )
