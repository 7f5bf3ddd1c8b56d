"""The batching window: idle and longest wait, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pykarpenter.controllers.provisioning.batcher import Batcher
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock


def closes_at(story: Callable[[Batcher], Awaitable[None]]) -> float:
    """When the first window closes, in seconds since the start, while the story triggers."""

    async def main() -> float:
        clock = running_clock()
        batcher = Batcher(clock, idle_s=1.0, max_s=10.0)
        task = asyncio.create_task(story(batcher))  # type: ignore[arg-type]
        await batcher.wait_batch()
        closed = clock.monotonic()
        task.cancel()
        return closed

    return run_virtual(main())


@pytest.mark.promise("SCH-1.1")
def test_window_closes_when_nothing_new_came_for_the_idle_time() -> None:
    async def story(batcher: Batcher) -> None:
        await asyncio.sleep(5.0)
        batcher.trigger("a")
        await asyncio.sleep(0.9)
        batcher.trigger("b")

    assert closes_at(story) == pytest.approx(6.9)


@pytest.mark.promise("SCH-1.2")
def test_window_never_lasts_longer_than_the_longest_wait() -> None:
    async def story(batcher: Batcher) -> None:
        for number in range(100):
            batcher.trigger(f"pod-{number}")
            await asyncio.sleep(0.5)

    assert closes_at(story) == pytest.approx(10.0)


@pytest.mark.promise("SCH-1.3")
def test_repeats_by_the_same_object_do_not_keep_the_window_open() -> None:
    async def story(batcher: Batcher) -> None:
        while True:
            batcher.trigger("a")
            await asyncio.sleep(0.5)

    assert closes_at(story) == pytest.approx(1.0)


@pytest.mark.promise("SCH-1.3")
def test_trigger_without_an_object_always_counts_as_new() -> None:
    async def story(batcher: Batcher) -> None:
        for _ in range(4):
            batcher.trigger(None)
            await asyncio.sleep(0.5)

    assert closes_at(story) == pytest.approx(2.5)


@pytest.mark.promise("SCH-1.4")
def test_next_window_knows_nothing_of_the_last_and_keeps_what_came_in_between() -> None:
    async def main() -> list[float]:
        clock = running_clock()
        batcher = Batcher(clock, idle_s=1.0, max_s=10.0)
        batcher.trigger("a")
        await batcher.wait_batch()
        first = clock.monotonic()
        batcher.trigger("a")
        await asyncio.sleep(30.0)
        await batcher.wait_batch()
        return [first, clock.monotonic()]

    assert run_virtual(main()) == pytest.approx([1.0, 32.0])
