"""Ends the program when it is asked to: work is cancelled and may clean up, for a bounded time.

SIGTERM is how Kubernetes asks; it kills after the pod's grace period whatever we do, so a second signal, or the end of
our own grace, ends the wait at once. Nothing may depend on this: a crash at any point must be survivable (F21).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable

from pykarpenter.runtime.logs import get_logger
from pykarpenter.runtime.waiting import wait_first_done

# Below the 30 s that Kubernetes gives a pod by default.
GRACE_S = 25.0


class ShutdownTimeout(RuntimeError):
    """The work did not end within the grace; the process should exit all the same."""


async def run_until_stopped(
    work: Callable[[], Awaitable[None]],
    *,
    signals: Iterable[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
    grace_s: float = GRACE_S,
) -> bool:
    """Run `work` until it ends or a signal comes; true when a signal ended it.

    Errors of the work are raised. Raises ShutdownTimeout when the work outlives its grace or a second signal comes.
    """
    loop = asyncio.get_running_loop()
    log = get_logger(controller="shutdown")
    asked = Stop()
    wanted = list(signals)
    for number in wanted:
        loop.add_signal_handler(number, asked.ask, number.name)
    try:
        return await _run(work, asked, grace_s, log.info)
    finally:
        for number in wanted:
            loop.remove_signal_handler(number)


class Stop:
    """A request to stop that can be made twice: the second time without patience."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.reason = ""

    def ask(self, reason: str) -> None:
        self.reason = self.reason or reason
        (self.second if self.first.is_set() else self.first).set()


async def _run(work: Callable[[], Awaitable[None]], asked: Stop, grace_s: float, say: Callable[..., None]) -> bool:
    main = asyncio.ensure_future(work())
    watcher = asyncio.ensure_future(asked.first.wait())
    await wait_first_done(main, watcher)
    watcher.cancel()
    if main.done():
        main.result()
        return False
    say("stopping", reason=asked.reason)
    main.cancel()
    impatience = asyncio.ensure_future(asked.second.wait())
    try:
        async with asyncio.timeout(grace_s):
            await wait_first_done(main, impatience)
    except TimeoutError:
        pass
    finally:
        impatience.cancel()
    if not main.done():
        raise ShutdownTimeout(f"work did not end within {grace_s:g} s of {asked.reason}")
    if not main.cancelled():
        main.result()
    return True
