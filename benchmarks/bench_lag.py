"""How late the event loop runs while a decision about 20,000 pods is made in a thread beside it.

Leases are renewed and probes answered by the same loop: the 99th percentile must stay below 200 ms (design §8.3).
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.inputs import linear400, pool, recorded
from benchmarks.rows import Row
from pykarpenter.core.packing import pack
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.snapshot import ClusterSnapshot
from pykarpenter.runtime.lag import LoopLag

PODS = "diverse-20000"
INTERVAL_S = 0.005


async def _decide() -> tuple[LoopLag, float, int]:
    snapshot = ClusterSnapshot(
        now=0.0, pods=recorded(PODS), node_pools=(pool(),), instance_types={"default": linear400()}
    )
    lag = LoopLag(interval_s=INTERVAL_S)
    probe = asyncio.create_task(lag.run())
    started = time.perf_counter()
    plan = await asyncio.get_running_loop().run_in_executor(None, pack, snapshot, PackingSettings())
    took = time.perf_counter() - started
    probe.cancel()
    return lag, took, len(plan.claims)


def run() -> list[Row]:
    lag, took, claims = asyncio.run(_decide())
    return [
        Row(
            "loop lag p99 during a decision", lag.quantile(0.99) * 1000, "ms", 200.0, note=f"{claims:,} claims planned"
        ),
        Row("loop lag at worst", lag.quantile(1.0) * 1000, "ms"),
        Row("the decision, 20,000 pods", took, "s", note="wall time beside the probe"),
    ]
