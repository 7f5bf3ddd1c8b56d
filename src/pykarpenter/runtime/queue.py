"""A keyed work queue: each key at most once in line, never worked on twice at a time, late keys by delay.

A key added while it is being worked on comes back after `done`. Order is first in, first out; nothing here depends on
hashes or addresses, so equal inputs give equal orders.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.limits import ExponentialBackoff, TokenBucket
from pykarpenter.runtime.observer import WorkObserver, current_observer

K = TypeVar("K", bound=Hashable)


class QueueShutDown(Exception):
    """The queue takes and gives no more keys."""


_SHORTEST_DELAY_S = 0.001


class WorkQueue(Generic[K]):
    def __init__(
        self,
        *,
        clock: Clock,
        name: str = "",
        backoff: tuple[float, float] = (1.0, 60.0),
        limiter: TokenBucket | None = None,
        observer: WorkObserver | None = None,
    ) -> None:
        self._clock = clock
        self._name = name
        self._backoff = ExponentialBackoff(*backoff)
        self._limiter = limiter
        self._observer = observer or current_observer()
        self._line: deque[K] = deque()
        self._waiting: dict[K, float] = {}
        self._processing: dict[K, float] = {}
        self._delayed: dict[K, asyncio.TimerHandle] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._shut_down = False
        self._observer.queue_created(name, self.unfinished)

    def __len__(self) -> int:
        return len(self._line)

    @property
    def idle(self) -> bool:
        """Nothing in line, nothing at work; delayed keys do not count."""
        return not self._line and not self._processing

    def add(self, key: K) -> None:
        """Put the key in line unless it is there already; while it is being worked on, it waits for `done`."""
        if self._shut_down or key in self._waiting:
            return
        self._observer.queue_added(self._name)
        self._waiting[key] = self._clock.monotonic()
        if key not in self._processing:
            self._append(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """Add the key later; of several delays for one key the earliest counts."""
        if self._shut_down:
            return
        if delay_s <= 0:
            self._drop_timer(key)
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        # A delay that rounds to nothing would let a key that is "not due for 1e-13 s" spin without time passing.
        when = loop.time() + max(delay_s, _SHORTEST_DELAY_S)
        timer = self._delayed.get(key)
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        self._delayed[key] = loop.call_at(when, self._delay_over, key)

    def add_rate_limited(self, key: K) -> None:
        """Add the key after its own back-off, which doubles until `forget`, and the queue's rate."""
        delay = self._backoff.next_delay(key)
        if self._limiter is not None:
            delay = max(delay, self._limiter.reserve())
        self._observer.queue_retried(self._name)
        self.add_after(key, delay)

    def failures(self, key: K) -> int:
        """How often the key was added rate limited since it was last forgotten."""
        return self._backoff.failures(key)

    def forget(self, key: K) -> None:
        """The key did well: its back-off starts anew."""
        self._backoff.forget(key)

    async def get(self) -> K:
        """The next key, to be given back with `done`. Raises QueueShutDown."""
        while not self._line:
            if self._shut_down:
                raise QueueShutDown(self._name)
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                # The wake-up was meant for whoever still waits (test_cancelled_get_loses_no_key).
                if getter.done() and not getter.cancelled() and self._line:
                    self._wake_one()
                raise
        key = self._line.popleft()
        now = self._clock.monotonic()
        self._observer.queue_waited(self._name, now - self._waiting.pop(key))
        self._observer.queue_depth(self._name, len(self._line))
        self._processing[key] = now
        return key

    def done(self, key: K) -> None:
        """Work on the key ended; if it was added meanwhile it gets in line again."""
        self._processing.pop(key, None)
        if key in self._waiting and not self._shut_down:
            self._append(key)

    def shut_down(self) -> None:
        """Drop what is in line or delayed and wake every waiting `get` with QueueShutDown."""
        self._shut_down = True
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        self._line.clear()
        self._waiting.clear()
        while self._getters:
            self._wake_one()

    def unfinished(self) -> tuple[float, float]:
        """Seconds spent so far on keys at work: the sum and the longest."""
        now = self._clock.monotonic()
        spent = [now - since for since in list(self._processing.values())]
        return sum(spent), max(spent, default=0.0)

    def _append(self, key: K) -> None:
        self._line.append(key)
        self._observer.queue_depth(self._name, len(self._line))
        self._wake_one()

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _delay_over(self, key: K) -> None:
        self._delayed.pop(key, None)
        self.add(key)

    def _drop_timer(self, key: K) -> None:
        timer = self._delayed.pop(key, None)
        if timer is not None:
            timer.cancel()
