"""A whole cluster at scale: 10,000 pods arrive, 1,000 machines are bought, every pod runs; on virtual time.

Measures the program and the embedded cluster together, as `simulate` and the soak runs use them.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.rows import Row
from pykarpenter.api import kinds
from pykarpenter.cloud.catalog import INSTANCE_CPU
from pykarpenter.kube.contract import Selection
from pykarpenter.providers.kwok.kubelet import KubeletOptions
from pykarpenter.runtime.settings import Settings
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.cluster import ClusterOptions, EmbeddedCluster
from pykarpenter.sim.faults.actions import CLASS, deployment_manifest, pool_manifest
from pykarpenter.sim.process import OperatorProcess

PODS = 10_000
NODES = 1_000
WORKLOADS = 10
# Ten pods of 750m fill the 7.9 cores that a machine of 8 offers.
POD_CPU = "750m"
PATIENCE_S = 600.0


async def _story() -> tuple[int, float]:
    """(nodes at the end, virtual seconds until every pod ran)."""
    clock = running_clock()
    kubelet = KubeletOptions(nodes=Selection(), lease_interval_s=None)
    async with EmbeddedCluster(clock, ClusterOptions(scheduler_events=False, kubelet=kubelet)) as cluster:
        eight = [{"key": INSTANCE_CPU, "operator": "In", "values": ["8"]}]
        await cluster.install([CLASS, pool_manifest("general", requirements=eight)])
        process = OperatorProcess(cluster, Settings(disable_leader_election=True))
        process.start()
        await asyncio.sleep(5.0)
        started = clock.monotonic()
        for number in range(WORKLOADS):
            await cluster.install([deployment_manifest(f"app-{number}", PODS // WORKLOADS, POD_CPU, "1Gi")])
        while _running(cluster) < PODS:
            if clock.monotonic() - started > PATIENCE_S:
                raise RuntimeError(f"{_running(cluster)} of {PODS} pods run after {PATIENCE_S} s")
            await asyncio.sleep(1.0)
        took = clock.monotonic() - started
        nodes = len(cluster.views.of(kinds.NODE))
        await process.stop()
        if process.failures:
            raise process.failures[0]
        return nodes, took


def _running(cluster: EmbeddedCluster) -> int:
    return sum(pod.status.phase == "Running" for pod in cluster.views.of(kinds.POD).values())


def run() -> list[Row]:
    started = time.process_time()
    nodes, virtual = run_virtual(_story())
    took = time.process_time() - started
    return [
        Row(f"{PODS:,} pods on {NODES:,} machines", took, "s", 120.0, note=f"{virtual:.0f} s of virtual time"),
        Row("machines bought for them", float(nodes), "nodes", NODES * 1.05, cpu_bound=False),
    ]
