"""The work queue: what gets in line, when, and how often."""

import asyncio

import pytest

from pykarpenter.runtime.limits import TokenBucket
from pykarpenter.runtime.queue import QueueShutDown, WorkQueue
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock


def on_virtual_time(test):
    """Run an async test on a virtual loop."""

    def run():
        run_virtual(test())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@on_virtual_time
async def test_a_key_waits_in_line_once_however_often_it_is_added():
    """A burst of events about one object is one reconcile."""
    queue = WorkQueue(clock=running_clock())
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


@on_virtual_time
async def test_a_key_at_work_is_not_handed_out_again_until_done():
    """Two workers on one object would race with each other."""
    queue = WorkQueue(clock=running_clock())
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"


@on_virtual_time
async def test_of_several_delays_the_earliest_counts():
    """A later reminder must not push back one that is already set."""
    clock = running_clock()
    queue = WorkQueue(clock=clock)
    queue.add_after("a", 30)
    queue.add_after("a", 10)
    queue.add_after("a", 20)
    start = clock.monotonic()
    assert await queue.get() == "a"
    assert clock.monotonic() - start == 10
    queue.done("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await queue.get()


@on_virtual_time
async def test_back_off_doubles_to_its_cap_and_starts_anew_after_forget():
    """A failing object is tried less and less often, one that recovered at once."""
    clock = running_clock()
    queue = WorkQueue(clock=clock, backoff=(1, 60))
    waits = []
    for _ in range(8):
        start = clock.monotonic()
        queue.add_rate_limited("a")
        queue.done(await queue.get())
        waits.append(clock.monotonic() - start)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    queue.forget("a")
    start = clock.monotonic()
    queue.add_rate_limited("a")
    await queue.get()
    assert clock.monotonic() - start == 1


@on_virtual_time
async def test_the_shared_rate_holds_back_many_failing_keys():
    """A thousand failing objects must not become a thousand requests a second."""
    clock = running_clock()
    queue = WorkQueue(clock=clock, backoff=(0.001, 60), limiter=TokenBucket(10, 1, clock))
    start = clock.monotonic()
    for key in range(21):
        queue.add_rate_limited(key)
    for _ in range(21):
        await queue.get()
    assert clock.monotonic() - start == pytest.approx(2.0)


@on_virtual_time
async def test_cancelled_get_loses_no_key():
    """A worker stopped at the wrong moment must not take a key with it."""
    queue = WorkQueue(clock=running_clock())
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 5) == "a"


@on_virtual_time
async def test_shut_down_wakes_every_waiter_and_takes_nothing_more():
    """A stopping controller must not start new work."""
    queue = WorkQueue(clock=running_clock())
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    queue.add_after("late", 5)
    await asyncio.sleep(0)
    queue.shut_down()
    queue.add("a")
    for task in waiting:
        with pytest.raises(QueueShutDown):
            await task
    await asyncio.sleep(10)
    with pytest.raises(QueueShutDown):
        await queue.get()


@on_virtual_time
async def test_token_bucket_lets_a_burst_through_then_the_rate():
    """QPS and burst mean what Kubernetes clients mean by them."""
    clock = running_clock()
    bucket = TokenBucket(5, 10, clock)
    start = clock.monotonic()
    for _ in range(10):
        assert await bucket.take() == 0
    for _ in range(5):
        await bucket.take()
    assert clock.monotonic() - start == pytest.approx(1.0)
    assert not bucket.try_take()
    await asyncio.sleep(0.2)
    assert bucket.try_take()


@on_virtual_time
async def test_a_cancelled_wait_gives_its_token_back():
    """Requests that were given up must not slow down the others."""
    clock = running_clock()
    bucket = TokenBucket(1, 1, clock)
    await bucket.take()
    waiting = [asyncio.create_task(bucket.take()) for _ in range(10)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.sleep(1)
    assert bucket.try_take()
