"""Waiting for one of several things without `asyncio.wait`, whose sets follow memory addresses."""

from __future__ import annotations

import asyncio
from typing import Any


async def wait_first_done(*futures: asyncio.Future[Any]) -> None:
    """Until one of them is done; none is cancelled, and none's result is looked at."""
    done = asyncio.get_running_loop().create_future()

    def finish(_: asyncio.Future[Any]) -> None:
        if not done.done():
            done.set_result(None)

    for future in futures:
        future.add_done_callback(finish)
    try:
        await done
    finally:
        for future in futures:
            future.remove_done_callback(finish)
