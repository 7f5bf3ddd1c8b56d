"""When to plan: shortly after demand stops growing, and never later than the longest wait.

A window opens with the first trigger. Each trigger by an object that the window has not seen restarts the idle timer;
repeats do nothing. The window closes when either timer fires. What triggers while a plan is being made opens the next
window at once.
"""

from __future__ import annotations

import asyncio

from pykarpenter.runtime.clock import Clock


class Batcher:
    def __init__(self, clock: Clock, *, idle_s: float, max_s: float) -> None:
        self._clock = clock
        self._idle_s = idle_s
        self._max_s = max_s
        self._seen: set[str] = set()
        self._fresh = asyncio.Event()

    def trigger(self, uid: str | None) -> None:
        """Demand by the object of that UID; None always counts as new."""
        if uid is not None:
            if uid in self._seen:
                return
            self._seen.add(uid)
        self._fresh.set()

    async def wait_batch(self) -> None:
        """Until a window has opened and closed."""
        await self._fresh.wait()
        opened = self._clock.monotonic()
        while True:
            self._fresh.clear()
            left = self._max_s - (self._clock.monotonic() - opened)
            try:
                async with asyncio.timeout(max(0.0, min(self._idle_s, left))):
                    await self._fresh.wait()
            except TimeoutError:
                break
        self._fresh.clear()
        self._seen.clear()
