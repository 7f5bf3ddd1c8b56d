"""Time as a port: wall time for what is written down, monotonic time for what is waited for.

Waiting itself is `asyncio.sleep`: under the virtual-time loop it costs nothing, and the clock follows the loop.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Wall time, epoch seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; leases and timeouts inside a process use it."""
        ...


class SystemClock:
    """The machine's clocks; the monotonic one goes on while a machine is suspended."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


# Differences up to here are rounding, latency and the whole seconds that servers tell.
_TOLERANCE_S = 2.0


class SteadyClock:
    """Wall time for decisions: it goes on evenly while the machine's own is set forwards or back, and follows a server.

    Ages are compared with times that the API server wrote, so the server's clock is the one that counts (F40).
    """

    def __init__(self, inner: Clock) -> None:
        self._inner = inner
        self._started_at = inner.now()
        self._origin = inner.monotonic()
        # How far the machine's clock has jumped since then, and how far it was off from the server's anyway.
        self._jumped_s = 0.0
        self._behind_s = 0.0

    def now(self) -> float:
        wall = self._inner.now()
        jumped = (wall - self._started_at) - (self._inner.monotonic() - self._origin)
        if abs(jumped - self._jumped_s) > _TOLERANCE_S:
            self._jumped_s = jumped
        return wall - self._jumped_s + self._behind_s

    def monotonic(self) -> float:
        return self._inner.monotonic()

    def follow(self, server_now: float) -> None:
        """The server says that it is this time (epoch seconds)."""
        behind = server_now - self.now()
        if abs(behind) > _TOLERANCE_S:
            self._behind_s += behind


class LoopClock:
    """A clock that follows the running event loop from a given epoch, with a skew that tests can set."""

    def __init__(self, start: float, loop: asyncio.AbstractEventLoop) -> None:
        self._start = start
        self._loop = loop
        self._origin = loop.time()
        self.skew_s = 0.0

    def now(self) -> float:
        return self._start + (self._loop.time() - self._origin) + self.skew_s

    def monotonic(self) -> float:
        return self._loop.time()
