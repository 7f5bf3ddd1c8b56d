"""The search over sets at scale: cpu seconds to the first command and to the end, trials a second, and memory.

Fleets with slack, no budget in the way, commands carried out perfectly until nothing is left to gain. The yardstick for
the first command is 5 s at 1,000 nodes, Karpenter's search and ours together.
"""

from __future__ import annotations

import resource
import time
from dataclasses import replace

from tests.support.perfect import GRACEFUL, bill, carried_out

from benchmarks.disruption import snapshot
from benchmarks.rows import Row
from pykarpenter.core.disruption import best_sets
from pykarpenter.core.disruption.candidates import World
from pykarpenter.core.disruption.decide import decide
from pykarpenter.core.disruption.engine import PackingSimulations

FILL = 0.6
EVICTION_PRICE = 0.001


def measure(nodes: int) -> list[Row]:
    frozen, packing, settings = snapshot(nodes, FILL)
    settings = replace(settings, eviction_price=EVICTION_PRICE, best_sets=True)
    simulations = PackingSimulations(packing)
    current, commands, moved, first = frozen, 0, 0, 0.0
    started = time.process_time()
    while True:
        plan = decide(World(current, settings), simulations(current), methods=GRACEFUL)
        first = first or time.process_time() - started
        if not plan.commands:
            break
        commands += 1
        moved += plan.commands[0].pod_count
        current = carried_out(current, plan.commands[0], f"new-{commands:04d}")
    whole = time.process_time() - started
    world = World(current, settings)
    started = time.process_time()
    found = best_sets.search(world, simulations(current), None, lambda: False)
    looked = time.process_time() - started
    pods = sum(len(view.pods) for view in frozen.nodes)
    before, after = bill(frozen, settings), bill(current, settings)
    note = f"{commands} commands move {moved} of {pods} pods, ${before:,.0f}/h to ${after:,.0f}/h"
    size = f"{nodes:,} nodes"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Row(f"first command, {size}", first, "cpu s", 5.0 if nodes == 1000 else None),
        Row(f"to the end, {size}", whole, "cpu s", note=note),
        Row(f"last look, {size}", looked, "cpu s"),
        Row(f"trials a second, {size}", found.trials / looked, "1/s", higher_is_better=True),
        Row(f"peak memory, {size}", memory, "MiB", cpu_bound=False),
    ]


def run() -> list[Row]:
    return [row for nodes in (1000, 5000) for row in measure(nodes)]
