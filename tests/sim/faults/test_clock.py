"""F40: a process whose clock is ten minutes off expires nothing early and gives up nothing early."""

from __future__ import annotations

import asyncio

import pytest

from pykarpenter.api import kinds
from pykarpenter.api.timestamps import parse_timestamp
from pykarpenter.kube.contract import Selection, list_all
from pykarpenter.providers.kwok.kubelet import KubeletOptions
from pykarpenter.runtime.clock import LoopClock
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.cluster import ClusterOptions, EmbeddedCluster
from pykarpenter.sim.faults.actions import CLASS, deployment_manifest, pool_manifest
from pykarpenter.sim.process import OperatorProcess

LIFE_S = 1200.0


@pytest.mark.parametrize("when", ["in the middle", "before the start"])
def test_f40_a_machine_lives_as_long_as_it_may_by_the_servers_clock(when: str) -> None:
    """Twenty minutes are twenty minutes, also for a process that believes it is ten minutes later."""

    async def main() -> None:
        kubelet = KubeletOptions(nodes=Selection(), lease_interval_s=None)
        async with EmbeddedCluster(running_clock(), ClusterOptions(kubelet=kubelet, scheduler_events=False)) as cluster:
            clock = LoopClock(cluster.clock.now(), asyncio.get_running_loop())
            process = OperatorProcess(cluster, clock=clock)
            if when == "before the start":
                clock.skew_s = 600.0
            process.start()
            pool = pool_manifest("general")
            pool["spec"]["template"]["spec"]["expireAfter"] = "20m"
            await cluster.install([CLASS, pool, deployment_manifest("web", 1, "1", "1Gi")])
            await asyncio.sleep(120)
            (claim,) = await list_all(cluster.api, kinds.NODE_CLAIM)
            clock.skew_s = 600.0
            born = parse_timestamp(claim.metadata.creation_timestamp or "")
            await asyncio.sleep(born + LIFE_S - 5 - cluster.clock.now())
            assert not (await cluster.api.get(kinds.NODE_CLAIM, claim.name)).is_deleting
            await asyncio.sleep(15)
            left = {item.name: item for item in await list_all(cluster.api, kinds.NODE_CLAIM)}
            assert claim.name not in left or left[claim.name].is_deleting
            await process.stop()
            assert process.failures == []

    run_virtual(main())
