"""`python -m benchmarks [names…] [-o json]`: run benchmarks and compare them with their targets.

Each runs in a process of its own, so that memory is its own and nothing is warm by accident. To add one: a module with
`run() -> list[Row]` and a line in BENCHMARKS. Exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from benchmarks.rows import Row, machine_speed

# Name -> module with `run() -> list[Row]`.
BENCHMARKS: dict[str, str] = {
    "decode": "benchmarks.bench_decode",
    "memory": "benchmarks.bench_memory",
    "reflector": "benchmarks.bench_reflector",
    "lag": "benchmarks.bench_lag",
    "packing": "benchmarks.packing",
    "cost": "benchmarks.cost",
    "world": "benchmarks.bench_world",
    "disruption": "benchmarks.disruption",
    "fleets": "benchmarks.fleets",
    "scale": "benchmarks.scale",
    "fleet-search": "benchmarks.fleet_search",
}
TIMEOUT_S = 1800


def measure(name: str) -> dict[str, Any]:
    """Run one benchmark here; the machine is calibrated right before and after it, the slower time counting."""
    before = machine_speed()
    rows: list[Row] = importlib.import_module(BENCHMARKS[name]).run()
    speed = min(before, machine_speed())
    results = [{**asdict(row), "scaled": row.scaled(speed), "passes": row.passes(speed)} for row in rows]
    return {"benchmark": name, "machine_speed": speed, "rows": results}


def measure_apart(name: str) -> dict[str, Any]:
    """Run one benchmark in a fresh process; one that breaks is reported as such."""
    command = [sys.executable, "-m", "benchmarks", "--here", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        return {"benchmark": name, "error": done.stderr.strip().splitlines()[-1:] or ["no message"], "rows": []}
    # What a benchmark says beside its rows, such as a table of its own.
    sys.stderr.write(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def table(results: list[dict[str, Any]]) -> str:
    lines = [f"{'benchmark':44} {'measured':>12} {'scaled':>12} {'target':>12}  unit      result"]
    for result in results:
        if "error" in result:
            lines.append(f"{result['benchmark']:44} {'':>12} {'':>12} {'':>12}            ERROR {result['error'][0]}")
            continue
        for row in result["rows"]:
            bound = "" if row["target"] is None else f"{'≥' if row['higher_is_better'] else '≤'} {row['target']:,g}"
            verdict = {True: "pass", False: "MISS", None: "-"}[row["passes"]]
            note = f"  ({row['note']})" if row["note"] else ""
            name = f"{result['benchmark']}: {row['name']}"
            numbers = f"{_number(row['value'])} {_number(row['scaled'])}"
            lines.append(f"{name:44} {numbers} {bound:>12}  {row['unit']:9} {verdict}{note}")
        lines.append(f"{'':44} machine speed {result['machine_speed']:.2f} of the reference")
    return "\n".join(lines)


def _number(value: float) -> str:
    """Small values are ratios and seconds, where the third digit decides."""
    return f"{value:>12,.3f}" if abs(value) < 20 else f"{value:>12,.1f}"


def failed(results: list[dict[str, Any]]) -> bool:
    return any("error" in result or any(row["passes"] is False for row in result["rows"]) for result in results)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(BENCHMARKS)}; default all")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.add_argument("--here", metavar="NAME", help="run one in this process and print JSON")
    options = parser.parse_args()
    unknown = [name for name in (*options.names, options.here) if name and name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    if options.here:
        print(json.dumps(measure(options.here)))
        return 0
    results = []
    for name in options.names or BENCHMARKS:
        print(f"running {name} …", file=sys.stderr)
        results.append(measure_apart(name))
    print(json.dumps(results, indent=1) if options.output == "json" else table(results))
    return 1 if failed(results) else 0


if __name__ == "__main__":
    sys.exit(main())
