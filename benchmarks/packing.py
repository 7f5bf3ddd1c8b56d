"""Scenarios S1 to S8: how fast pods are packed, and at what price.

Seconds are decisions on warm tables (catalogue and node rows known), class building included, with packing effort
`off`: the engine alone, without the search for cheaper fleets. Karpenter's figures are those recorded for v1.14.0 on
the same kind of machine.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks import inputs
from benchmarks.rows import Row
from pykarpenter.api import labels
from pykarpenter.api.meta import LabelSelector, ObjectMeta
from pykarpenter.api.nodes import Node, Taint
from pykarpenter.api.pods import (
    Affinity,
    Container,
    NodeAffinity,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    PreferredSchedulingTerm,
    ResourceRequirements,
    Toleration,
    WeightedPodAffinityTerm,
)
from pykarpenter.cloud.catalog import read_catalog
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.packing import PackingEngine, WhatIfBase, what_if
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView

SEED = 42
ALONE = PackingSettings(effort="off")
GIB = 2**30
HUGE = {"cpu": "10000000", "memory": "10000000Gi"}


@dataclass(frozen=True)
class Scenario:
    """One input and what it is held to."""

    name: str
    snapshot: Callable[[], ClusterSnapshot]
    settings: PackingSettings = field(default_factory=lambda: ALONE)
    target_s: float | None = None
    karpenter_s: float | None = None
    karpenter_price: float | None = None
    runs: int = 3


def run(wanted: str = "") -> list[Row]:
    """Measure the scenarios whose names start with `wanted`."""
    rows = [measure(scenario) for scenario in scenarios() if scenario.name.startswith(wanted)]
    if "what-if".startswith(wanted):
        rows.append(questions())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows.append(Row("peak memory", peak, "MiB", 1024, cpu_bound=False))
    return rows


def measure(scenario: Scenario) -> Row:
    snapshot = scenario.snapshot()
    engine = PackingEngine()
    plan = engine.pack(snapshot, scenario.settings)
    best = cpu = float("inf")
    for _ in range(scenario.runs):
        gc.collect()
        started, spent = time.perf_counter(), time.process_time()
        plan = engine.pack(snapshot, scenario.settings)
        best, cpu = min(best, time.perf_counter() - started), min(cpu, time.process_time() - spent)
    notes = [f"cpu {cpu * 1000:.1f} ms", f"{len(snapshot.pods) / best:,.0f} pods/s", f"{len(plan.claims)} nodes"]
    notes.append(f"{plan.price_per_hour:.2f} $/h")
    if snapshot.nodes:
        notes.append(f"{sum(len(e.pods) for e in plan.existing)} pods on existing nodes")
    if plan.unschedulable:
        notes.append(f"{len(plan.unschedulable)} left out")
    if scenario.karpenter_s is not None:
        notes.append(f"Karpenter {scenario.karpenter_s:g} s, {scenario.karpenter_price:g} $/h")
    target_ms = None if scenario.target_s is None else scenario.target_s * 1000
    return Row(scenario.name, best * 1000, "ms", target_ms, note="; ".join(notes))


def questions() -> Row:
    """1,000 single-node questions on 1,000 nodes, the base built once."""
    snapshot = fleet(1_000, 0, 5)
    started, spent = time.perf_counter(), time.process_time()
    base = WhatIfBase(snapshot, ALONE)
    for view in snapshot.nodes:
        what_if(base, {view.name}, view.pods)
    seconds, cpu = time.perf_counter() - started, time.process_time() - spent
    return Row("what-if 1000 questions", seconds * 1000, "ms", 5000, note=f"cpu {cpu * 1000:.1f} ms, base included")


def scenarios() -> list[Scenario]:
    linear, kwok = inputs.linear400(), inputs.kwok16()

    def recorded(name: str, types: tuple[InstanceType, ...], first: int | None = None) -> Callable[[], ClusterSnapshot]:
        return lambda: one_pool(inputs.recorded(name)[:first], types)

    ignore = PackingSettings(preference_policy="Ignore", effort="off")
    diverse = [(1000, 0.15, 2.00, 338.4), (5000, None, 10.7, 1764), (10000, None, 34.7, 3531), (20000, 4.0, 126, 7127)]
    first = [
        Scenario(f"S1 diverse {n}", recorded("diverse-100", linear, n), target_s=0.02, runs=20) for n in (1, 50, 100)
    ]
    second = [
        Scenario(f"S2 diverse {n}", recorded(f"diverse-{n}", linear), ALONE, target, seconds, price)
        for n, target, seconds, price in diverse
    ]
    return [
        *first,
        *second,
        Scenario("S3 preferences, Respect", preferences, ALONE, 2.0, 153, 3777),
        Scenario("S3 preferences, Ignore", preferences, ignore, 0.16, 1.6, 2525),
        Scenario("S4 basic 1000", recorded("basic-1000", kwok), ALONE, 0.076, 0.76, 51.95),
        Scenario("S4 plain 10000, kwok16", recorded("plain-10000", kwok), ALONE, 0.8, 42, 133.42),
        Scenario("S4 plain 10000, linear400", recorded("plain-10000", linear), ALONE, None, 4.7, 2834),
        Scenario("S4 host-spread 1000", lambda: host_spread(500, 500)),
        Scenario("S4 host-spread XL 2000", lambda: host_spread(1000, 1000)),
        Scenario("S4 interference 750", interference),
        Scenario("S5 wide 1000", recorded("wide-1000", kwok), ALONE, 0.091, 0.91, 53.40),
        Scenario("S6 deployments 10000", lambda: deployments(10_000), runs=2),
        Scenario("S6 deployments 50000", lambda: deployments(50_000), runs=1),
        Scenario("S6 deployments 100000", lambda: deployments(100_000), target_s=10.0, runs=1),
        Scenario("S7 2000 pods, 1000 nodes", lambda: fleet(1_000)),
        Scenario("S7 2000 pods, 5000 nodes", lambda: fleet(5_000), target_s=0.5),
        Scenario("S7 2000 pods, 10000 nodes", lambda: fleet(10_000), runs=2),
        Scenario("S7 1 pod, 5000 nodes", lambda: fleet(5_000, 1), target_s=0.02, runs=10),
        Scenario("S8 2065 hopeless of 2170", starvation, target_s=1.0),
    ]


def one_pool(pods: tuple[Pod, ...], types: tuple[InstanceType, ...]) -> ClusterSnapshot:
    return ClusterSnapshot(
        now=0.0, pods=pods, node_pools=(inputs.pool(limits=HUGE),), instance_types={"default": types}
    )


def preferences() -> ClusterSnapshot:
    """Upstream's preference shape: a zone wish that holds, a zonal one that cannot, a hostname one that can."""
    selector = LabelSelector(match_labels={"app": "nginx"})

    def apart(key: str, weight: int) -> WeightedPodAffinityTerm:
        term = PodAffinityTerm(topology_key=key, label_selector=selector)
        return WeightedPodAffinityTerm(weight=weight, pod_affinity_term=term)

    zone = NodeSelectorTerm(match_expressions=[inputs.requirement(labels.ZONE, "In", "test-zone-1")])
    spec = PodSpec(
        containers=[Container(name="c", resources=ResourceRequirements(requests={"cpu": "1", "memory": "4096Mi"}))],
        affinity=Affinity(
            node_affinity=NodeAffinity(preferred=[PreferredSchedulingTerm(weight=1, preference=zone)]),
            pod_anti_affinity=PodAffinity(preferred=[apart(labels.ZONE, 10), apart(labels.HOSTNAME, 1)]),
        ),
    )
    pods = tuple(_pod(f"pod-{i:05d}", spec, {"app": "nginx"}) for i in range(4000))
    return one_pool(pods, inputs.linear400())


