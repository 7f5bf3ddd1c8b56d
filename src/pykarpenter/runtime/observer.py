"""What work queues and controllers report while they run; metrics are one listener, silence the default."""

from __future__ import annotations

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

    def work_unfinished(self, name: str, total_s: float, longest_s: float) -> None: ...


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

    def work_unfinished(self, name: str, total_s: float, longest_s: float) -> None:
        pass


IGNORE_WORK = IgnoreWork()
