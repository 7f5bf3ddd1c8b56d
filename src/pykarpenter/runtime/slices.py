"""Long loops in slices, so that the event loop serves leases, probes and watches in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")


async def in_slices(items: Sequence[T], size: int = 500) -> AsyncIterator[T]:
    """Every item in its order; between slices of `size` others get a turn."""
    for start in range(0, len(items), size):
        if start:
            await asyncio.sleep(0)
        for item in items[start : start + size]:
            yield item
