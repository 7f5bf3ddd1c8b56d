"""How late the event loop runs: the time between when a timer was due and when it ran.

A loop that is late renews its lease late and answers probes late; beyond the lease's renew deadline it must step down
(F48), so the lag is measured all the time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from pykarpenter.runtime.logs import get_logger

INTERVAL_S = 0.1
# Late enough that a person should know; a lease lives 15 s.
_COMPLAIN_S = 2.0


class LoopLag:
    """Measures until cancelled; keeps the last ten minutes."""

    def __init__(self, report: Callable[[float], None] | None = None, interval_s: float = INTERVAL_S) -> None:
        self._report = report
        self._interval = interval_s
        self._recent: deque[float] = deque(maxlen=int(600 / interval_s))
        self._log = get_logger(controller="loop-lag")

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + self._interval
            await asyncio.sleep(self._interval)
            self.note(max(0.0, loop.time() - due))

    def note(self, lag_s: float) -> None:
        self._recent.append(lag_s)
        if self._report is not None:
            self._report(lag_s)
        if lag_s > _COMPLAIN_S:
            self._log.error("the event loop was blocked", seconds=round(lag_s, 3))

    def quantile(self, quantile: float) -> float:
        """The lag that `quantile` of the recent measurements did not exceed, in seconds; 0 before the first."""
        if not self._recent:
            return 0.0
        ordered = sorted(self._recent)
        return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]
