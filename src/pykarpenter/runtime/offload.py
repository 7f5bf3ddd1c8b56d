"""Where long decisions run: in a thread beside the event loop, or inline where time is virtual.

A decision reads only an immutable snapshot, so it needs no lock. The loop keeps serving leases and probes meanwhile:
the interpreter hands it the processor every few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Offload(Protocol):
    async def __call__(self, decide: Callable[[], T]) -> T:
        """The result of `decide`, or its exception."""
        ...


class Inline:
    """Runs on the loop itself: deterministic, for simulations and tests."""

    async def __call__(self, decide: Callable[[], T]) -> T:
        return decide()


class InThread:
    """One worker thread, so that decisions never compete with each other for the processor."""

    def __init__(self, name: str = "decision") -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def __call__(self, decide: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, decide)

    def close(self) -> None:
        """Let a running decision end by itself; nobody waits for it."""
        self._executor.shutdown(wait=False, cancel_futures=True)
