"""What fleets cost: plans of every effort against Karpenter's recorded plans and the proven lower bound.

Price and seconds come from one and the same decision. Rows are ratios: price to Karpenter's, price to the bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import inputs, packing
from benchmarks.rows import Row
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.packing import PackingEngine
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.plans import LaunchPlan
from pykarpenter.core.snapshot import ClusterSnapshot


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
    """Every recorded input; plain pods also with more effort, and the large mixed fleet against the bound."""

    def recorded(name: str, types: tuple[InstanceType, ...]) -> Callable[[], ClusterSnapshot]:
        return lambda: packing.one_pool(inputs.recorded(name), types)

    linear, kwok = inputs.linear400(), inputs.kwok16()
    return [
        Case("diverse 1000", recorded("diverse-1000", linear), "normal", 338.4, 0.75, None, 0.15),
        Case("diverse 5000", recorded("diverse-5000", linear), "normal", 1764, 0.75),
        Case("diverse 10000", recorded("diverse-10000", linear), "normal", 3531, 0.75),
        Case("diverse 20000", recorded("diverse-20000", linear), "normal", 7127, 0.75, None, 6.0),
        Case("plain 10000, kwok16", recorded("plain-10000", kwok), "normal", 133.42, 1.0, 1.02, 2.8),
        Case("plain 10000, kwok16, thorough", recorded("plain-10000", kwok), "thorough", 133.42, 1.0, 1.015, 10),
        Case("plain 10000, linear400", recorded("plain-10000", linear), "normal", 2834),
        Case("basic 1000", recorded("basic-1000", kwok), "normal", 51.95),
        Case("wide 1000", recorded("wide-1000", kwok), "normal", 53.40),
        Case("S6 deployments 100000", lambda: packing.deployments(100_000), "normal", None, 1.0, 1.03, 12.0),
    ]


def run(wanted: str = "") -> list[Row]:
    rows: list[Row] = []
    for case in cases():
        if case.name.startswith(wanted):
            rows += measure(case)
    return rows


def measure(case: Case) -> list[Row]:
    snapshot = case.snapshot()
    settings = PackingSettings(effort=case.effort)
    engine = PackingEngine()
    engine.pack(snapshot, settings)
    started, spent = time.perf_counter(), time.process_time()
    plan = engine.pack(snapshot, settings)
    wall, cpu = time.perf_counter() - started, time.process_time() - spent
    price, bound = _known(plan)
    rows = [Row(f"{case.name}: seconds", cpu, "s cpu", case.target_s, note=f"{wall:.2f} s wall")]
    if case.karpenter_price is not None:
        note = f"{price:.2f} $/h, {len(plan.claims)} nodes, Karpenter {case.karpenter_price:g} $/h"
        ratio = price / case.karpenter_price
        # Recorded prices are rounded to cents and less; half a unit of the last digit is no dearer plan.
        rows.append(Row(f"{case.name}: of Karpenter", round(ratio, 4), "x", case.most_of_karpenter, False, False, note))
    note = f"{price:.2f} $/h, bound {bound:.2f} $/h"
    rows.append(Row(f"{case.name}: of the bound", price / bound, "x", case.most_of_bound, False, False, note))
    return rows


def _known(plan: LaunchPlan) -> tuple[float, float]:
    assert plan.price_per_hour is not None
    assert plan.lower_bound
    return plan.price_per_hour, plan.lower_bound
