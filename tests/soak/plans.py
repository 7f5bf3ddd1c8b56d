"""`python -m tests.soak.plans [names…]`: plans of the recorded inputs, with every effort, in two processes.

Each plan must be accepted by a replay that shares nothing with the engine, cost no more than the compatible plan and
no less than its own bound, and be the same in a second process with other hash seeds. One line for each; exit code 1
when any fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import msgspec
from benchmarks import inputs, packing

from pykarpenter.core.packing import pack
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.plans import LaunchPlan
from pykarpenter.core.snapshot import ClusterSnapshot
from tests.reference.large import validate_large

EFFORTS = ("off", "normal", "thorough")
SETTINGS = PackingSettings()


def recorded(name: str, catalogue: str) -> Callable[[], ClusterSnapshot]:
    return lambda: packing.one_pool(inputs.recorded(name), getattr(inputs, catalogue)())


INPUTS: dict[str, Callable[[], ClusterSnapshot]] = {
    "diverse-100": recorded("diverse-100", "linear400"),
    "diverse-1000": recorded("diverse-1000", "linear400"),
    "diverse-5000": recorded("diverse-5000", "linear400"),
    "diverse-10000": recorded("diverse-10000", "linear400"),
    "diverse-20000": recorded("diverse-20000", "linear400"),
    "plain-10000-kwok16": recorded("plain-10000", "kwok16"),
    "plain-10000-linear400": recorded("plain-10000", "linear400"),
    "basic-1000": recorded("basic-1000", "kwok16"),
    "wide-1000": recorded("wide-1000", "kwok16"),
    "preferences-4000": packing.preferences,
    "deployments-10000": lambda: packing.deployments(10_000),
    "deployments-100000": lambda: packing.deployments(100_000),
}
# Searches of many classes that take minutes with the most effort; the two lesser ones say enough.
NOT_THOROUGH = {"diverse-5000", "diverse-10000", "diverse-20000", "deployments-100000"}


def efforts_of(name: str) -> tuple[str, ...]:
    return EFFORTS[:2] if name in NOT_THOROUGH else EFFORTS


def digest(plan: LaunchPlan) -> str:
    """Everything a plan says, in the order it says it."""
    return hashlib.sha256(msgspec.json.encode(plan)).hexdigest()[:16]


def digests(names: list[str]) -> dict[str, str]:
    found = {}
    for name in names:
        snapshot = INPUTS[name]()
        for effort in efforts_of(name):
            found[f"{name} {effort}"] = digest(pack(snapshot, replace(SETTINGS, effort=effort)))
    return found


def elsewhere(names: list[str], hash_seed: str) -> dict[str, str]:
    """The same plans made by a process of its own."""
    command = [sys.executable, "-m", "tests.soak.plans", "--digests", *names]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    answer: dict[str, str] = json.loads(done.stdout)
    return answer


def check(name: str, other: dict[str, str]) -> int:
    """Prints a line for each effort; answers how many fail."""
    snapshot = INPUTS[name]()
    compatible: float | None = None
    failed = 0
    for effort in efforts_of(name):
        started = time.process_time()
        plan = pack(snapshot, replace(SETTINGS, effort=effort))
        seconds = time.process_time() - started
        price, bound = plan.price_per_hour or 0.0, plan.lower_bound
        compatible = price if compatible is None else compatible
        wrong = validate_large(snapshot, plan)[:3]
        if price > compatible + 1e-6:
            wrong.append(f"above the compatible plan's {compatible:.4f}")
        if bound is not None and bound > price + 1e-6:
            wrong.append(f"bound {bound:.4f} above the price")
        if other.get(f"{name} {effort}") != digest(plan):
            wrong.append("another plan in another process")
        failed += bool(wrong)
        against = "" if bound is None else f"bound {bound:10.2f}, gap {100 * (price / bound - 1):5.1f} %"
        verdict = "valid, never above, equal in two processes" if not wrong else f"BAD {wrong}"
        print(
            f"{name:22} {effort:9} {len(plan.claims):5} nodes {price:10.2f} $/h "
            f"{against:34} {seconds:6.1f} s  {verdict}",
            flush=True,
        )
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.plans", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(INPUTS)}; default all")
    parser.add_argument("--digests", action="store_true", help="print what each plan boils down to, and check nothing")
    options = parser.parse_args()
    names = options.names or list(INPUTS)
    if options.digests:
        print(json.dumps(digests(names)))
        return 0
    failed = sum(check(name, elsewhere([name], "4711")) for name in names)
    print(f"{failed} failed" if failed else "all hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
