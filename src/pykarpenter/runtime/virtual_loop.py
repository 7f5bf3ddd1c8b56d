"""An event loop whose time jumps to the next timer as soon as nothing else can run.

A day of waiting costs nothing, and one program on one seed always runs in the same order. When nothing is ready, no
timer is set and no thread is working, the program waits for something that cannot come: the loop raises
`VirtualDeadlock` with the tasks that are stuck, instead of hanging.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
import weakref
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

from pykarpenter.runtime.clock import LoopClock

T = TypeVar("T")

# 2026-01-01T00:00:00Z, the wall time at which virtual worlds begin unless told otherwise.
DEFAULT_START = 1_767_225_600.0

# Which simulated process a task belongs to; tasks inherit it from the one that starts them.
PROCESS: ContextVar[str] = ContextVar("process", default="")

# The loop's own wake-up socket; anything beyond it is the program's.
_OWN_DESCRIPTORS = 1
_KERNEL_GRACE_S = 0.005


class VirtualDeadlock(RuntimeError):
    """Every task waits, and nothing is left that could wake one."""


class _JumpingSelector(selectors.DefaultSelector):
    """Polls for real events without waiting; when there are none, moves the loop's time instead."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if self.loop.has_threads_at_work:
            # A thread's result is owed: real time passes, virtual time stands still.
            return super().select(None)
        if len(self.get_map()) > _OWN_DESCRIPTORS:
            # Sockets are open: what this process has sent to itself may still be on its way through the kernel.
            events = super().select(_KERNEL_GRACE_S)
            if events:
                return events
        self.loop.jump_to_next_timer()
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A selector loop on virtual time; `clock` follows it from the wall time `start`."""

    def __init__(self, start: float = DEFAULT_START) -> None:
        selector = _JumpingSelector()
        selector.loop = self
        self._virtual_now = 0.0
        self._threads_at_work = 0
        self._task_number = 0
        # By creation number, so that tasks can be walked in an order that does not follow addresses.
        self._tasks_by_number: weakref.WeakValueDictionary[int, asyncio.Task[Any]] = weakref.WeakValueDictionary()
        # What frozen processes would have done, by process.
        self._frozen: dict[str, list[asyncio.Handle]] = {}
        super().__init__(selector)
        self.clock = LoopClock(start, self)

    def time(self) -> float:
        return self._virtual_now

    @property
    def has_threads_at_work(self) -> bool:
        return self._threads_at_work > 0

    def jump_to_next_timer(self) -> None:
        """Move time to the earliest timer; the base class has already dropped cancelled ones from the heap's top."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if not timers:
            stuck = [task.get_name() for task in self.tasks_in_order() if not task.done()]
            raise VirtualDeadlock(f"nothing can wake {len(stuck)} waiting task(s): {', '.join(stuck[:20])}")
        self._virtual_now = max(self._virtual_now, timers[0].when())

    def freeze(self, process: str) -> None:
        """Stop everything that belongs to a process, as SIGSTOP does: time goes on, and its timers will be late."""
        held = self._frozen.setdefault(process, [])
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        for timer in [t for t in timers if _process_of(t) == process and not t.cancelled()]:
            timers.remove(timer)
            timer._scheduled = False  # type: ignore[attr-defined]
            held.append(timer)
        heapq.heapify(timers)

    def thaw(self, process: str) -> None:
        """Let it go on where it stood; nothing happens when it is not frozen."""
        for handle in self._frozen.pop(process, []):
            if handle.cancelled():
                continue
            if isinstance(handle, asyncio.TimerHandle):
                handle._scheduled = True  # type: ignore[attr-defined]
                heapq.heappush(self._scheduled, handle)  # type: ignore[attr-defined]
            else:
                self._ready.append(handle)  # type: ignore[attr-defined]

    def thaw_all(self) -> None:
        for process in list(self._frozen):
            self.thaw(process)

    def _run_once(self) -> None:
        if self._frozen:
            self._set_aside()
        super()._run_once()  # type: ignore[misc]

    def _set_aside(self) -> None:
        """What is ready in a frozen process waits there: others may have woken it since the last look."""
        ready: Any = self._ready  # type: ignore[attr-defined]
        for _ in range(len(ready)):
            handle = ready.popleft()
            held = self._frozen.get(_process_of(handle))
            (ready if held is None else held).append(handle)

    def create_task(self, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        self._task_number += 1
        number = self._task_number
        if kwargs.get("name") is None:
            kwargs["name"] = f"{getattr(coro, '__qualname__', 'task')}#{number}"
        task = super().create_task(coro, **kwargs)
        self._tasks_by_number[number] = task
        return task

    def tasks_in_order(self) -> list[asyncio.Task[Any]]:
        """Tasks that still exist, oldest first."""
        return [task for _, task in sorted(self._tasks_by_number.items())]

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self._threads_at_work += 1
        future.add_done_callback(self._thread_finished)
        return future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        self._threads_at_work += 1
        try:
            await super().shutdown_default_executor(*args, **kwargs)
        finally:
            self._threads_at_work -= 1

    def _thread_finished(self, _: asyncio.Future[Any]) -> None:
        self._threads_at_work -= 1

    def cancel_all(self) -> None:
        """Cancel what is left, oldest first, and let it clean up."""
        self.thaw_all()
        left = [task for task in self.tasks_in_order() if not task.done()]
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.gather(*left, return_exceptions=True))


def _process_of(handle: asyncio.Handle) -> str:
    context = handle._context  # type: ignore[attr-defined]
    return str(context.get(PROCESS, ""))


def run_virtual(main: Coroutine[Any, Any, T], *, start: float = DEFAULT_START) -> T:
    """Run `main` on a fresh virtual-time loop whose clock starts at `start` (epoch seconds); returns its result.

    Tasks that `main` leaves behind are cancelled. Raises VirtualDeadlock when `main` can never finish.
    """
    loop = VirtualTimeLoop(start)
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        try:
            loop.cancel_all()
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def running_clock() -> LoopClock:
    """The clock of the virtual loop that is running; RuntimeError on any other loop."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualTimeLoop):
        raise RuntimeError("running_clock() needs run_virtual(); pass a Clock on a real loop")
    return loop.clock
