"""kube-controller-manager for the embedded cluster: workloads, budgets, node lifecycle, pod garbage, volumes."""

from __future__ import annotations

import asyncio

from pykarpenter.kube.contract import KubeApi
from pykarpenter.runtime.clock import Clock
from pykarpenter.sim.views import Views
from pykarpenter.sim.workloads.daemon_sets import DaemonSets
from pykarpenter.sim.workloads.deployments import Deployments
from pykarpenter.sim.workloads.disruption_budgets import DisruptionBudgets
from pykarpenter.sim.workloads.jobs import Jobs
from pykarpenter.sim.workloads.node_lifecycle import GRACE_S, NodeLifecycle
from pykarpenter.sim.workloads.owned_pods import OwnedPods
from pykarpenter.sim.workloads.part import Part, World
from pykarpenter.sim.workloads.pod_garbage import PodGarbage
from pykarpenter.sim.workloads.replica_sets import ReplicaSets
from pykarpenter.sim.workloads.stateful_sets import StatefulSets
from pykarpenter.sim.workloads.taint_eviction import TaintEviction
from pykarpenter.sim.workloads.volumes import VolumeAttacher, VolumeBinder


class Workloads:
    """Every controller on one set of views; made before the views run."""

    def __init__(self, api: KubeApi, views: Views, clock: Clock, *, node_grace_s: float = GRACE_S) -> None:
        world = World(api, views, clock)
        pods = OwnedPods(api, views)
        self.attacher = VolumeAttacher(world)
        self.parts: tuple[Part, ...] = (
            Deployments(world),
            ReplicaSets(world, pods),
            StatefulSets(world, pods),
            DaemonSets(world, pods),
            Jobs(world, pods),
            DisruptionBudgets(world),
            NodeLifecycle(world, node_grace_s),
            TaintEviction(world),
            PodGarbage(world),
            VolumeBinder(world),
            self.attacher,
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for part in self.parts:
                group.create_task(part.run(), name=f"sim:{part.name}")


__all__ = ["Workloads"]