def _pod(name: str, spec: PodSpec, own: dict[str, str]) -> Pod:
    meta = ObjectMeta(name=name, namespace="default", uid=name, labels=own)
    return Pod(metadata=meta, spec=spec, status=inputs.PENDING)


def host_spread(small: int, large: int) -> ClusterSnapshot:
    spread = [{"topologyKey": labels.HOSTNAME, "matchLabels": {"app": "small"}}]
    pods = [inputs.pod(f"s-{i:05d}", 900, 3100 * 2**20, {"app": "small"}, spread=spread) for i in range(small)]
    pods += [inputs.pod(f"l-{i:05d}", 3500, 28 * GIB, {"app": "large"}) for i in range(large)]
    return one_pool(tuple(pods), inputs.kwok16())


def interference() -> ClusterSnapshot:
    pods = []
    for name, count, cpu, memory in (("small", 250, 900, 3100 * 2**20), ("large", 500, 3500, 28 * GIB)):
        apart = {"topologyKey": labels.HOSTNAME, "matchLabels": {"app": name}}
        pods += [inputs.pod(f"{name}-{i:05d}", cpu, memory, {"app": name}, antiAffinity=apart) for i in range(count)]
    return one_pool(tuple(pods), inputs.kwok16())


def deployments(total: int) -> ClusterSnapshot:
    """200 deployments of Zipf sizes, three in ten spread over zones, five pools."""
    chance = random.Random(SEED)
    weights = [1 / (rank + 1) for rank in range(200)]
    pods: list[Pod] = []
    for index, weight in enumerate(weights):
        size = max(1, round(total * weight / sum(weights)))
        own = {"app": f"d{index}"}
        cpu, memory = chance.choice([100, 250, 500, 1000, 2000, 4000]), chance.choice([256, 512, 1024, 2048, 8192])
        spread = [{"topologyKey": labels.ZONE, "matchLabels": own}] if index % 10 < 3 else []
        for number in range(size):
            name = f"d{index}-{number:06d}"
            pods.append(inputs.pod(name, cpu, memory * 2**20, own, spread=spread))
    pods = pods[:total]
    pools = tuple(inputs.pool(f"pool-{i}", limits=HUGE) for i in range(5))
    types = inputs.catalog800()
    return ClusterSnapshot(
        now=0.0, pods=tuple(pods), node_pools=pools, instance_types={pool.name: types for pool in pools}
    )


