"""Steps that stories of disruption share: a fleet to begin with, and what happens to it."""

from __future__ import annotations

import asyncio
from typing import Any

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodes import Node
from pykarpenter.api.timestamps import format_timestamp
from tests.controllers.world import World

ALL = [{"nodes": "100%"}]
SMALL = [
    {"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["c-4x-amd64-linux", "c-2x-amd64-linux"]},
    {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]},
]
FOUR = [
    {"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["c-4x-amd64-linux"]},
    {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]},
]
APART = [
    {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
]


def tainted(node: Node) -> bool:
    return any(taint.key == labels.DISRUPTED_TAINT for taint in node.spec.taints)


async def begin(world: World, requirements: Any = FOUR, **disruption: Any) -> None:
    await world.begin()
    await world.pool(requirements=requirements, disruption={"consolidateAfter": "0s", "budgets": ALL} | disruption)


async def nodes_left(world: World, count: int, timeout_s: float = 300.0) -> None:
    async def enough() -> bool:
        return len(await world.nodes()) == count

    await world.until(enough, timeout_s, what=f"{count} nodes")


async def one_node_each(world: World, count: int) -> list[Node]:
    """`count` pods on `count` machines; the rule that kept them apart is then lifted."""
    await world.deployment("web", count, cpu="1", topologySpreadConstraints=APART)
    await world.until_running("web", count)
    return await world.nodes()


async def half_full(world: World, count: int) -> list[Node]:
    """`count` machines with one small pod of `web` each: the large pods that needed them are gone."""
    await world.deployment("large", count, cpu="3")
    await world.until_running("large", count)
    await world.deployment("web", count, cpu="500m")
    await world.until_running("web", count)
    nodes = await world.nodes()
    assert len(nodes) == count
    assert len({pod.spec.node_name for pod in await world.pods("web")}) == count
    await world.scale("large", 0)
    return nodes


async def hold(world: World, seconds: float) -> None:
    await asyncio.sleep(seconds)


async def drift_all(world: World) -> None:
    patch = {"spec": {"template": {"metadata": {"labels": {"generation": "two"}}}}}
    await world.api.patch(kinds.NODE_POOL, "default", patch)


async def make_sick(world: World, node: str, condition: str, since: float) -> None:
    found = await world.api.get(kinds.NODE, node)
    fault = {
        "type": condition,
        "status": "True",
        "reason": "Injected",
        "message": "",
        "lastTransitionTime": format_timestamp(since),
    }
    conditions = [
        {
            "type": c.type,
            "status": c.status,
            "reason": c.reason,
            "message": c.message,
            "lastTransitionTime": c.last_transition_time,
        }
        for c in found.status.conditions
        if c.type != condition
    ]
    body = {"status": {"conditions": [*conditions, fault]}}
    await world.api.patch(kinds.NODE, node, body, subresource="status")
