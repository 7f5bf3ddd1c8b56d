"""Seeded worlds: a few in every test run, and proof that the checkers would notice a missing guard."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pykarpenter.controllers.node.attachments import Attachments
from pykarpenter.core import budgets
from pykarpenter.sim.cloud.instances import Instance
from pykarpenter.sim.cloud.provider import SimProvider
from pykarpenter.sim.faults.shrinking import shrink
from pykarpenter.sim.faults.stories import FAULTS, Step, Story, crash_story, draw_story, small_story
from pykarpenter.sim.faults.world import run_story
from tests.soak.worlds import judged


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 61))
def test_invariants_hold_in_a_small_drawn_world(seed):
    """Each fault in its turn; `make soak` draws larger worlds, as many as one likes."""
    outcome = run_story(small_story(seed))
    assert outcome.is_good, [str(v) for v in outcome.violations] + list(outcome.failures)


@pytest.mark.slow
def test_invariants_hold_in_a_drawn_world():
    """Users act, faults strike, the program goes on: nothing is broken and everything settles."""
    outcome = run_story(draw_story(1001))
    assert outcome.is_good, [str(v) for v in outcome.violations] + list(outcome.failures)


@pytest.mark.parametrize("path", sorted(Path(__file__).with_name("kept").glob("*.json")), ids=lambda path: path.stem)
def test_world_that_once_failed_stays_good(path):
    """Stories of failed soak runs, kept as they were drawn: what was mended stays mended."""
    outcome = run_story(msgspec.json.decode(path.read_bytes(), type=Story))
    assert outcome.is_good, [str(v) for v in outcome.violations] + list(outcome.failures)


WITHOUT_REPLY = Story(
    7,
    (
        Step(1.0, "pool", {"name": "general", "limit": 0}),
        Step(2.0, "lose_launch_replies", {"times": 1}),
        Step(3.0, "deploy", {"name": "web", "replicas": 3, "cpu": "1", "memory": "1Gi"}),
        Step(30.0, "scale", {"name": "web", "to": 5}),
        Step(60.0, "delete_pod", {"which": 0}),
    ),
)
FOREIGN = Story(
    8,
    (
        Step(1.0, "pool", {"name": "general", "limit": 0}),
        Step(3.0, "deploy", {"name": "web", "replicas": 3, "cpu": "1", "memory": "1Gi"}),
        Step(20.0, "foreign", {"similar": True}),
    ),
)


def one_fault(fault: str, args: dict) -> Story:
    """A Deployment that grows right after the fault, shrinks and grows again."""
    row = FAULTS[fault]
    start, zone = row.begins[0] if row.begins else (None, "")
    steps = (
        Step(1.0, "pool", {"name": "general", "limit": 0}),
        Step(3.0, "deploy", {"name": "web", "replicas": 5, "cpu": "1", "memory": "1Gi"}),
        Step(200.0, row.action, args),
        Step(203.0, "scale", {"name": "web", "to": 20}),
        Step(420.0, "scale", {"name": "web", "to": 2}),
        Step(700.0, "scale", {"name": "web", "to": 8}),
    )
    return Story(3, steps, row.gates, start, zone)


@functools.cache
def launches_without_a_fault() -> int:
    """What the same Deployment costs when nothing happens to it."""
    story = one_fault("F1", {})
    return run_story(Story(story.seed, tuple(step for step in story.steps if step.at != 200.0))).launches


def batches_meanwhile(story: Story, args: dict) -> int:
    """How often the Deployment grows from the fault's begin until it is over; at least once, right after it."""
    over = 200.0 + float(args.get("for_s", 0))
    sizes = [(step.at, step.args["to"]) for step in story.steps if step.action == "scale"]
    grown = [at for (_, before), (at, after) in itertools.pairwise([(3.0, 5), *sizes]) if after > before]
    return max(1, sum(200.0 <= at <= over for at in grown))


