"""What fleets cost: plans against Karpenter's recorded plans and the proven lower bound, with the seconds they take.

Price and seconds of a row come from one and the same run: the best of several decisions on warm tables, all of which
must give the same plan. Seconds are held to the figures of the engine alone, plus two for batches above 5,000 pods.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import inputs, packing
from benchmarks.rows import Row
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.packing import PackingEngine
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.snapshot import ClusterSnapshot

# Decisions of which the quickest counts; large batches are decided once.
RUNS = 5
FEW_PODS = 5000


@dataclass(frozen=True)
class Case:
    """One input, Karpenter's price for it, and what ours is held to."""

    name: str
    snapshot: Callable[[], ClusterSnapshot]
    effort: str = "normal"
    karpenter_price: float | None = None
    most_of_karpenter: float = 1.0
    most_of_bound: float | None = None
    target_s: float | None = None


def cases() -> list[Case]:
    """Every recorded input and every scenario with a figure; plain pods also with more effort."""

    def recorded(name: str, types: tuple[InstanceType, ...], first: int | None = None) -> Callable[[], ClusterSnapshot]:
        return lambda: packing.one_pool(inputs.recorded(name)[:first], types)

    linear, kwok = inputs.linear400(), inputs.kwok16()
    return [
        Case("1 pod, 400 types", recorded("diverse-100", linear, 1), target_s=0.02),
        Case("diverse 1000", recorded("diverse-1000", linear), "normal", 338.4, 0.75, None, 0.15),
        Case("diverse 5000", recorded("diverse-5000", linear), "normal", 1764, 0.75),
        Case("diverse 10000", recorded("diverse-10000", linear), "normal", 3531, 0.75),
        Case("diverse 20000", recorded("diverse-20000", linear), "normal", 7127, 0.75, None, 6.0),
        Case("preferences, Respect", packing.preferences, "normal", 3777, 1.0, None, 2.0),
        Case("plain 10000, kwok16", recorded("plain-10000", kwok), "normal", 133.42, 1.0, 1.02, 2.8),
        Case("plain 10000, kwok16, thorough", recorded("plain-10000", kwok), "thorough", 133.42, 1.0, 1.015, 10),
        Case("plain 10000, linear400", recorded("plain-10000", linear), "normal", 2834),
        Case("basic 1000", recorded("basic-1000", kwok), "normal", 51.95),
        Case("wide 1000", recorded("wide-1000", kwok), "normal", 53.40),
        Case("S6 deployments 10000", lambda: packing.deployments(10_000), "normal", None, 1.0, 1.03),
        Case("S6 deployments 50000", lambda: packing.deployments(50_000), "normal", None, 1.0, 1.03),
        Case("S6 deployments 100000", lambda: packing.deployments(100_000), "normal", None, 1.0, 1.03, 12.0),
        Case("S7 2000 pods, 5000 nodes", lambda: packing.fleet(5_000), target_s=0.5),
        Case("S8 2065 hopeless of 2170", packing.starvation, target_s=1.0),
    ]


def run(wanted: str = "") -> list[Row]:
    rows: list[Row] = []
    for case in cases():
        if case.name.startswith(wanted):
            rows += measure(case)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [*rows, Row("peak memory", peak, "MiB", 1024, cpu_bound=False)]


def measure(case: Case) -> list[Row]:
    snapshot = case.snapshot()
    settings = PackingSettings(effort=case.effort)
    engine = PackingEngine()
    plan = engine.pack(snapshot, settings)
    runs = RUNS if len(snapshot.pods) <= FEW_PODS else 1
    wall = cpu = float("inf")
    for _ in range(runs):
        gc.collect()
        started, spent = time.perf_counter(), time.process_time()
        again = engine.pack(snapshot, settings)
        wall, cpu = min(wall, time.perf_counter() - started), min(cpu, time.process_time() - spent)
        assert again == plan, f"{case.name}: equal input gave another plan"
    price, bound = plan.price_per_hour, plan.lower_bound
    assert price is not None
    note = f"{wall:.2f} s wall, {price:.2f} $/h, {len(plan.claims)} nodes"
    rows = [Row(f"{case.name}: seconds", cpu, "s cpu", case.target_s, note=note)]
    if case.karpenter_price is not None:
        # Recorded prices are rounded to cents and less; half a unit of the last digit is no dearer plan.
        ratio = round(price / case.karpenter_price, 4)
        note = f"Karpenter {case.karpenter_price:g} $/h"
        rows.append(Row(f"{case.name}: of Karpenter", ratio, "x", case.most_of_karpenter, False, False, note))
    if bound:
        note = f"bound {bound:.2f} $/h, gap {100 * (price / bound - 1):.1f} %"
        rows.append(Row(f"{case.name}: of the bound", price / bound, "x", case.most_of_bound, False, False, note))
    return rows
