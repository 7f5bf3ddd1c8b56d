"""Long loops let others run."""

import asyncio

from pykarpenter.runtime.slices import in_slices
from pykarpenter.runtime.virtual_loop import run_virtual


def test_others_get_a_turn_between_slices_and_none_is_lost():
    """Renewing a lease must not wait for a look at 10,000 machines; a small cluster's order of events stays."""
    turns = []

    async def other():
        while True:
            turns.append(len(seen))
            await asyncio.sleep(0)

    seen = []

    async def main(count):
        beside = asyncio.create_task(other())
        await asyncio.sleep(0)
        turns.clear()
        seen.clear()
        async for item in in_slices(range(count), 10):
            seen.append(item)
        beside.cancel()

    run_virtual(main(35))
    assert seen == list(range(35))
    assert turns == [10, 20, 30]
    run_virtual(main(10))
    assert turns == []
