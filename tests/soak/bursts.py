"""F10: many more pods at once than the limits of their pools allow, in cpu, in nodes and in GPUs.

Every write of a NodeClaim is judged before the next one can happen: what a pool's claims and the cloud's machines come
to must never pass its limits. In the end nothing may be left over that an allowed type would still fit into.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.quantity import available
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.resources import Resources, add, subtract
from pykarpenter.kube.contract import Selection
from pykarpenter.providers.kwok.kubelet import KubeletOptions
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.cloud.instances import TAG_POOL
from pykarpenter.sim.cluster import ClusterOptions, EmbeddedCluster
from pykarpenter.sim.faults.actions import CLASS, deployment_manifest, pool_manifest
from pykarpenter.sim.process import OperatorProcess

GPU = "nvidia.com/gpu"
# How long plans, launches and starts may take, in the cluster's own time.
SETTLE_S = 900.0
_BEFORE_S = 120.0
_FAMILY = "karpenter.kwok.sh/instance-family"


@dataclass(frozen=True, slots=True)
class Share:
    """One pool, its limits, and the pods that only it takes: some at first, then all the rest at once."""

    name: str
    limits: dict[str, str]
    pods: int
    requests: dict[str, str]
    before: int
    families: tuple[str, ...] = ()


def shares(pods: int) -> tuple[Share, ...]:
    """`pods` in all. Each pool has room for about a third of its own; no limit is a multiple of a machine."""
    cpu, nodes = pods * 6 // 10, pods * 3 // 10
    gpus = pods - cpu - nodes
    return (
        Share("by-cpu", {"cpu": str(cpu // 3 + 1)}, cpu, {"cpu": "1", "memory": "1Gi"}, cpu // 10),
        Share(
            "by-nodes", {"nodes": str(max(2, nodes // 150))}, nodes, {"cpu": "3", "memory": "2Gi"}, nodes // 30, ("c6",)
        ),
        Share("by-gpu", {GPU: str(gpus // 3 + 1)}, gpus, {"cpu": "1", GPU: "1"}, gpus // 10, ("g4", "g6", "p4")),
    )


@dataclass(slots=True)
class BurstOutcome:
    """`used` and `limits` by pool; `problems` is empty when all went well."""

    used: dict[str, Resources] = field(default_factory=dict)
    limits: dict[str, Resources] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    looks: int = 0
    problems: list[str] = field(default_factory=list)


class LimitWatch:
    """Follows NodeClaims by a watch of the store, which tells of each write before the next one."""

    def __init__(self, cluster: EmbeddedCluster, limits: dict[str, Resources], outcome: BurstOutcome) -> None:
        self._cluster = cluster
        self._limits = limits
        self._outcome = outcome
        self._claims: dict[str, NodeClaim] = {}
        store = cluster.store
        self._watch = store.watch(store.resource(kinds.NODE_CLAIM.group, kinds.NODE_CLAIM.plural))
        self._watch.on_ready = self._changed

    def used(self, pool: str) -> Resources:
        """What the pool's claims come to; each counts as a node from its creation on."""
        mine = [c for c in self._claims.values() if c.pool_name == pool and not c.is_deleting]
        return {**add(*(available(c.status.capacity) for c in mine)), "nodes": len(mine)}

    def _changed(self) -> None:
        for event in self._watch.poll():
            if event.entry is None:
                continue
            claim = event.entry.decode(NodeClaim)
            if event.type == "DELETED":
                self._claims.pop(claim.name, None)
            else:
                self._claims[claim.name] = claim
            self._judge(claim.pool_name)

    def _judge(self, pool: str) -> None:
        self._outcome.looks += 1
        machines = [i for i in self._cluster.cloud.live() if i.tags.get(TAG_POOL) == pool]
        bought = {**add(*(i.item.capacity for i in machines)), "nodes": len(machines)}
        for what, used in (("claims", self.used(pool)), ("machines", bought)):
            for name, limit in self._limits[pool].items():
                if used.get(name, 0) > limit:
                    self._outcome.problems.append(f"S1: {what} of {pool} use {used[name]} of {name}, limit {limit}")


