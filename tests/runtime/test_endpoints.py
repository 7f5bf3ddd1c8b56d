"""What a cluster probes and scrapes, and how the program ends."""

import asyncio
import gc
import signal
import threading
import weakref

import aiohttp
import pytest

from pykarpenter.runtime import profiling
from pykarpenter.runtime.garbage import GarbagePause, collect_what_was_frozen, freeze_what_stays
from pykarpenter.runtime.health import Endpoints
from pykarpenter.runtime.lag import LoopLag
from pykarpenter.runtime.shutdown import ShutdownTimeout, Stop, _run, run_until_stopped
from pykarpenter.runtime.virtual_loop import run_virtual


async def fetched(port, path):
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


def serve(story, **options):
    async def main():
        endpoints = Endpoints(lambda: iter([b"metric 1\n"]), 0, 0, host="127.0.0.1", **options)
        await endpoints.start()
        try:
            await story(endpoints, *endpoints.ports)
        finally:
            await endpoints.stop()

    run_virtual(main())


@pytest.mark.promise("API-7.25")
def test_liveness_is_a_ping_and_readiness_asks_every_check():
    """A pod that waits for its caches is alive but not ready."""

    async def story(endpoints, metrics, health):
        problem = "pods"
        endpoints.checks["caches"] = lambda: f"not synced: {problem}" if problem else None
        endpoints.checks["crds"] = lambda: None
        assert await fetched(health, "/healthz") == (200, "ok")
        status, text = await fetched(health, "/readyz")
        assert (status, text) == (500, "[-]caches failed: not synced: pods\n")
        problem = ""
        assert await fetched(health, "/readyz") == (200, "ok")
        assert (await fetched(health, "/metrics"))[0] == 404

    serve(story)


@pytest.mark.promise("API-7.25")
def test_metrics_have_their_own_port_and_debug_is_off_by_default():
    """Profiling shows too much for an open port."""

    async def story(endpoints, metrics, health):
        assert await fetched(metrics, "/metrics") == (200, "metric 1\n")
        assert (await fetched(metrics, "/debug/tasks"))[0] == 404

    serve(story)


def test_debug_shows_places_never_values():
    """S14: code locations and counts only."""

    async def story(endpoints, metrics, health):
        secret = "hunter2"

        async def waits():
            await asyncio.sleep(1000)
            return secret

        task = asyncio.create_task(waits(), name="the-waiter")
        await asyncio.sleep(0)
        for path in ("/debug/tasks", "/debug/threads", "/debug/memory", "/debug/profile?seconds=0.02"):
            status, text = await fetched(metrics, path)
            assert status == 200
            assert "hunter2" not in text
        tasks = (await fetched(metrics, "/debug/tasks"))[1].splitlines()
        (waiter,) = [line for line in tasks if line.startswith("the-waiter: ")]
        assert "waits" in waiter and "sleep" in waiter
        assert (await fetched(metrics, "/debug/profile?seconds=x"))[0] == 400
        task.cancel()

    serve(story, profiling=True)


