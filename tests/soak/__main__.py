"""`python -m tests.soak`: many seeded worlds, every safety checker after every write, liveness at the end.

A failing seed is shortened and written down, with one command that replays it. The table at the end says how often
each fault really fired; with enough seeds a required fault that never fired is a failure too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

from pykarpenter.sim.faults.shrinking import shrink
from pykarpenter.sim.faults.stories import FAULTS, Story, crash_story, draw_story
from pykarpenter.sim.faults.world import Outcome, run_story
from tests.machines.storms import run_storm
from tests.soak.bursts import run_burst
from tests.soak.churn import describe_churn, run_churn
from tests.soak.worlds import judged, outcomes

OUT = Path("out/soak")
# In a run of at least this many seeds every fault must be seen. F10 and F38 have runs of their own.
REQUIRED = tuple(fault for fault in FAULTS if fault != "F10")
ENOUGH_SEEDS = 150


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many worlds")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--replay", type=Path, help="run one written story instead of drawing any")
    parser.add_argument("--every-write", action="store_true", help="crash before each write of a small story in turn")
    parser.add_argument("--burst", type=int, metavar="PODS", help="F10: so many pods at once, above the limits")
    parser.add_argument("--days", type=int, help="F38: so many simulated days of churn; memory must not grow")
    parser.add_argument("--storms", type=int, metavar="N", help="so many storms over a few machines")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the seeds")
    parser.add_argument("--no-shrink", action="store_true", help="do not shorten failing stories")
    args = parser.parse_args()
    if args.replay is not None:
        return replay(args.replay)
    if args.every_write:
        return crash_everywhere(args.first_seed)
    if args.burst is not None:
        return burst(args.burst, args.first_seed)
    if args.days is not None:
        return describe_churn(run_churn(args.days, seed=args.first_seed))
    if args.storms is not None:
        return storms(args.first_seed, args.storms)
    return soak(args.first_seed, args.seeds, workers=args.workers, shorten=not args.no_shrink)


def replay(path: Path) -> int:
    story = msgspec.json.decode(path.read_bytes(), type=Story)
    outcome = judged(story)
    for step in story.steps:
        print(f"  {step}")
    describe(outcome)
    return 0 if outcome.is_good else 1


def crash_everywhere(seed: int) -> int:
    """F21, exhaustively: the process dies before its first write, then before its second, until none is left."""
    bad, nth = 0, 0
    while True:
        nth += 1
        outcome = run_story(crash_story(seed, nth))
        if not outcome.is_good:
            bad += 1
            print(f"crash before write {nth}:")
            describe(outcome)
        if not outcome.fired.get("F21"):
            print(f"F21 exhaustive: {nth - 1} crash points, {bad} bad")
            return 1 if bad else 0


def burst(pods: int, seed: int) -> int:
    """F10: limits are used up and never passed."""
    started = time.monotonic()
    outcome = run_burst(pods, seed=seed, unreliable=5)
    print(f"burst of {pods} pods in {time.monotonic() - started:.0f} s, {outcome.looks} writes of NodeClaims judged")
    for pool, limits in outcome.limits.items():
        for name, limit in limits.items():
            used = outcome.used[pool].get(name, 0)
            print(f"{pool}: {name} {used} of {limit}, {outcome.running[pool]} pods run")
    for problem in outcome.problems[:10]:
        print(f"  {problem}")
    return 1 if outcome.problems else 0


def storms(first: int, count: int) -> int:
    """Machines alone: no pools that buy, but grace periods, expiry, reboots and claims without a pool."""
    started, bad = time.monotonic(), []
    for seed in range(first, first + count):
        problems, told = run_storm(seed)
        if problems:
            bad.append(seed)
            print(f"storm {seed}: BAD", *problems, "happened:", *told, sep="\n  ", flush=True)
    print(f"{count} storms in {time.monotonic() - started:.0f} s, {len(bad)} bad: {bad or 'none'}")
    return 1 if bad else 0


def soak(first: int, count: int, *, workers: int, shorten: bool) -> int:
    started = time.monotonic()
    fired: Counter[str] = Counter()
    worlds: Counter[str] = Counter()
    bad: list[int] = []
    for outcome in outcomes(range(first, first + count), workers):
        seed = outcome.seed
        fired.update(outcome.fired)
        worlds.update(outcome.fired.keys())
        if not outcome.is_good:
            bad.append(seed)
            describe(outcome)
            report_failure(draw_story(seed), outcome, shorten=shorten)
        elif sys.stdout.isatty() or seed % 20 == 0:
            print(f"seed {seed}: good ({outcome.writes} writes, {outcome.launches} launches)", flush=True)
    print(f"\n{count} worlds in {time.monotonic() - started:.0f} s, {len(bad)} bad: {bad or 'none'}")
    print("fault  fired  in worlds")
    for fault in FAULTS:
        print(f"{fault:5}  {fired[fault]:5}  {worlds[fault]}")
    missing = [fault for fault in REQUIRED if not fired[fault]] if count >= ENOUGH_SEEDS else []
    if missing:
        print(f"never fired: {', '.join(missing)}")
    return 1 if bad or missing else 0


def describe(outcome: Outcome) -> None:
    print(f"seed {outcome.seed}: {'good' if outcome.is_good else 'BAD'}, history {outcome.digest[:16]}")
    for violation in outcome.violations[:10]:
        print(f"  {violation}")
    for failure in outcome.failures[:5]:
        print(f"  failed: {failure}")


def report_failure(story: Story, outcome: Outcome, *, shorten: bool) -> None:
    wanted = {v.invariant for v in outcome.violations} or {"died"}

    def still_fails(candidate: Story) -> bool:
        result = judged(candidate)
        found = {v.invariant for v in result.violations} or ({"died"} if result.failures else set())
        return bool(found & wanted)

    if shorten:
        story = shrink(story, still_fails)
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"seed-{story.seed}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(story), indent=2))
    for step in story.steps:
        print(f"  {step}")
    print(f"  replay: {os.path.relpath(sys.executable)} -m tests.soak --replay {path}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
