"""Controllers keep going: one bad object, one bad step or a slow one never holds up the rest."""

import asyncio
import json

import pytest

from pykarpenter.kube.errors import Conflict, ServerFault
from pykarpenter.runtime import logs
from pykarpenter.runtime.controller import Controller, Loop, Result
from pykarpenter.runtime.observer import IgnoreWork
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock


class Recorded(IgnoreWork):
    def __init__(self):
        self.outcomes = []
        self.panics = 0

    def work_done(self, name, result, seconds):
        self.outcomes.append(result)

    def work_panicked(self, name):
        self.panics += 1


@pytest.fixture
def lines():
    written = []
    logs.configure("debug", write=lambda line: written.append(json.loads(line)))
    yield written
    logs.silence()


def test_f39_one_object_that_always_raises_backs_off_alone(lines):
    """A poison object is isolated; the others are reconciled without delay."""
    seen = []
    observed = Recorded()

    async def reconcile(key):
        seen.append((key, asyncio.get_running_loop().time()))
        if key == "poison":
            raise ValueError("bad object")

    async def main():
        controller = Controller("c", reconcile, clock=running_clock(), workers=2, observer=observed)
        running = asyncio.create_task(controller.run())
        controller.enqueue("poison")
        for n in range(50):
            controller.enqueue(f"good-{n}")
        await asyncio.sleep(40)
        running.cancel()

    run_virtual(main())
    assert [at for key, at in seen if key == "poison"] == [0, 1, 3, 7, 15, 31]
    assert all(at == 0 for key, at in seen if key != "poison")
    assert len([key for key, _ in seen if key != "poison"]) == 50
    assert observed.panics == 6
    assert {"message": "reconcile failed", "error": "bad object", "key": "poison", "controller": "c"}.items() <= lines[
        0
    ].items()


def test_f22_a_conflict_is_tried_again_without_noise(lines):
    """409 on a patch is everyday: retried with fresh data, not reported as a defect."""
    observed = Recorded()
    attempts = []

    async def reconcile(key):
        attempts.append(key)
        if len(attempts) == 1:
            raise Conflict("stale")

    async def main():
        controller = Controller("c", reconcile, clock=running_clock(), observer=observed)
        running = asyncio.create_task(controller.run())
        controller.enqueue("a")
        await asyncio.sleep(5)
        running.cancel()

    run_virtual(main())
    assert observed.outcomes == ["error", "success"]
    assert observed.panics == 0
    assert [line["level"] for line in lines] == ["DEBUG"]


def test_results_say_when_the_key_comes_back():
    """`requeue_after_s` is exact, `requeue` grows, nothing means done."""
    seen = []

    async def reconcile(key):
        seen.append(asyncio.get_running_loop().time())
        return [Result(requeue_after_s=7.5), Result(requeue=True), Result(requeue=True), None][len(seen) - 1]

    async def main():
        controller = Controller("c", reconcile, clock=running_clock())
        running = asyncio.create_task(controller.run())
        controller.enqueue("a")
        await asyncio.sleep(1000)
        running.cancel()

    run_virtual(main())
    assert seen == [0, 7.5, 8.5, 10.5]


def test_no_more_than_the_given_number_of_keys_at_once_and_never_one_key_twice():
    """Concurrency is bounded, and an object is never reconciled by two at a time."""
    active = []
    most = []

    async def reconcile(key):
        assert key not in active
        active.append(key)
        most.append(len(active))
        await asyncio.sleep(1)
        active.remove(key)

    async def main():
        controller = Controller("c", reconcile, clock=running_clock(), workers=3)
        running = asyncio.create_task(controller.run())
        for n in range(9):
            controller.enqueue(n)
        await asyncio.sleep(0.5)
        controller.enqueue(0)
        await asyncio.sleep(20)
        assert controller.idle
        running.cancel()

    run_virtual(main())
    assert max(most) == 3
    assert len(most) == 10


def test_cancelling_a_controller_waits_for_its_work_to_clean_up():
    """Shutdown leaves no reconcile running behind the leader's back."""
    cleaned = []

    async def reconcile(key):
        try:
            await asyncio.sleep(100)
        finally:
            cleaned.append(key)

    async def main():
        controller = Controller("c", reconcile, clock=running_clock())
        running = asyncio.create_task(controller.run())
        controller.enqueue("a")
        controller.enqueue("b")
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert cleaned == ["a", "b"]

    run_virtual(main())


def test_f39_a_loop_survives_its_errors_and_waits_longer_after_each(lines):
    """A singleton never dies: errors back off, success resets."""
    at = []

    async def step():
        at.append(asyncio.get_running_loop().time())
        if len(at) <= 3:
            raise ServerFault("down")
        return 10.0

    async def main():
        running = asyncio.create_task(Loop("l", step, clock=running_clock()).run())
        await asyncio.sleep(30)
        running.cancel()

    run_virtual(main())
    assert at == [0, 1, 3, 7, 17, 27]
    assert lines[0]["error-kind"] == "ServerFault"


def test_waking_a_loop_shortens_its_wait():
    """Work that arrives does not wait for the poll."""
    at = []

    async def step():
        at.append(asyncio.get_running_loop().time())
        return 100.0

    async def main():
        loop = Loop("l", step, clock=running_clock())
        running = asyncio.create_task(loop.run())
        await asyncio.sleep(5)
        loop.wake()
        await asyncio.sleep(1)
        running.cancel()

    run_virtual(main())
    assert at == [0, 5]
