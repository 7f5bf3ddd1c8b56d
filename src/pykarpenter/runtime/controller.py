"""How controllers run: keyed reconcilers with bounded concurrency, and singleton loops.

An error is logged and counted, and only the key that raised it backs off (F39): a controller never dies of one
object, and a loop never of one step. Nothing here decides anything about a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, TypeVar

from pykarpenter.cloud.errors import CloudError
from pykarpenter.kube.errors import ApiError, Conflict
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.limits import ExponentialBackoff
from pykarpenter.runtime.logs import Logger, get_logger
from pykarpenter.runtime.observer import WorkObserver, current_observer
from pykarpenter.runtime.queue import QueueShutDown, WorkQueue

K = TypeVar("K", bound=Hashable)

# The controller whose work the current task does, for metrics of what it calls.
AT_WORK: ContextVar[str] = ContextVar("controller_at_work", default="")

# The world misbehaves in these ways every day; any other exception is a defect of ours and counts as a panic.
_EXPECTED = (ApiError, CloudError, OSError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Result:
    """When to look at the key again: after a delay, or (`requeue`) after the key's growing back-off."""

    requeue_after_s: float | None = None
    requeue: bool = False


DONE = Result()


class Controller(Generic[K]):
    """Reconciles keys: each key alone, up to `workers` keys at once, errors with back-off."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Result | None]],
        *,
        clock: Clock,
        workers: int = 10,
        backoff: tuple[float, float] = (1.0, 60.0),
        observer: WorkObserver | None = None,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._clock = clock
        self._workers = max(1, workers)
        self._observer = observer or current_observer()
        self.queue: WorkQueue[K] = WorkQueue(clock=clock, name=name, backoff=backoff, observer=self._observer)
        self._active: dict[K, asyncio.Task[None]] = {}
        self._log = get_logger(controller=name)

    @property
    def idle(self) -> bool:
        """Nothing in line and nothing at work."""
        return self.queue.idle

    def enqueue(self, key: K) -> None:
        self.queue.add(key)

    def enqueue_after(self, key: K, delay_s: float) -> None:
        self.queue.add_after(key, delay_s)

    async def run(self) -> None:
        """Reconcile until cancelled; then no new key starts, and those at work are cancelled and awaited."""
        free = asyncio.Semaphore(self._workers)
        try:
            while True:
                await free.acquire()
                try:
                    key = await self.queue.get()
                except QueueShutDown:
                    return
                # One task per key at work rather than one per worker: thousands of idle workers cost nothing.
                task = asyncio.get_running_loop().create_task(self._work(key, free), name=f"{self.name}:{key}")
                self._active[key] = task
                self._observer.work_running(self.name, len(self._active), self._workers)
        finally:
            left = list(self._active.values())
            for task in left:
                task.cancel()
            if left:
                await asyncio.gather(*left, return_exceptions=True)

    async def _work(self, key: K, free: asyncio.Semaphore) -> None:
        started = self._clock.monotonic()
        outcome = "error"
        try:
            outcome = await self._reconcile_once(key)
        finally:
            self._active.pop(key, None)
            self.queue.done(key)
            free.release()
            self._observer.work_done(self.name, outcome, self._clock.monotonic() - started)
            self._observer.work_running(self.name, len(self._active), self._workers)

    async def _reconcile_once(self, key: K) -> str:
        # In the key's own task: nothing has to be reset.
        AT_WORK.set(self.name)
        try:
            result = await self._reconcile(key) or DONE
        except Exception as error:
            report_error(self._log, self._observer, self.name, error, key=str(key))
            self.queue.add_rate_limited(key)
            return "error"
        if result.requeue:
            self.queue.add_rate_limited(key)
            return "requeue"
        self.queue.forget(key)
        if result.requeue_after_s is not None:
            self.queue.add_after(key, result.requeue_after_s)
            return "requeue_after"
        return "success"


class Loop:
    """One step again and again; the step says how long to wait, `wake` shortens the wait, errors lengthen it."""

    def __init__(
        self,
        name: str,
        step: Callable[[], Awaitable[float]],
        *,
        clock: Clock,
        backoff: tuple[float, float] = (1.0, 60.0),
        observer: WorkObserver | None = None,
    ) -> None:
        self.name = name
        self._step = step
        self._clock = clock
        self._backoff = ExponentialBackoff(*backoff)
        self._observer = observer or current_observer()
        self._woken = asyncio.Event()
        self._log = get_logger(controller=name)

    def wake(self) -> None:
        """Take the next step now; a back-off after an error is still waited out."""
        self._woken.set()

    async def run(self) -> None:
        """Step until cancelled."""
        AT_WORK.set(self.name)
        while True:
            self._woken.clear()
            started = self._clock.monotonic()
            self._observer.work_running(self.name, 1, 1)
            try:
                wait = max(0.0, await self._step())
            except Exception as error:
                report_error(self._log, self._observer, self.name, error)
                self._finished("error", started)
                await asyncio.sleep(self._backoff.next_delay(self.name))
                continue
            self._backoff.forget(self.name)
            self._finished("requeue_after", started)
            await self._wait(wait)

    async def _wait(self, seconds: float) -> None:
        if seconds == 0.0:
            # Even a step that is always due lets others run.
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    def _finished(self, outcome: str, started: float) -> None:
        self._observer.work_done(self.name, outcome, self._clock.monotonic() - started)
        self._observer.work_running(self.name, 0, 1)


def report_error(log: Logger, observer: WorkObserver, name: str, error: Exception, **facts: str) -> None:
    """Log an error once and say whether it was one of the world's or one of ours; conflicts are everyday noise."""
    if isinstance(error, Conflict):
        log.debug("write conflict, trying again", error=error, **facts)
        return
    if not isinstance(error, _EXPECTED):
        observer.work_panicked(name)
    log.error("reconcile failed", error=error, **facts)
