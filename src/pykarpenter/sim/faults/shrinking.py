"""Makes a failing story short: takes steps away as long as it still fails in the same way."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pykarpenter.sim.faults.stories import Step, Story

# Whether a shorter story still fails in the way that is looked for.
StillFails = Callable[[Story], bool]


def shrink(story: Story, still_fails: StillFails, *, most_runs: int = 60) -> Story:
    """The shortest story found within so many runs; halves first, then single steps."""
    runs = 0
    steps = list(story.steps)
    size = max(1, len(steps) // 2)
    while size >= 1 and runs < most_runs:
        shorter = None
        for start in range(0, len(steps), size):
            candidate = _without(steps, start, size)
            runs += 1
            if len(candidate) < len(steps) and still_fails(_with(story, candidate)):
                shorter = candidate
                break
            if runs >= most_runs:
                break
        if shorter is not None:
            steps = shorter
            size = min(size, max(1, len(steps) // 2))
        else:
            size //= 2
    return _with(story, steps)


def _with(story: Story, steps: list[Step]) -> Story:
    """The same story (its seed, gates and time) with other steps."""
    return msgspec.structs.replace(story, steps=tuple(steps))


def _without(steps: list[Step], start: int, size: int) -> list[Step]:
    """Pools stay: without one every pod waits for ever, which is another failure."""
    return [step for i, step in enumerate(steps) if not start <= i < start + size or step.action == "pool"]
