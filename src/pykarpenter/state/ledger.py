"""Capacity that was promised but cannot be seen yet, so that a pool's limits are never passed (S1).

A promise is made before a NodeClaim is created and ends when the claim is visible in the cluster state (which then
counts it itself), or when it is certain that the claim does not exist. A create whose outcome is unknown keeps its
promise: unknown is never read as free. After a restart nothing needs to be remembered here, because every created
claim carries what it was promised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pykarpenter.api.pods import Quantities
from pykarpenter.api.quantity import InvalidQuantity, available_units
from pykarpenter.core.reasons import Refusal, Why
from pykarpenter.core.resources import Resources, add, subtract


@dataclass(frozen=True, slots=True)
class Promise:
    """What one NodeClaim may add to its pool, `nodes: 1` included."""

    claim: str
    pool: str
    capacity: Mapping[str, int]
    # Epoch seconds of the last time a create with this name was sent.
    sent_at: float = 0.0


class Ledger:
    """Open promises by the name of the NodeClaim."""

    def __init__(self) -> None:
        self._open: dict[str, Promise] = {}
        # Sums by pool, kept along: a plan of thousands of claims reserves them one by one.
        self._totals: dict[str, Resources] = {}

    def reserve(self, promise: Promise, limits: Quantities, usage: Mapping[str, int]) -> Refusal | None:
        """Make the promise, or say which limit it would pass; `usage` is what the pool's machines count for.

        Reserving the same claim again replaces its promise, so a retry is not charged twice.
        """
        self.release(promise.claim)
        committed = add(usage, self.promised(promise.pool), promise.capacity)
        for name in sorted(limits):
            try:
                limit = available_units(name, limits[name])
            except InvalidQuantity as error:
                return Refusal(Why.LIMITS, f'limit of {name} for nodepool "{promise.pool}": {error}')
            if committed.get(name, 0) > limit:
                return Refusal(
                    Why.LIMITS,
                    f'nodepool "{promise.pool}" would use {committed[name]} of {name}, above its limit of {limit}',
                    details={"resource": name, "committed": committed[name], "limit": limit},
                )
        self._open[promise.claim] = promise
        self._totals[promise.pool] = add(self._totals.get(promise.pool, {}), promise.capacity)
        return None

    def release(self, claim: str) -> bool:
        """End a promise: the claim is visible, or certainly does not exist."""
        promise = self._open.pop(claim, None)
        if promise is None:
            return False
        left = subtract(self._totals[promise.pool], promise.capacity)
        self._totals[promise.pool] = {name: amount for name, amount in left.items() if amount}
        return True

    def sent(self, claim: str, now: float) -> None:
        """A create with this name went out; its outcome may stay unknown until well after."""
        if claim in self._open:
            self._open[claim] = replace(self._open[claim], sent_at=now)

    def promised(self, pool: str) -> Resources:
        return dict(self._totals.get(pool, {}))

    def by_pool(self) -> dict[str, Resources]:
        return {pool: dict(total) for pool, total in sorted(self._totals.items()) if total}

    def open_promises(self) -> list[Promise]:
        return [self._open[claim] for claim in sorted(self._open)]

    def __contains__(self, claim: str) -> bool:
        return claim in self._open
