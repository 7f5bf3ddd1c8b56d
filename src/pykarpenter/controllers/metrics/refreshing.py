"""Keeps rendered gauges behind the cluster by a few seconds, a slice of the changed objects at a time.

Changes only note a key; rendering happens in the loop's step, which lets others run between slices. A key that cannot
be rendered is left out and logged, once per mistake: metrics are never worth an exception elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.controller import Loop
from pykarpenter.runtime.logs import get_logger

PERIOD_S = 5.0
# About two milliseconds of rendering.
SLICE = 50


class Refresher:
    """Calls `render` for each changed key, then `finish` once per pass that changed something or came due."""

    def __init__(self, name: str, render: Callable[[str], None], clock: Clock, finish: Callable[[], None]) -> None:
        self._render = render
        self._finish = finish
        self._dirty: dict[str, None] = {}
        # What was said about keys that cannot be rendered; they come again with every pass.
        self._told: dict[str, str] = {}
        self._loop = Loop(name, self.step, clock=clock)
        self._log = get_logger(controller=name)

    def touch(self, key: str) -> None:
        self._dirty[key] = None

    async def run(self) -> None:
        await self._loop.run()

    async def step(self) -> float:
        keys, self._dirty = list(self._dirty), {}
        for number, key in enumerate(keys, start=1):
            try:
                self._render(key)
                self._told.pop(key, None)
            except Exception as error:
                if self._told.get(key) != str(error):
                    self._told[key] = str(error)
                    self._log.error("metrics of an object left out", key=key, error=error)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        self._finish()
        return PERIOD_S
