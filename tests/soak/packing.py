"""`python -m tests.soak.packing --cases 5000`: the packing engine against the plain packer and the validator."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from tests.properties.against_the_oracle import problems, reference, unsteady


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.packing", description=__doc__)
    parser.add_argument("--cases", type=int, default=5000, help="how many clusters")
    parser.add_argument("--first-seed", type=int, default=1)
    args = parser.parse_args()
    started = time.monotonic()
    bad: list[int] = []
    features: Counter[str] = Counter()
    for seed in range(args.first_seed, args.first_seed + args.cases):
        found = check(seed)
        features.update(reference(seed).case.features)
        reference.cache_clear()
        if found:
            bad.append(seed)
            print(f"seed {seed}: BAD {found[:3]}", flush=True)
        elif seed % 500 == 0:
            print(f"seed {seed}: {len(bad)} bad so far, {time.monotonic() - started:.0f} s", flush=True)
    rare = sorted(name for name, count in features.items() if count < 0.03 * args.cases) if args.cases >= 500 else []
    print(f"\n{args.cases} clusters in {time.monotonic() - started:.0f} s, {len(bad)} bad: {bad or 'none'}")
    print(f"rules in under 3 % of the clusters: {', '.join(rare) or 'none'}")
    return 1 if bad or rare else 0


def check(seed: int) -> list[str]:
    try:
        return [*problems(seed), *unsteady(seed)]
    except Exception:
        return [f"died: {traceback.format_exc(limit=-3)}"]


if __name__ == "__main__":
    sys.exit(main())
