"""`make soak` runs all its parts, and fails at the end when one of them did."""

from __future__ import annotations

import argparse
import sys

from tests.soak.every import parts, run_parts


def test_a_part_that_fails_keeps_no_other_from_running(capfd):
    """A red first part once hid whether the worlds of the whole night held."""
    statuses = {"one": 1, "two": 0, "three": 2}
    ends = {
        name: [sys.executable, "-c", f"print('ran {name}'); raise SystemExit({status})"]
        for name, status in statuses.items()
    }
    assert run_parts(ends) == 1
    told = capfd.readouterr().out
    assert [f"ran {name}" in told for name in ends] == [True, True, True]
    assert told.splitlines()[-1] == "failed: one, three"
    assert run_parts({"two": ends["two"]}) == 0


def test_long_runs_can_be_left_out_and_workers_reach_the_worlds():
    args = argparse.Namespace(cases=0, seeds=7, first_seed=3, workers=2, burst=0, days=0)
    chosen = parts(args, ["--no-shrink"])
    assert list(chosen) == ["plans", "worlds", "crash before every write", "storms"]
    assert chosen["worlds"][2:] == ["tests.soak", "--seeds=7", "--first-seed=3", "--workers=2", "--no-shrink"]
