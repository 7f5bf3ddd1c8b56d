"""Disruption at scale: one look at all candidates of a fleet, and the time to its first command.

The still fleet is full enough that nothing can go, so every candidate is simulated; the slack fleet has room, so the
first command comes early. Machines and pods are plain; the catalogue is KWOK's.
"""

from __future__ import annotations

import random
import resource
import time

from benchmarks.rows import Row
from pykarpenter.api import labels
from pykarpenter.api.meta import Condition, ObjectMeta, OwnerReference
from pykarpenter.api.nodepool import (
    Budget,
    Disruption,
    NodeClaim,
    NodeClaimSpec,
    NodeClaimStatus,
    NodeClaimTemplate,
    NodeClaimTemplateSpec,
    NodePool,
    NodePoolSpec,
    NodePoolStatus,
)
from pykarpenter.api.nodes import Node, NodeSpec, NodeStatus
from pykarpenter.api.pods import Container, NodeSelectorRequirement, Pod, PodSpec, PodStatus, ResourceRequirements
from pykarpenter.cloud.catalog import read_catalog
from pykarpenter.core.disruption.candidates import World
from pykarpenter.core.disruption.commands import Method
from pykarpenter.core.disruption.decide import decide, run_method
from pykarpenter.core.disruption.engine import PackingSimulations
from pykarpenter.core.disruption.settings import DisruptionSettings
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView

NOW = 1768392000.0
STAMP = "2026-01-14T10:00:00Z"
SHAPES = ((500, 1), (1000, 1), (1500, 2), (2000, 2))
TYPES = (("c-8x-amd64-linux", 8), ("c-16x-amd64-linux", 16), ("c-32x-amd64-linux", 32))


def snapshot(nodes: int, fill: float, seed: int = 1) -> tuple[ClusterSnapshot, PackingSettings, DisruptionSettings]:
    """A fleet whose machines are filled to that share of their cores."""
    rng = random.Random(seed)
    catalog = read_catalog("kwok")
    by_name = {item.name: item for item in catalog.types}
    views = [_view(index, rng, by_name, fill) for index in range(nodes)]
    on_demand = NodeSelectorRequirement(key=labels.CAPACITY_TYPE, operator="In", values=[labels.ON_DEMAND])
    pool = NodePool(
        metadata=ObjectMeta(name="default", uid="pool"),
        spec=NodePoolSpec(
            template=NodeClaimTemplate(spec=NodeClaimTemplateSpec(requirements=[on_demand])),
            disruption=Disruption(budgets=[Budget(nodes="100%")]),
        ),
        status=NodePoolStatus(conditions=[Condition(type="Ready", status="True")]),
    )
    frozen = ClusterSnapshot(
        now=NOW, revision=1, nodes=tuple(views), node_pools=(pool,), instance_types={"default": catalog.types}
    )
    packing = PackingSettings(label_rules=catalog.label_rules)
    return frozen, packing, DisruptionSettings(label_rules=catalog.label_rules)


def _view(index: int, rng: random.Random, by_name: dict, fill: float) -> NodeView:
    kind, cores = rng.choice(TYPES)
    name = f"node-{index:05d}"
    values = {
        labels.NODEPOOL: "default",
        labels.INSTANCE_TYPE: kind,
        labels.ZONE: rng.choice(("test-zone-a", "test-zone-b", "test-zone-c")),
        labels.CAPACITY_TYPE: labels.ON_DEMAND,
        labels.ARCH: "amd64",
        labels.OS: "linux",
        labels.HOSTNAME: name,
    }
    pods, left = [], int(cores * 1000 * fill)
    while left >= 500:
        milli, gi = rng.choice([shape for shape in SHAPES if shape[0] <= left])
        left -= milli
        pods.append(_pod(f"{name}-{len(pods):02d}", name, milli, gi))
    true = [
        Condition(type=kind_of, status="True", last_transition_time=STAMP)
        for kind_of in ("Launched", "Registered", "Initialized", "Consolidatable")
    ]
    claim = NodeClaim(
        metadata=ObjectMeta(name=f"claim-{index}", uid=f"claim-{index}", labels=values, creation_timestamp=STAMP),
        spec=NodeClaimSpec(),
        status=NodeClaimStatus(node_name=name, provider_id=f"kwok://{name}", conditions=true),
    )
    node = Node(
        metadata=ObjectMeta(name=name, uid=f"node-{index}", labels=values, creation_timestamp=STAMP),
        spec=NodeSpec(provider_id=f"kwok://{name}"),
        status=NodeStatus(conditions=[Condition(type="Ready", status="True", last_transition_time=STAMP)]),
    )
    item = by_name[kind]
    return NodeView(
        name=name,
        provider_id=f"kwok://{name}",
        node=node,
        claim=claim,
        labels=values,
        capacity=dict(item.capacity),
        allocatable=item.allocatable(),
        pods=tuple(pods),
        managed=True,
    )


def _pod(name: str, node: str, milli: int, gi: int) -> Pod:
    requests = {"cpu": f"{milli}m", "memory": f"{gi}Gi"}
    app = f"app-{milli}"
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=app, uid=f"rs-{app}", controller=True)
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            labels={"app": app},
            owner_references=[owner],
            creation_timestamp=STAMP,
        ),
        spec=PodSpec(
            node_name=node, containers=[Container(name="main", resources=ResourceRequirements(requests=requests))]
        ),
        status=PodStatus(phase="Running", start_time=STAMP),
    )


def all_candidates(nodes: int) -> tuple[float, int]:
    """Seconds for one single-node look at a fleet in which nothing can go, and how many candidates were simulated."""
    frozen, packing, settings = snapshot(nodes, fill=0.97)
    simulations = PackingSimulations(packing)
    started = time.perf_counter()
    run = run_method(World(frozen, settings), simulations(frozen), Method.SINGLE_NODE)
    return time.perf_counter() - started, run.considered


def first_command(nodes: int) -> float:
    """Seconds to the first command of a whole pass over a fleet with slack, from a cold start."""
    frozen, packing, settings = snapshot(nodes, fill=0.6)
    simulations = PackingSimulations(packing)
    started = time.perf_counter()
    plan = decide(World(frozen, settings), simulations(frozen))
    assert plan.commands
    return time.perf_counter() - started


def run() -> list[Row]:
    rows: list[Row] = []
    for nodes in (1000, 5000):
        target = 5.0 if nodes == 1000 else None
        rows.append(Row(f"first command, {nodes} nodes", first_command(nodes), "s", target, higher_is_better=False))
        seconds, considered = all_candidates(nodes)
        rows.append(Row(f"all candidates, {nodes} nodes", seconds, "s", None, higher_is_better=False))
        rows.append(
            Row(f"candidates a second, {nodes} nodes", considered / seconds, "1/s", None, higher_is_better=True)
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows.append(Row("peak memory, 5000 nodes", peak, "MiB", None, higher_is_better=False))
    return rows
