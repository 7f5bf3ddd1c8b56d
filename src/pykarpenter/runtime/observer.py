"""What work queues and controllers report while they run; metrics are one listener, silence the default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class WorkObserver(Protocol):
    """Told about every step of a controller's work; must be quick and must not raise."""

    def queue_depth(self, name: str, depth: int) -> None: ...

    def queue_added(self, name: str) -> None: ...

    def queue_retried(self, name: str) -> None: ...

    def queue_waited(self, name: str, seconds: float) -> None: ...

    def work_running(self, name: str, active: int, limit: int) -> None: ...

    def work_done(self, name: str, result: str, seconds: float) -> None:
        """`result` is `success`, `requeue`, `requeue_after` or `error`."""
        ...

    def work_panicked(self, name: str) -> None:
        """An error that nobody expected: a defect of ours, isolated to one object."""
        ...

    def queue_created(self, name: str, unfinished: Callable[[], tuple[float, float]]) -> None:
        """`unfinished` answers, from any thread, how long keys at work have taken: the sum and the longest."""
        ...


class IgnoreWork:
    """Listens to nothing."""

    def queue_depth(self, name: str, depth: int) -> None:
        pass

    def queue_added(self, name: str) -> None:
        pass

    def queue_retried(self, name: str) -> None:
        pass

    def queue_waited(self, name: str, seconds: float) -> None:
        pass

    def work_running(self, name: str, active: int, limit: int) -> None:
        pass

    def work_done(self, name: str, result: str, seconds: float) -> None:
        pass

    def work_panicked(self, name: str) -> None:
        pass

    def queue_created(self, name: str, unfinished: Callable[[], tuple[float, float]]) -> None:
        pass


IGNORE_WORK = IgnoreWork()

_CURRENT: ContextVar[WorkObserver] = ContextVar("work_observer", default=IGNORE_WORK)


def current_observer() -> WorkObserver:
    """The listener of controllers that are made without one of their own."""
    return _CURRENT.get()


@contextmanager
def observing(observer: WorkObserver) -> Iterator[None]:
    """Controllers and queues made inside the block report to `observer`: each program in a process has its own."""
    token = _CURRENT.set(observer)
    try:
        yield
    finally:
        _CURRENT.reset(token)
