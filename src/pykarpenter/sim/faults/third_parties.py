"""Faults that others bring: somebody's taints and pods on new nodes, a scheduler that disagrees, doubled identities.

Each takes back what it did when its time is over, so that the world can settle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.kube.contract import Json
from pykarpenter.kube.errors import ApiError
from pykarpenter.sim.api import Request
from pykarpenter.sim.cloud.instances import Instance

if TYPE_CHECKING:
    from pykarpenter.sim.faults.world import World

# How long a drained Node may take to be gone (seconds).
_NAME_FREE_S = 300
_TAINT = {"key": "policy.example.com/quarantine", "effect": "NoExecute"}


async def _on_new_nodes(world: World, act: Callable[[Instance], Coroutine[Any, Any, None]], for_s: float) -> None:
    """Do it to each node that registers, for a while."""
    async with asyncio.TaskGroup() as group:

        def registered(instance: Instance) -> None:
            group.create_task(act(instance), name=f"third-party:{instance.node_name}")

        listeners = world.cluster.cloud.on_registered
        listeners.append(registered)
        try:
            await asyncio.sleep(for_s)
        finally:
            listeners.remove(registered)


async def taint_new_nodes(world: World, for_s: int) -> None:
    """F1: a third party taints each new node so that nothing can run there; later it gives them free."""
    tainted: list[str] = []

    async def act(instance: Instance) -> None:
        with suppress(ApiError):
            node = await world.user.get(kinds.NODE, instance.node_name)
            taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.spec.taints]
            await world.user.patch(kinds.NODE, node.name, {"spec": {"taints": [*taints, _TAINT]}})
            tainted.append(node.name)
            world.mark("F1")

    await _on_new_nodes(world, act, for_s)
    for name in tainted:
        with suppress(ApiError):
            node = await world.user.get(kinds.NODE, name)
            kept = [t for t in node.spec.taints if t.key != _TAINT["key"]]
            body = [{"key": t.key, "value": t.value, "effect": t.effect} for t in kept]
            await world.user.patch(kinds.NODE, name, {"spec": {"taints": body}})


def _bound_pod(name: str, node: str, cpu: str, **metadata: object) -> Json:
    container = {"name": "main", "image": "agent", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"nodeName": node, "containers": [container], "tolerations": [{"operator": "Exists"}]},
    }


async def grow_daemons(world: World, for_s: int, cpu: str) -> None:
    """F26: each new node runs an agent that nobody announced, so less is left than was planned."""

    async def act(instance: Instance) -> None:
        with suppress(ApiError):
            node = await world.user.get(kinds.NODE, instance.node_name)
            owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid, "controller": True}
            await world.install([_bound_pod(f"agent-{node.name}", node.name, cpu, ownerReferences=[owner])])
            world.mark("F26")

    await _on_new_nodes(world, act, for_s)


async def distrust_nodes(world: World, for_s: int) -> None:
    """F25: the scheduler refuses every node that comes from now on, for reasons of its own."""
    known = {node.name for node in world.all(kinds.NODE)}

    def accepts(pod: Pod, node: Node) -> bool:
        if node.name in known:
            return True
        world.mark("F25")
        return False

    engine = world.cluster.scheduler.engine
    engine.extra_filter = accepts
    await asyncio.sleep(for_s)
    engine.extra_filter = None
    engine.table.supply += 1
    world.cluster.scheduler.wake()


async def bind_late(world: World, for_s: int) -> None:
    """F11: right before the program taints a node that it found empty, a pod that must not be disturbed is bound."""
    bound: list[str] = []

    async def look(request: Request) -> None:
        taints = (request.body.get("spec") or {}).get("taints") if isinstance(request.body, dict) else None
        if request.kind is not kinds.NODE or not any(t["key"] == labels.DISRUPTED_TAINT for t in taints or []):
            return
        name = f"late-{len(bound)}"
        body = _bound_pod(name, request.name, "100m", annotations={labels.DO_NOT_DISRUPT: "true"})
        del body["spec"]["tolerations"]
        with suppress(ApiError):
            await world.install([body])
            bound.append(name)
            world.mark("F11")

    world.api_faults.before_writes.append(look)
    await asyncio.sleep(for_s)
    world.api_faults.forget(look)
    for name in bound:
        with suppress(ApiError):
            await world.user.delete(kinds.POD, name, "default")


async def double_identity(world: World, which: int, for_s: int) -> None:
    """F47: a second Node claims the provider ID of a machine that has one."""
    nodes = [n for n in world.all(kinds.NODE) if n.spec.provider_id]
    if not nodes:
        return
    original = nodes[which % len(nodes)]
    body: Json = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"zz-double-{original.name}", "labels": {labels.HOSTNAME: "double"}},
        "spec": {"providerID": original.spec.provider_id, "taints": [_TAINT]},
    }
    with suppress(ApiError):
        await world.install([body])
        world.mark("F47")
    await asyncio.sleep(for_s)
    with suppress(ApiError):
        await world.user.delete(kinds.NODE, body["metadata"]["name"])


async def reuse_name(world: World, which: int, for_s: int) -> None:
    """F47: as soon as a machine's Node is gone, a machine of somebody else joins under its name."""
    owned = {claim.status.provider_id: claim.name for claim in world.all(kinds.NODE_CLAIM) if not claim.is_deleting}
    nodes = [node for node in world.all(kinds.NODE) if node.spec.provider_id in owned]
    if not nodes:
        return
    old = nodes[which % len(nodes)]
    with suppress(ApiError):
        await world.user.delete(kinds.NODE_CLAIM, owned[old.spec.provider_id])
    body: Json = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": old.name, "labels": {labels.HOSTNAME: old.name}},
        "spec": {"providerID": f"other:///{old.name}", "taints": [_TAINT]},
    }
    for _ in range(_NAME_FREE_S):
        await asyncio.sleep(1.0)
        with suppress(ApiError):
            await world.install([body])
            world.mark("F47")
            break
    else:
        return
    await asyncio.sleep(for_s)
    with suppress(ApiError):
        await world.user.delete(kinds.NODE, old.name)


async def flash_claim(world: World, pool: str) -> None:
    """F14: while the program starts and reads the cluster, a claim comes and goes."""
    world.leader().crash()
    for _ in range(60):
        if world.process.is_restarted:
            break
        await asyncio.sleep(0.5)
    reference = {"group": "pykarpenter.sh", "kind": "SimNodeClass", "name": "default"}
    claim: Json = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "flash", "labels": {labels.NODEPOOL: pool}},
        "spec": {"nodeClassRef": reference, "requirements": []},
    }
    with suppress(ApiError):
        await world.install([claim])
        await asyncio.sleep(0.01)
        await world.user.delete(kinds.NODE_CLAIM, "flash")
        world.mark("F14")


async def poison(world: World, which: int, for_s: int) -> None:
    """F39: whatever the program asks about one claim fails in a way that nobody expected."""
    claims = world.all(kinds.NODE_CLAIM)
    if not claims:
        return
    victim = claims[which % len(claims)].name

    async def look(request: Request) -> None:
        if request.kind is kinds.NODE_CLAIM and request.name == victim:
            world.mark("F39")
            raise RuntimeError(f"poisoned object {victim}")

    world.api_faults.before_writes.append(look)
    await asyncio.sleep(for_s)
    world.api_faults.forget(look)
