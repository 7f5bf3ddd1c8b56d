"""Waiting in real time for another process to get somewhere.

Only end-to-end tests need it: everything else runs on the virtual clock. It never passes on a sleep alone;
the caller's predicate decides, and the last thing it saw is in the error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NotReached(AssertionError):
    """The predicate stayed false, or kept raising, until the time was up."""


def wait_until(
    predicate: Callable[[], T | None],
    timeout_s: float = 30.0,
    *,
    what: str | Callable[[], str] = "the condition",
    interval_s: float = 0.1,
    retry_on: tuple[type[Exception], ...] = (),
) -> T:
    """The first truthy result of `predicate`; `NotReached` with the last result after `timeout_s`.

    Errors of the predicate go through at once, except those in `retry_on`, which count as "not yet".
    `what` may be a function when the interesting part is only known at the end.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        last: object
        try:
            result = predicate()
        except retry_on as error:
            last = error
        else:
            if result:
                return result
            last = result
        if time.monotonic() >= deadline:
            described = what() if callable(what) else what
            raise NotReached(f"{described}: not reached within {timeout_s:g} s; last seen: {last!r}")
        time.sleep(interval_s)


def stays_true(predicate: Callable[[], object], for_s: float, *, what: str, interval_s: float = 0.2) -> None:
    """Check that `predicate` holds now and keeps holding for `for_s` seconds."""
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline:
        assert predicate(), f"{what}: stopped being true"
        time.sleep(interval_s)
