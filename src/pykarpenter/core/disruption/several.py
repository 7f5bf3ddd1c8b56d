"""Several new machines for a set of machines: each is narrowed so far that any mix of launches saves enough.

The money that may be spent is shared out by what the machines cost at least; a type that is among those that go must
be cheaper than keeping one of them. Used only where a setting allows more than one replacement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.disruption.prices import Option
from pykarpenter.core.plans import PlannedClaim
from pykarpenter.core.reasons import Why


def limits(world: World, candidates: Sequence[Candidate], claims: Sequence[PlannedClaim], spend: float) -> list[float]:
    """What each new machine may cost at its worst, together no more than `spend`; empty when that cannot be."""
    least = [_least(world.prices.options(claim, world.types(claim.node_pool))) for claim in claims]
    total = math.fsum(least)
    if not total < spend:
        return []
    kept = _cheapest_kept(candidates)
    found: list[float] = []
    for claim, price in zip(claims, least, strict=True):
        share = price * spend / total if total > 0 else spend / len(claims)
        found.append(min([share, *(kept[name] for name in claim.instance_types if name in kept)]))
    return found


def _least(options: Sequence[Option]) -> float:
    return min((option.worst for option in options), default=math.inf)


def _cheapest_kept(candidates: Sequence[Candidate]) -> dict[str, float]:
    """The cheapest machine of each type that goes: a replacement of that type must beat it."""
    prices: dict[str, float] = {}
    for candidate in candidates:
        if candidate.instance_type is not None and candidate.price is not None:
            name = candidate.instance_type.name
            prices[name] = min(prices.get(name, math.inf), candidate.price)
    return prices


def too_dear(claims: Sequence[PlannedClaim], paid: float) -> Blocker:
    return Blocker(Why.NOT_CHEAPER, f"can't replace with {len(claims)} cheaper nodes", price_now=paid)
