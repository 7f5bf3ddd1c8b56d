"""Decisions off the loop: the loop stays free, errors come back, simulations stay inline."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pykarpenter.runtime.offload import Inline, InThread


async def test_thread_leaves_the_loop_free() -> None:
    offload = InThread()
    may_finish = threading.Event()

    def decide() -> str:
        assert may_finish.wait(10)
        return threading.current_thread().name

    running = asyncio.ensure_future(offload(decide))
    await asyncio.sleep(0)
    may_finish.set()
    assert (await running).startswith("decision")
    offload.close()


@pytest.mark.parametrize("offload", [Inline(), InThread()], ids=["inline", "thread"])
async def test_error_of_a_decision_reaches_who_asked(offload: Inline | InThread) -> None:
    def decide() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await offload(decide)


async def test_inline_runs_on_the_callers_thread() -> None:
    assert await Inline()(threading.current_thread) is threading.current_thread()
