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