ONE_AT_A_TIME = {
    "F1": {"for_s": 300},
    "F11": {"for_s": 500},
    "F14": {"pool": "general"},
    "F20": {"for_s": 60},
    "F25": {"for_s": 300},
    "F26": {"for_s": 500, "cpu": "1"},
    "F27": {"for_s": 1000},
    "F28": {"share": 0.3, "for_s": 900, "whole_zone": True},
    "F30": {"how": "duplicate", "for_s": 150},
    "F33": {"plural": "nodepools", "for_s": 300},
    "F34": {"for_s": 60},
    "F35": {"for_s": 300},
    "F39": {"which": 0, "for_s": 300},
    "F41": {"pool": "general", "after_s": 30, "lasts_s": 120},
    "F43": {"replicas": 2, "for_s": 200},
    "F46": {"times": 1},
    "F47": {"which": 0, "for_s": 300},
    "F48": {"seconds": 40},
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ONE_AT_A_TIME)
def test_fault_fires_and_every_invariant_holds(fault):
    """Also L5, since nothing is launched once the load is steady."""
    outcome = run_story(one_fault(fault, ONE_AT_A_TIME[fault]))
    assert outcome.fired.get(fault, 0) >= 1
    assert outcome.is_good, [str(v) for v in outcome.violations] + list(outcome.failures)
    # Each batch of pods that comes while the fault lasts may cost two machines that come to nothing, never a row.
    story = one_fault(fault, ONE_AT_A_TIME[fault])
    assert outcome.launches <= launches_without_a_fault() + 2 * batches_meanwhile(story, ONE_AT_A_TIME[fault])


def test_f33_fields_that_the_program_does_not_know_are_kept():
    """The cluster's definitions may be newer; a lost field would be noticed by the fault itself."""
    story = one_fault("F33", {})
    grown = Step(200.0, "newer_fields", {"for_s": 400})
    outcome = run_story(Story(3, tuple(grown if step.at == 200.0 else step for step in story.steps)))
    assert outcome.fired.get("F33", 0) >= 2
    assert outcome.is_good, [str(v) for v in outcome.violations] + list(outcome.failures)


def test_f47_s10_a_node_of_somebody_else_under_a_name_that_was_ours_is_left_alone():
    """The name of a Node that is gone may come back with another machine: it is not ours, whatever its name."""
    story = one_fault("F47", {})
    reused = Step(200.0, "reuse_name", {"which": 0, "for_s": 400})
    outcome = run_story(Story(3, tuple(reused if step.at == 200.0 else step for step in story.steps)))
    assert outcome.fired.get("F47") == 1
    assert outcome.is_good, [str(v) for v in outcome.violations] + list(outcome.failures)


def test_s4_f41_without_windows_the_checkers_fail(monkeypatch: pytest.MonkeyPatch):
    """Budgets read in local time, or not at all, must be noticed."""
    monkeypatch.setattr(budgets, "is_active", lambda budget, *args: budget.schedule is None)
    outcome = run_story(one_fault("F41", {"pool": "general", "after_s": 5, "lasts_s": 300}))
    assert "S4" in {v.invariant for v in outcome.violations}


def test_s7_f43_without_waiting_for_volumes_the_checkers_fail(monkeypatch: pytest.MonkeyPatch):
    """A volume that is still attached when its machine ends may lose what was written last."""
    monkeypatch.setattr(Attachments, "awaited", lambda self, node: [])
    outcome = run_story(one_fault("F43", {"replicas": 2, "for_s": 200}))
    assert "S7" in {v.invariant for v in outcome.violations}


class _ForgetfulProvider(SimProvider):
    """A guard taken away: each launch has a token of its own."""

    _numbers = itertools.count()

    def _token(self, claim):
        return f"{claim.uid}-{next(self._numbers)}"


class _GreedyProvider(SimProvider):
    """A guard taken away: every machine in the account is taken for ours."""

    def _is_ours(self, instance: Instance) -> bool:
        instance.tags.setdefault("pykarpenter.sh/nodeclaim-uid", "")
        return True


