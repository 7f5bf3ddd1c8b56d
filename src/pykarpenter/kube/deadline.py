"""How long the request being sent may take at most, handed from whoever knows to whoever sends.

A context variable rather than a parameter: the contract stays small, and clients without a network ignore it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_REQUEST_TIMEOUT: ContextVar[float | None] = ContextVar("request_timeout", default=None)


def request_timeout(default_s: float) -> float:
    """The time-out for a request made now: the default, or less where a caller has less time left."""
    limit = _REQUEST_TIMEOUT.get()
    return default_s if limit is None else min(default_s, limit)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Requests inside the block, and the server's work on them, end after `seconds`."""
    token = _REQUEST_TIMEOUT.set(seconds)
    try:
        yield
    finally:
        _REQUEST_TIMEOUT.reset(token)
