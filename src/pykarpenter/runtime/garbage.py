"""Keeps the garbage collector from walking a heap full of long-lived objects again and again.

While the first lists fill the caches the collector is off; afterwards everything alive is frozen out of later
collections, and so is what the first minutes of work build on top (a full collection with 100,000 pods costs half a
second of a loop that has leases to renew). Nothing is collected before it is frozen: that walk is what must not happen,
and loading leaves a few hundred objects in cycles at most. Later a full collection is rare, as nearly everything here
goes when its last reference does.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from types import TracebackType

# Young objects are looked at after so many allocations, the middle-aged after 10 such looks, all after 200 of those.
_THRESHOLDS = (5_000, 10, 200)
# Seconds after the caches are filled: views, plans and rendered gauges of all objects are there by then.
_FREEZE_AFTER_S = (15.0, 45.0, 120.0, 300.0)


class GarbagePause:
    """A pause that several loaders share: it begins with the first to enter and ends with the last to leave."""

    def __init__(self) -> None:
        self._inside = 0
        self._was_enabled = True

    def __enter__(self) -> GarbagePause:
        if self._inside == 0:
            self._was_enabled = gc.isenabled()
            gc.disable()
        self._inside += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside -= 1
        if self._inside == 0:
            gc.freeze()
            if self._was_enabled:
                gc.enable()


def collect_what_was_frozen() -> None:
    """Give back what a former life of the process froze, after the next has begun: its parts refer to each other."""
    gc.unfreeze()
    gc.collect()


async def freeze_what_stays(filled: Callable[[], Awaitable[None]]) -> None:
    """Once the caches are `filled`, let later collections leave out what the first minutes built."""
    gc.set_threshold(*_THRESHOLDS)
    await filled()
    waited = 0.0
    for after in _FREEZE_AFTER_S:
        await asyncio.sleep(after - waited)
        waited = after
        # The young ones only: most of them are garbage or about to be.
        gc.collect(1)
        gc.freeze()
