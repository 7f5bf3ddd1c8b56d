"""What a replacement would cost at best and at worst, and which of its options are really cheaper.

Only offerings that can be launched and have a known price take part; an option whose worst launch has no known price
is never called cheaper.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from pykarpenter.api import labels
from pykarpenter.api.labels import LabelRules
from pykarpenter.api.pods import NodeSelectorRequirement
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.plans import OfferingChoice, PlannedClaim
from pykarpenter.core.requirements import Requirements, from_expressions


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Option:
    """An instance type a claim may become, with its prices under the claim's requirements."""

    type: InstanceType
    cheapest: Offering | None
    # Infinite when nothing can be launched or the price of what would be is unknown.
    worst: float

    @property
    def best(self) -> float:
        price = self.cheapest.price if self.cheapest is not None else None
        return math.inf if price is None else price


def claim_requirements(claim: PlannedClaim, rules: LabelRules) -> Requirements:
    return from_expressions(claim.requirements, rules)


def admits(requirements: Requirements, capacity_type: str) -> bool:
    return requirements.get_or_exists(labels.CAPACITY_TYPE).allows(capacity_type)


class PriceBook:
    """Prices of types under requirements, looked up once: the candidates of a pool mostly ask the same question."""

    def __init__(self, rules: LabelRules) -> None:
        self._rules = rules
        self._pages: dict[tuple[str, _Signature], dict[str, Option]] = {}

    def options(self, claim: PlannedClaim, types: Mapping[str, InstanceType]) -> list[Option]:
        """The claim's options ordered by their cheapest launch; types the pool no longer has are left out."""
        # Offerings say nothing about the type itself, and every candidate's list of types is different.
        asked = [item for item in claim.requirements if item.key != labels.INSTANCE_TYPE]
        page = self._pages.setdefault((claim.node_pool, _signature(asked)), {})
        requirements: Requirements | None = None
        found: list[Option] = []
        for name in claim.instance_types:
            option = page.get(name)
            kind = types.get(name)
            if kind is None:
                continue
            if option is None or option.type is not kind:
                requirements = requirements or from_expressions(asked, self._rules)
                cheapest = kind.cheapest(requirements, self._rules.well_known)
                option = Option(kind, cheapest, worst_launch_price(kind, requirements, self._rules))
                page[name] = option
            found.append(option)
        return sorted(found, key=lambda option: (option.best, option.type.name))


_Signature = tuple[tuple[str, str, tuple[str, ...]], ...]


def _signature(items: Sequence[NodeSelectorRequirement]) -> _Signature:
    return tuple(sorted((item.key, item.operator, tuple(item.values)) for item in items))


def options_of(claim: PlannedClaim, types: Mapping[str, InstanceType], rules: LabelRules) -> list[Option]:
    """As `PriceBook.options`, for a single question."""
    return PriceBook(rules).options(claim, types)


def worst_launch_price(kind: InstanceType, requirements: Requirements, rules: LabelRules) -> float:
    """The dearest launch of the first capacity type that can be had: reserved, then spot, then on-demand."""
    launchable = [
        o for o in kind.offerings if o.launchable and requirements.compatible(o.requirements, rules.well_known)
    ]
    for capacity_type in labels.CAPACITY_TYPES:
        of_type = [o.price for o in launchable if o.capacity_type == capacity_type]
        if of_type:
            return max(math.inf if price is None else price for price in of_type)
    return math.inf


def unmet_min_values(requirements: Requirements, kinds: Sequence[InstanceType]) -> str:
    """The first key whose minValues the types do not meet, with the counts; empty when all hold."""
    for item in requirements.items_sorted():
        if item.min_values is None:
            continue
        seen = {
            value for kind in kinds for value in kind.requirements.get_or_exists(item.key).values if item.allows(value)
        }
        if len(seen) < item.min_values:
            return f"minValues requirement is not met for {item.key}: {len(seen)} of {item.min_values} values"
    return ""


def needed_for_min_values(requirements: Requirements, kinds: Sequence[InstanceType]) -> int:
    """How many of the types, in their order, are needed until every minValues holds; all when none suffices."""
    if all(item.min_values is None for item in requirements.values()):
        return 0
    for count in range(1, len(kinds) + 1):
        if not unmet_min_values(requirements, kinds[:count]):
            return count
    return len(kinds)


def restrict_capacity_type(claim: PlannedClaim, capacity_type: str) -> PlannedClaim:
    """The claim bound to one capacity type, so that a shortage fails rather than buying a dearer one."""
    others = tuple(r for r in claim.requirements if r.key != labels.CAPACITY_TYPE)
    narrowed = NodeSelectorRequirement(key=labels.CAPACITY_TYPE, operator="In", values=[capacity_type])
    return dataclasses.replace(claim, requirements=(*others, narrowed))


def with_options(claim: PlannedClaim, options: Sequence[Option]) -> PlannedClaim:
    """The claim with only these types, and the cheapest of them as its choice."""
    names = tuple(option.type.name for option in options)
    best = options[0].cheapest if options else None
    choice = claim.choice
    if best is not None:
        choice = OfferingChoice(names[0], best.zone, best.capacity_type, best.price)
    return dataclasses.replace(claim, instance_types=names, choice=choice)
