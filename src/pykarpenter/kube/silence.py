"""Notices that something which should speak regularly has gone silent, and interrupts whoever listens."""

from __future__ import annotations

import asyncio
from types import TracebackType


class InactivityTimeout:
    """`async with` block that raises TimeoutError when `touch` was not called for `limit_s`.

    One timer serves the whole block: touching only notes the time, because re-arming a timer for each of thousands
    of watch events a second would cost more than decoding them.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit = limit_s
        self._scope = asyncio.timeout(None)
        self._touched = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> InactivityTimeout:
        self._loop = asyncio.get_running_loop()
        self._touched = self._loop.time()
        await self._scope.__aenter__()
        self._timer = self._loop.call_at(self._touched + self._limit, self._check)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._scope.__aexit__(kind, error, trace)

    def touch(self) -> None:
        if self._loop is not None:
            self._touched = self._loop.time()

    def _check(self) -> None:
        assert self._loop is not None
        now = self._loop.time()
        due = self._touched + self._limit
        if now >= due:
            self._scope.reschedule(now)
        else:
            self._timer = self._loop.call_at(due, self._check)