def fleet(nodes: int, pods: int = 2000, pools: int = 20) -> ClusterSnapshot:
    """Nodes about 70 % full with plain and spread pods, and a batch of the same kinds."""
    chance = random.Random(SEED)
    types = inputs.catalog800()
    sizes = [(100, 256), (250, 512), (500, 1024), (1000, 2048)]
    specs = [inputs.pod("x", cpu, memory * 2**20, {}).spec for cpu, memory in sizes]
    views = []
    for index in range(nodes):
        name, zone = f"node-{index:05d}", f"zone-{index % 3 + 1}"
        running = tuple(
            Pod(
                metadata=ObjectMeta(
                    name=f"{name}-{i}",
                    namespace="default",
                    uid=f"{name}-{i}",
                    labels={"app": f"a{chance.randrange(40)}"},
                ),
                spec=chance.choice(specs),
                status=PodStatus(phase="Running"),
            )
            for i in range(11)
        )
        views.append(_view(name, zone, f"pool-{index % pools:02d}", running))
    batch = []
    for number in range(pods):
        app = {"app": f"a{number % 40}"}
        spread = [{"topologyKey": labels.ZONE, "matchLabels": app}] if number % 40 < 12 else []
        cpu, memory = sizes[number % 40 % 4]
        batch.append(inputs.pod(f"new-{number:05d}", cpu, memory * 2**20, app, spread=spread))
    listed = tuple(inputs.pool(f"pool-{i:02d}", limits=HUGE) for i in range(pools))
    return ClusterSnapshot(
        now=0.0,
        pods=tuple(batch),
        nodes=tuple(views),
        node_pools=listed,
        instance_types={pool.name: types for pool in listed},
    )


def _view(name: str, zone: str, pool: str, running: tuple[Pod, ...], taints: tuple[Taint, ...] = ()) -> NodeView:
    own = {
        labels.HOSTNAME: name,
        labels.ZONE: zone,
        labels.ARCH: "amd64",
        labels.OS: "linux",
        labels.CAPACITY_TYPE: labels.ON_DEMAND,
        labels.NODEPOOL: pool,
        labels.INSTANCE_TYPE: "m5i.2xlarge",
    }
    amounts = {"cpu": 8000, "memory": 16 * GIB, "pods": 110}
    node = Node(metadata=ObjectMeta(name=name, uid=name, labels=own))
    return NodeView(
        name=name, provider_id=name, node=node, labels=own, taints=taints, capacity=amounts, allocatable=amounts,
        pods=running, managed=True,
    )  # fmt: skip


def starvation() -> ClusterSnapshot:
    """GPU pods that no pool serves beside 105 light ones, on 1,060 nodes and 20 pools, as in Karpenter's issue 3152."""
    base = fleet(1_060, 0)
    types = tuple(
        t for t in read_catalog(str(inputs.DATA / "catalog-800.json.gz")).types if "nvidia.com/gpu" not in t.capacity
    )
    hopeless = []
    for number in range(2_065):
        requests: dict[str, str | int | float] = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": str(number % 8 + 1)}
        spec = PodSpec(
            containers=[Container(name="c", resources=ResourceRequirements(requests=requests))],
            tolerations=[Toleration(key="gpu", operator="Exists")],
        )
        hopeless.append(_pod(f"gpu-{number:05d}", spec, {"app": f"gpu{number % 30}"}))
    light = [inputs.pod(f"light-{i:04d}", 100, 128 * 2**20, {"app": "light"}) for i in range(105)]
    return ClusterSnapshot(
        now=0.0,
        pods=(*hopeless, *light),
        nodes=base.nodes,
        node_pools=base.node_pools,
        instance_types={pool.name: types for pool in base.node_pools},
    )


if __name__ == "__main__":
    for row in run(sys.argv[1] if len(sys.argv) > 1 else ""):
        print(f"{row.name:40} {row.value:10.1f} {row.unit:4} {row.target or '':>6}  {row.note}", flush=True)
