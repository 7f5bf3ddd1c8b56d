"""Seeded worlds, one after another or shared among processes.

A module of its own because new interpreters find functions by the name of their module, and `__main__` has none.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator

from pykarpenter.sim.faults.stories import Story, draw_story
from pykarpenter.sim.faults.world import Outcome, run_story


def outcomes(seeds: range, workers: int) -> Iterator[Outcome]:
    """The worlds' outcomes in the order of their seeds; a world is the same in whatever process it runs."""
    spare_the_collector()
    if workers <= 1:
        yield from map(run_seed, seeds)
        return
    # New interpreters rather than forks: a fork would inherit threads and event loops of this one.
    with multiprocessing.get_context("spawn").Pool(workers, spare_the_collector) as pool:
        yield from pool.imap(run_seed, seeds)


def run_seed(seed: int) -> Outcome:
    return judged(draw_story(seed))


def judged(story: Story) -> Outcome:
    """What came of a story; one that broke off is bad, and the worlds after it still have their turn."""
    try:
        return run_story(story)
    except Exception as error:
        told = [str(e) for e in error.exceptions] if isinstance(error, ExceptionGroup) else [str(error)]
        failure = f"the story broke off: {type(error).__name__}: {'; '.join(told)}"
        return Outcome(story.seed, (), {}, "", 0, 0, (failure,))


def spare_the_collector() -> None:
    """A world is many small objects that live as long as it does: looking through them often finds nothing."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
