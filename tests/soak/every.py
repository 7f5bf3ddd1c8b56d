"""`python -m tests.soak.every`: each part of the soak in a process of its own, and at the end which of them failed.

A part that fails does not keep the others from running: a night of seeds is worth its result whatever came before.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

Parts = Mapping[str, Sequence[str]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.every", description=__doc__)
    parser.add_argument("--cases", type=int, default=5000, help="packings drawn; 0 leaves them out")
    parser.add_argument("--seeds", type=int, default=200, help="seeded worlds, and as many storms")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="processes that share the seeds")
    parser.add_argument("--burst", type=int, default=10_000, help="pods of the burst; 0 leaves it out")
    parser.add_argument("--days", type=int, default=30, help="simulated days of churn; 0 leaves them out")
    args, rest = parser.parse_known_args()
    return run_parts(parts(args, rest))


def parts(args: argparse.Namespace, rest: Sequence[str] = ()) -> Parts:
    """What is run, by name; `rest` goes to the seeded worlds."""
    first = f"--first-seed={args.first_seed}"
    chosen = {
        "packing": ["tests.soak.packing", f"--cases={args.cases}"] if args.cases else [],
        "plans": ["tests.soak.plans"],
        "worlds": ["tests.soak", f"--seeds={args.seeds}", first, f"--workers={args.workers}", *rest],
        "crash before every write": ["tests.soak", "--every-write"],
        "storms": ["tests.soak", f"--storms={args.seeds}", first],
        "burst": ["tests.soak", f"--burst={args.burst}"] if args.burst else [],
        "days of churn": ["tests.soak", f"--days={args.days}"] if args.days else [],
    }
    return {name: [sys.executable, "-m", *command] for name, command in chosen.items() if command}


def run_parts(chosen: Parts) -> int:
    """0 when every part ended well; all of them run in any case."""
    ended: dict[str, tuple[int, float]] = {}
    for name, command in chosen.items():
        print(f"== {name}", flush=True)
        started = time.monotonic()
        ended[name] = subprocess.run(command, check=False).returncode, time.monotonic() - started
    print("\npart                      result  seconds")
    for name, (status, seconds) in ended.items():
        print(f"{name:24}  {'good' if status == 0 else 'BAD':6}  {seconds:7.0f}")
    bad = [name for name, (status, _) in ended.items() if status]
    print(f"failed: {', '.join(bad)}" if bad else "every part is good", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
