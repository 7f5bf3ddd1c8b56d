"""Rates as token buckets: how soon the next request may go, from what was taken before.

The bucket only computes; waiting is the caller's, so the same bucket serves code that waits and code that drops.
"""

from __future__ import annotations

import asyncio

from pykarpenter.runtime.clock import Clock

# Tokens accumulate in floating point: a bucket a billionth short of a token has one.
_ROUNDING = 1e-9


class TokenBucket:
    """`rate` tokens a second, at most `burst` saved up. A rate of zero or less never limits."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = float(max(1, burst))
        self._clock = clock
        self._tokens = self._burst
        self._filled_at = clock.monotonic()

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._filled_at) * self._rate)
        self._filled_at = now

    def try_take(self) -> bool:
        """Take a token if there is one now."""
        if self._rate <= 0:
            return True
        self._fill()
        if self._tokens < 1.0 - _ROUNDING:
            return False
        self._tokens -= 1.0
        return True

    def reserve(self) -> float:
        """Take a token, borrowing if need be; returns the seconds to wait before using it."""
        if self._rate <= 0:
            return 0.0
        self._fill()
        self._tokens -= 1.0
        return 0.0 if self._tokens >= -_ROUNDING else -self._tokens / self._rate

    def give_back(self) -> None:
        """Return a reserved token that was not used."""
        if self._rate > 0:
            self._tokens = min(self._burst, self._tokens + 1.0)

    async def take(self) -> float:
        """Wait for a token; returns the seconds waited. A cancelled wait gives its token back."""
        wait = self.reserve()
        if wait <= 0:
            return 0.0
        try:
            await asyncio.sleep(wait)
        except asyncio.CancelledError:
            self.give_back()
            raise
        return wait


class ExponentialBackoff:
    """Per-item delays that double from `base` to `cap` until the item is forgotten."""

    def __init__(self, base_s: float, cap_s: float) -> None:
        self._base = base_s
        self._cap = cap_s
        self._failures: dict[object, int] = {}

    def next_delay(self, item: object) -> float:
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        # 2**63 already passes every cap; the bound keeps the power small for an item that fails for months.
        return min(self._cap, self._base * float(2 ** min(failures, 62)))

    def failures(self, item: object) -> int:
        return self._failures.get(item, 0)

    def forget(self, item: object) -> None:
        self._failures.pop(item, None)