def test_stacks_of_busy_threads_are_taken_without_harm():
    """Walking their frames from Python crashed the interpreter once in a while."""
    ended = threading.Event()

    def deep(depth):
        return deep(depth - 1) if depth else sum(range(10))

    def works_hard():
        while not ended.is_set():
            deep(50)

    threads = [threading.Thread(target=works_hard, name=f"worker-{number}") for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        found = profiling._sample(0.3)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    busy = [stack for stack in found if "works_hard (runtime/test_endpoints.py:" in stack]
    assert busy
    # Outermost call first, as flame graphs want it.
    assert any(stack.index("works_hard") < stack.index("deep (") for stack in busy if "deep (" in stack)


def test_f48_loop_lag_is_measured():
    """A blocked loop shows in the metric that alerts are made on."""
    seen = []
    lag = LoopLag(seen.append)
    for value in [0.001] * 98 + [0.3, 5.0]:
        lag.note(value)
    assert lag.quantile(0.5) == 0.001
    assert lag.quantile(0.99) == 5.0
    assert len(seen) == 100

    async def main():
        running = asyncio.create_task(LoopLag(seen.append).run())
        await asyncio.sleep(10)
        running.cancel()

    seen.clear()
    run_virtual(main())
    assert len(seen) in (99, 100)
    assert max(seen) < 1e-6


def stopping(story, grace_s=25.0):
    """Run `story(stop, ended)` beside work that cleans up for five seconds."""
    outcome = {}

    async def main():
        stop = Stop()

        async def work():
            try:
                await asyncio.sleep(10**6)
            finally:
                await asyncio.sleep(5)
                outcome["cleaned"] = True

        helper = asyncio.create_task(story(stop))
        try:
            outcome["stopped"] = await _run(work, stop, grace_s, lambda *a, **k: None)
        finally:
            outcome["at"] = asyncio.get_running_loop().time()
            await helper

    try:
        run_virtual(main())
    except ShutdownTimeout as error:
        outcome["error"] = str(error)
    return outcome


def test_a_signal_cancels_the_work_and_lets_it_clean_up():
    """Leases are released and events written before the process ends."""

    async def story(stop):
        await asyncio.sleep(10)
        stop.ask("SIGTERM")

    outcome = stopping(story)
    assert outcome == {"cleaned": True, "stopped": True, "at": 15.0}


def test_work_that_does_not_end_is_left_behind_after_its_grace():
    """Kubernetes would kill it a little later anyway."""

    async def story(stop):
        stop.ask("SIGTERM")

    outcome = stopping(story, grace_s=2.0)
    assert outcome["at"] == 2.0
    assert "within 2 s of SIGTERM" in outcome["error"]


def test_a_second_signal_ends_the_wait_at_once():
    """Ctrl-C twice means now."""

    async def story(stop):
        stop.ask("SIGINT")
        await asyncio.sleep(1)
        stop.ask("SIGINT")

    assert stopping(story)["at"] == 1.0


def test_errors_of_the_work_are_raised_and_a_normal_end_is_told():
    """A crash must not look like a clean stop."""

    async def fails():
        raise RuntimeError("no provider")

    async def ends():
        return None

    async def main():
        with pytest.raises(RuntimeError, match="no provider"):
            await run_until_stopped(fails)
        assert await run_until_stopped(ends) is False

    asyncio.run(main())


def test_real_signals_are_heard_and_handlers_removed():
    """The wiring to the operating system."""

    async def main():
        async def work():
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(60)

        assert await run_until_stopped(work) is True
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    asyncio.run(main())


def test_the_collector_pauses_from_the_first_loader_to_the_last(monkeypatch):
    """A full collection with 100,000 pods holds the loop for half a second; the frozen ones are never walked again."""
    calls = []
    state = {"on": True}
    monkeypatch.setattr("gc.isenabled", lambda: state["on"])
    monkeypatch.setattr("gc.disable", lambda: calls.append("disable"))
    monkeypatch.setattr("gc.enable", lambda: calls.append("enable"))
    monkeypatch.setattr("gc.collect", lambda *_: calls.append("collect"))
    monkeypatch.setattr("gc.freeze", lambda: calls.append("freeze"))
    pause = GarbagePause()
    with pause:
        with pause:
            assert calls == ["disable"]
        assert calls == ["disable"]
    assert calls == ["disable", "freeze", "enable"], "a collection here would be the walk that is to be avoided"


def test_what_was_frozen_can_be_given_back():
    """A process that lost its lease starts over; caches of the life before must not stay for ever."""

    class Part:
        pass

    whole, part = Part(), Part()
    whole.part, part.whole = part, whole
    gone = weakref.ref(whole)
    gc.freeze()
    try:
        del whole, part
        gc.collect()
        assert gone() is not None, "frozen: a collection does not look at it"
        collect_what_was_frozen()
        assert gone() is None
    finally:
        gc.unfreeze()


def test_what_the_first_minutes_build_is_frozen_too(monkeypatch):
    """Views and gauges of 10,000 nodes are made after the lists; walking them would hold the loop just the same."""
    calls = []
    monkeypatch.setattr("gc.set_threshold", lambda *values: calls.append(("threshold", *values)))
    monkeypatch.setattr("gc.collect", lambda generation: calls.append(("collect", generation)))
    monkeypatch.setattr("gc.freeze", lambda: calls.append("freeze"))

    async def main():
        filled = asyncio.Event()
        settling = asyncio.create_task(freeze_what_stays(filled.wait))
        await asyncio.sleep(1000.0)
        assert calls == [("threshold", 5_000, 10, 200)], "nothing is there yet"
        filled.set()
        await settling

    run_virtual(main())
    assert calls[1:] == [("collect", 1), "freeze"] * 4