def run_burst(pods: int, *, seed: int = 1, unreliable: int = 0) -> BurstOutcome:
    """One burst in a fresh world; `unreliable` launches are throttled, and as many answers to launches are lost."""
    return run_virtual(_run(shares(pods), seed, unreliable))


async def _run(parts: tuple[Share, ...], seed: int, unreliable: int) -> BurstOutcome:
    kubelet = KubeletOptions(nodes=Selection(), lease_interval_s=None)
    options = ClusterOptions(seed=seed, kubelet=kubelet, scheduler_events=False)
    outcome = BurstOutcome(limits={part.name: available(part.limits) for part in parts})
    async with EmbeddedCluster(running_clock(), options) as cluster:
        watch = LimitWatch(cluster, outcome.limits, outcome)
        process = OperatorProcess(cluster)
        process.start()
        await cluster.install([CLASS, *(pool(part) for part in parts)])
        await cluster.install([workload(part, "before", part.before) for part in parts])
        await asyncio.sleep(_BEFORE_S)
        cluster.cloud.faults.throttle = cluster.cloud.faults.lose_launch_replies = unreliable
        await cluster.install([workload(part, "burst", part.pods - part.before) for part in parts])
        await asyncio.sleep(SETTLE_S)
        await process.stop()
        outcome.problems.extend(f"the program died: {error}" for error in process.failures)
        for part in parts:
            outcome.used[part.name] = watch.used(part.name)
            _judge_end(cluster, part, outcome)
    return outcome


def _judge_end(cluster: EmbeddedCluster, part: Share, outcome: BurstOutcome) -> None:
    table = cluster.store.table(kinds.POD.group, kinds.POD.plural)
    pods = [entry.decode(kinds.POD.type) for entry in table.entries.values()]
    mine = [pod for pod in pods if pod.spec.node_selector.get(labels.NODEPOOL) == part.name]
    outcome.running[part.name] = sum(pod.status.phase == "Running" for pod in mine)
    if len(mine) != part.pods or outcome.running[part.name] >= part.pods:
        outcome.problems.append(f"{part.name}: {outcome.running[part.name]} of {len(mine)} pods run: no burst")
    for name in still_fitting(part, outcome.used[part.name], cluster.cloud.market.catalog.types):
        outcome.problems.append(f"{part.name}: {name} still fits: {outcome.used[part.name]}")


def still_fitting(part: Share, used: Resources, types: Iterable[InstanceType]) -> list[str]:
    """Types that the pool allows, that would take one of its pods, and that what is left would pay for."""
    limits, wanted = available(part.limits), available(part.requests)
    left = subtract(limits, used)
    return [item.name for item in types if _allows(part, item) and _fits(item, left, limits, wanted)]


def _allows(part: Share, item: InstanceType) -> bool:
    family = item.requirements.get_or_exists(_FAMILY).values
    return (not part.families or bool(family & set(part.families))) and "amd64" in item.requirements.get_or_exists(
        labels.ARCH
    ).values


def _fits(item: InstanceType, left: Resources, limits: Resources, wanted: Resources) -> bool:
    room = item.allocatable()
    takes_a_pod = all(room.get(name, 0) >= amount for name, amount in wanted.items())
    capacity = {**item.capacity, "nodes": 1}
    return takes_a_pod and all(capacity.get(name, 0) <= left.get(name, 0) for name in limits)


def pool(part: Share) -> dict[str, Any]:
    requirements = [{"key": labels.ARCH, "operator": "In", "values": ["amd64"]}]
    if part.families:
        requirements.append({"key": _FAMILY, "operator": "In", "values": list(part.families)})
    manifest = pool_manifest(part.name, requirements=requirements)
    manifest["spec"] |= {"limits": part.limits, "disruption": {"consolidateAfter": "Never"}}
    return manifest


def workload(part: Share, name: str, replicas: int) -> dict[str, Any]:
    manifest = deployment_manifest(f"{part.name}-{name}", replicas, "1", "1Gi")
    spec = manifest["spec"]["template"]["spec"]
    resources: dict[str, Any] = {"requests": part.requests}
    if GPU in part.requests:
        resources["limits"] = {GPU: part.requests[GPU]}
    spec["containers"][0]["resources"] = resources
    spec["nodeSelector"] = {labels.NODEPOOL: part.name}
    return manifest
