"""Time in tests and simulations: it jumps, it is exact, and a program that can never go on fails loudly."""

import asyncio
import threading

import pytest

from pykarpenter.runtime.virtual_loop import DEFAULT_START, PROCESS, VirtualDeadlock, run_virtual, running_clock


def test_a_day_passes_at_once_and_exactly():
    """Timeouts of minutes and hours are tested in milliseconds."""

    async def main():
        await asyncio.sleep(86_400.3)
        return running_clock().now()

    assert run_virtual(main()) == DEFAULT_START + 86_400.3


def test_timers_fire_in_time_order_and_ties_in_the_order_they_were_set():
    """One program, one order: simulations replay."""
    seen = []

    async def after(delay, name):
        await asyncio.sleep(delay)
        seen.append(name)

    async def main():
        await asyncio.gather(after(2, "c"), after(1, "a"), after(1, "b"))

    run_virtual(main())
    assert seen == ["a", "b", "c"]


def test_waiting_for_nothing_is_an_error_that_names_the_task():
    """A simulation that hangs would otherwise look like a slow one."""

    async def main():
        stuck = asyncio.get_running_loop().create_task(asyncio.Event().wait(), name="waits-for-godot")
        await stuck

    with pytest.raises(VirtualDeadlock, match="waits-for-godot"):
        run_virtual(main())


def test_a_thread_at_work_is_waited_for_in_real_time():
    """Work handed to a thread is not a deadlock, and no virtual time passes for it."""

    async def main():
        done = threading.Event()
        asyncio.get_running_loop().call_soon(done.set)
        before = asyncio.get_running_loop().time()
        result = await asyncio.to_thread(lambda: done.wait(10) and "from the thread")
        return result, asyncio.get_running_loop().time() - before

    assert run_virtual(main()) == ("from the thread", 0.0)


def test_tasks_left_behind_are_cancelled_oldest_first():
    """Clean-up order must not follow memory addresses."""
    seen = []

    async def linger(name):
        try:
            await asyncio.sleep(3600)
        finally:
            seen.append(name)

    async def main():
        main.kept = [asyncio.create_task(linger(n)) for n in range(20)]
        await asyncio.sleep(1)

    run_virtual(main())
    assert seen == list(range(20))


def test_the_start_can_be_chosen_and_wall_time_skewed_without_touching_monotonic_time():
    """F40: a jumping wall clock must leave timeouts and leases alone."""

    async def main():
        clock = running_clock()
        assert clock.now() == 1000.0
        before = clock.monotonic()
        clock.skew_s = 600.0
        assert clock.now() == 1600.0
        assert clock.monotonic() == before

    run_virtual(main(), start=1000.0)


def test_a_frozen_process_stands_still_while_others_go_on():
    """A paused process (F20) must wake up late, with all its timers due at once, and not have run meanwhile."""

    async def tick(name, seen, bell):
        PROCESS.set(name)
        loop = asyncio.get_running_loop()
        for _ in range(6):
            await asyncio.sleep(1)
            seen.append((name, loop.time()))
        await bell.wait()
        seen.append((f"{name} rung", loop.time()))

    async def main():
        loop = asyncio.get_running_loop()
        seen, bell = [], asyncio.Event()
        tasks = [loop.create_task(tick(name, seen, bell)) for name in ("one", "two")]
        await asyncio.sleep(2.5)
        loop.freeze("one")
        await asyncio.sleep(7.5)
        bell.set()
        await asyncio.sleep(10)
        loop.thaw("one")
        await asyncio.gather(*tasks)
        return seen

    seen = run_virtual(main())
    assert [at for name, at in seen if name == "one"] == [1, 2, 20, 21, 22, 23]
    assert [at for name, at in seen if name == "two"] == [1, 2, 3, 4, 5, 6]
    assert [item for item in seen if "rung" in item[0]] == [("two rung", 10), ("one rung", 23)]