def test_s2_f3_without_launch_tokens_the_checkers_fail():
    """Turning the guard off must be noticed, or a green run proves nothing."""
    assert run_story(WITHOUT_REPLY).is_good
    outcome = run_story(WITHOUT_REPLY, make_provider=_ForgetfulProvider)
    assert "S2" in {v.invariant for v in outcome.violations}


def test_s3_f31_without_ownership_tags_the_checkers_fail():
    assert run_story(FOREIGN).is_good
    outcome = run_story(FOREIGN, make_provider=_GreedyProvider)
    assert "S3" in {v.invariant for v in outcome.violations}


@pytest.mark.parametrize("nth", [1, 4, 9, 20])
def test_f21_l4_a_crash_before_any_write_is_survived(nth):
    """A sample of crash points; `python -m tests.soak --every-write` tries them all."""
    outcome = run_story(crash_story(21, nth))
    assert outcome.fired.get("F21") == 1
    assert outcome.is_good, [str(v) for v in outcome.violations] + list(outcome.failures)


@pytest.mark.slow
def test_failing_story_shrinks_to_what_matters():
    """The pool, the fault and the pods that need a machine are enough to buy twice."""

    def still_fails(story: Story) -> bool:
        outcome = run_story(story, make_provider=_ForgetfulProvider)
        return "S2" in {v.invariant for v in outcome.violations}

    short = shrink(WITHOUT_REPLY, still_fails, most_runs=20)
    assert [step.action for step in short.steps] == ["pool", "lose_launch_replies", "deploy"]


def test_a_shrunk_story_keeps_its_gates_its_start_and_its_zone():
    """Without them the same steps would be another story."""
    story = msgspec.structs.replace(WITHOUT_REPLY, gates="NodeRepair=true", start=1.0, zone="UTC0")
    short = shrink(story, lambda candidate: candidate.gates == "NodeRepair=true" and candidate.start == 1.0)
    assert (short.gates, short.start, short.zone) == ("NodeRepair=true", 1.0, "UTC0")
    assert len(short.steps) == 1


def test_l6_a_broken_pool_and_a_hopeless_pod_hold_up_nobody():
    """The pod hears why it waits; everything else goes on as in any story."""
    trouble = (Step(1.5, "broken_pool", {"name": "broken"}), Step(2.0, "hopeless_pod", {"name": "hopeless"}))
    story = msgspec.structs.replace(FOREIGN, steps=(FOREIGN.steps[0], *trouble, *FOREIGN.steps[1:]))
    outcome = run_story(story)
    assert outcome.is_good, [str(v) for v in outcome.violations] + list(outcome.failures)
    assert outcome.launches == 1


def test_story_is_drawn_from_its_seed_alone():
    assert draw_story(5) == draw_story(5)
    assert draw_story(5) != draw_story(6)
    assert {s.action for seed in range(200) for s in draw_story(seed).steps} >= {f.action for f in FAULTS.values()}


def test_no_story_creates_two_jobs_of_one_name():
    """Seed 1202 drew two jobs in one second, and the second creation ended the whole soak."""
    for seed in (1202, *range(50)):
        jobs = [step.args["name"] for step in draw_story(seed).steps if step.action == "job"]
        assert len(jobs) == len(set(jobs)), seed


def test_a_story_that_breaks_off_is_a_bad_world_and_not_the_end_of_the_soak():
    """The other worlds of the night keep their turn, and the failure says what happened."""
    outcome = judged(Story(5, (Step(1.0, "hopeless_pod", {"name": "one"}), Step(2.0, "hopeless_pod", {"name": "one"}))))
    assert not outcome.is_good
    assert "already exists" in outcome.failures[0]


@pytest.mark.slow
def test_s15_two_processes_with_different_hash_seeds_write_the_same_history():
    """One seed, one history: otherwise no failure could be replayed."""
    code = (
        "from pykarpenter.sim.faults.stories import draw_story;"
        "from pykarpenter.sim.faults.world import run_story;"
        "print(run_story(draw_story(1010)).digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout.strip()
        for seed in ("1", "4242")
    }
    assert len(digests) == 1
