"""How the steps of a story are carried out in a world."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pykarpenter.api import kinds, labels
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.kube.contract import Json
from pykarpenter.kube.errors import ApiError
from pykarpenter.providers.kwok.kubelet_status import STAGE_LABEL, UNHEALTHY_STAGE
from pykarpenter.sim.api import Request
from pykarpenter.sim.cloud.cloud import foreign_instance
from pykarpenter.sim.cloud.instances import TAG_CLAIM, TAG_CLUSTER
from pykarpenter.sim.conditions import with_conditions
from pykarpenter.sim.faults import changes, processes, third_parties

if TYPE_CHECKING:
    from pykarpenter.sim.faults.world import World

CLASS: Json = {
    "apiVersion": "pykarpenter.sh/v1alpha1",
    "kind": "SimNodeClass",
    "metadata": {"name": "default"},
    "spec": {},
}


def pool_manifest(name: str, limit_cpu: int = 0, requirements: list[Json] | None = None) -> Json:
    """A NodePool of the simulated cloud; nodes are replaced only by people, until disruption is part of the story."""
    spec: Json = {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "pykarpenter.sh", "kind": "SimNodeClass", "name": "default"},
                "requirements": requirements or [{"key": labels.ARCH, "operator": "In", "values": ["amd64"]}],
            }
        },
    }
    if limit_cpu:
        spec["limits"] = {"cpu": str(limit_cpu)}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


async def pool(world: World, name: str, limit: int) -> None:
    await world.install([CLASS, pool_manifest(name, limit)])


async def broken_pool(world: World, name: str) -> None:
    """The first choice of every pod, with a class that does not exist (L6)."""
    body = pool_manifest(name)
    body["spec"]["weight"] = 100
    body["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "nowhere"
    await world.install([body])


async def hopeless_pod(world: World, name: str) -> None:
    """More than any machine has (L6)."""
    container = {"name": "main", "image": name, "resources": {"requests": {"cpu": "5000"}}}
    spec = {"containers": [container]}
    await world.install([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}])


def deployment_manifest(name: str, replicas: int, cpu: str, memory: str, *, spread: bool = False) -> Json:
    selector = {"matchLabels": {"app": name}}
    requests = {"cpu": cpu, "memory": memory}
    spec: Json = {"containers": [{"name": "main", "image": name, "resources": {"requests": requests}}]}
    if spread:
        constraint = {"maxSkew": 1, "topologyKey": labels.ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [{**constraint, "labelSelector": selector}]
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }


async def deploy(
    world: World, name: str, replicas: int, cpu: str, memory: str, *, spread: bool = False, guarded: bool = False
) -> None:
    objects = [deployment_manifest(name, replicas, cpu, memory, spread=spread)]
    if guarded:
        budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": name}}}
        objects.append(
            {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": budget}
        )
    await world.install(objects)


async def job(world: World, name: str, pods: int, runs_for: int) -> None:
    container = {"name": "main", "image": name, "resources": {"requests": {"cpu": "1", "memory": "512Mi"}}}
    template = {
        "metadata": {"annotations": {f"{labels.OWN_GROUP}/completes-after": f"{runs_for}s"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    spec = {
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": 1000,
        "ttlSecondsAfterFinished": 60,
        "template": template,
    }
    await world.install([{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}])


async def scale(world: World, name: str, to: int) -> None:
    with suppress(ApiError):
        await world.user.patch(kinds.DEPLOYMENT, name, {"spec": {"replicas": to}}, "default")


async def roll_out(world: World, pool: str, generation: str) -> None:
    """The pool's template changes: its machines are out of date."""
    body = {"spec": {"template": {"metadata": {"labels": {"example.com/generation": generation}}}}}
    with suppress(ApiError):
        await world.user.patch(kinds.NODE_POOL, pool, body)


async def delete_pod(world: World, which: int) -> None:
    pods = [p for p in world.all(kinds.POD) if p.spec.node_name and not p.is_deleting]
    if pods:
        victim = pods[which % len(pods)]
        with suppress(ApiError):
            await world.user.delete(kinds.POD, victim.name, victim.namespace)


async def delete_claim(world: World, which: int) -> None:
    claims = [c for c in world.all(kinds.NODE_CLAIM) if not c.is_deleting]
    if claims:
        with suppress(ApiError):
            await world.user.delete(kinds.NODE_CLAIM, claims[which % len(claims)].name)


async def lose_machine(world: World, which: int) -> None:
    live = [i for i in world.cluster.cloud.live() if i.token]
    if live:
        world.cluster.cloud.lose(live[which % len(live)].id)


async def lose_deleting(world: World, which: int) -> None:
    """F18: the machine disappears while its node is on its way out."""
    await delete_claim(world, which)
    await asyncio.sleep(2.0)
    going = {c.uid for c in world.all(kinds.NODE_CLAIM) if c.is_deleting}
    for instance in world.cluster.cloud.live():
        if instance.token in going:
            world.mark("F18")
            world.cluster.cloud.lose(instance.id)
            return


async def crash_after_launch(world: World) -> None:
    """F2: the launch happened, what came of it was never written down."""

    def is_launch_result(request: Request) -> bool:
        status = request.body.get("status", {}) if isinstance(request.body, dict) else {}
        return request.kind.plural == "nodeclaims" and request.verb == "patch" and bool(status.get("providerID"))

    world.api_faults.crash_when("F2", is_launch_result, lambda request: world.sender(request).crash())


async def crash_at_write(world: World, nth: int) -> None:
    """F21: the process dies right before one of its next writes."""
    left = nth

    def is_nth_write(request: Request) -> bool:
        nonlocal left
        if request.verb in ("create", "patch", "delete", "evict") and request.kind.plural not in ("leases", "events"):
            left -= 1
        return left <= 0

    world.api_faults.crash_when("F21", is_nth_write, lambda request: world.sender(request).crash())


async def compact(world: World, watches: int) -> None:
    """F16: watches break, an object goes, and history is forgotten before they resume."""
    world.api_faults.broken_watches = watches
    await delete_pod(world, 0)
    await asyncio.sleep(0.2)
    world.cluster.store.compact()


async def run_short(world: World, zone: str, family: str) -> None:
    market = world.cluster.cloud.market
    market.run_short(market.keys(zone=zone, family=family))
    market.run_short(market.keys(capacity_type=labels.SPOT, family=family))


async def deny(world: World, calls: str, for_s: int) -> None:
    denied = world.cluster.cloud.faults.denied
    denied[calls] = None
    await asyncio.sleep(for_s)
    denied.pop(calls, None)


async def interrupt(world: World, share: float) -> None:
    spot = [i for i in world.cluster.cloud.live() if i.offering.capacity_type == labels.SPOT]
    for instance in spot[: int(len(spot) * share + 0.5)]:
        world.mark("F29")
        world.cluster.cloud.interrupt(instance.id)


async def foreign(world: World, *, similar: bool) -> None:
    """F31: a machine of somebody else, perhaps with a tag that looks like ours."""
    item = world.cluster.cloud.market.catalog.types[0]
    tags = {TAG_CLUSTER: "embedded", TAG_CLAIM: "someone-else"} if similar else {TAG_CLUSTER: "other"}
    world.cluster.cloud.add_foreign(foreign_instance(item, item.offerings[0], tags, world.cluster.clock.now()))


async def lag_pods(world: World, seconds: int, for_s: int) -> None:
    world.api_faults.lag_s["pods"] = float(seconds)
    await asyncio.sleep(for_s)
    world.api_faults.lag_s.pop("pods", None)


async def disorder(world: World, times: int, lag_s: int) -> None:
    world.api_faults.duplicates = times
    world.api_faults.lag_s["nodes"] = float(lag_s)
    await asyncio.sleep(120)
    world.api_faults.lag_s.pop("nodes", None)


async def outage(world: World, for_s: int, errors: int) -> None:
    world.api_faults.server_errors = errors
    world.api_faults.throttles = errors
    world.api_faults.outage_until = asyncio.get_running_loop().time() + for_s


async def burst(world: World, pods: int, for_s: int) -> None:
    """F10: far more pods than the pool's limit allows; they leave again."""
    world.mark("F10")
    await world.install([deployment_manifest("burst", pods, "2", "1Gi")])
    await asyncio.sleep(for_s)
    with suppress(ApiError):
        await world.user.delete(kinds.DEPLOYMENT, "burst", "default")


async def protect(world: World, share: float, for_s: int) -> None:
    """F12: pods become untouchable, some at once and some while the program thinks twice about their node."""
    chosen = [p for p in world.all(kinds.POD) if p.spec.node_name and not p.is_deleting]
    chosen = chosen[: int(len(chosen) * share + 0.5)]
    for pod in chosen:
        await _annotate(world, pod, "true")
    for _ in range(for_s):
        await asyncio.sleep(1.0)
        in_doubt = world.leader().nodes_in_doubt()
        known = {pod.uid for pod in chosen}
        for pod in world.all(kinds.POD):
            if pod.spec.node_name in in_doubt and pod.uid not in known and not pod.is_deleting:
                world.mark("F12")
                await _annotate(world, pod, "true")
                chosen.append(pod)
    for pod in chosen:
        await _annotate(world, pod, None)


async def _annotate(world: World, pod: Any, value: str | None) -> None:
    patch = {"metadata": {"uid": pod.uid, "annotations": {labels.DO_NOT_DISRUPT: value}}}
    with suppress(ApiError):
        await world.user.patch(kinds.POD, pod.name, patch, pod.namespace)


async def unready(world: World, share: float, for_s: int, *, whole_zone: bool = False) -> None:
    """F28: kubelets of some nodes, or of a whole zone, report that they are not ready; later they recover."""
    nodes = world.all(kinds.NODE)
    chosen = nodes[: max(1, int(len(nodes) * share + 0.5))]
    if whole_zone and nodes:
        zone = nodes[0].metadata.labels.get(labels.ZONE)
        chosen = [node for node in nodes if node.metadata.labels.get(labels.ZONE) == zone]
    for node in chosen:
        label = {"metadata": {"labels": {STAGE_LABEL: UNHEALTHY_STAGE}}}
        condition = {
            "type": "Ready",
            "status": "False",
            "reason": "KubeletNotReady",
            "lastTransitionTime": format_timestamp(world.cluster.clock.now()),
        }
        status = {"status": {"conditions": with_conditions(node.status.conditions, condition)}}
        with suppress(ApiError):
            await world.user.patch(kinds.NODE, node.name, label)
            await world.user.patch(kinds.NODE, node.name, status, subresource="status")
            world.mark("F28")
    await asyncio.sleep(for_s)
    for node in chosen:
        with suppress(ApiError):
            await world.user.patch(kinds.NODE, node.name, {"metadata": {"labels": {STAGE_LABEL: None}}})


async def replace_pool(world: World, name: str, after_s: int) -> None:
    """F36: somebody deletes the NodePool and creates it again."""
    owned = [claim for claim in world.all(kinds.NODE_CLAIM) if claim.pool_name == name]
    with suppress(ApiError):
        await world.user.delete(kinds.NODE_POOL, name)
    await asyncio.sleep(after_s)
    for _ in range(60):
        try:
            await world.install([pool_manifest(name)])
            if owned:
                world.mark("F36")
            return
        except ApiError:
            # The old one is still going.
            await asyncio.sleep(20.0)


async def skew_clock(world: World, by_s: int, for_s: int, *, slowly: bool = False) -> None:
    """F40: the process's wall clock jumps, or drifts away, and comes back."""
    world.mark("F40")
    steps = 10 if slowly else 1
    for step in range(1, steps + 1):
        world.process_clock.skew_s = by_s * step / steps
        await asyncio.sleep(for_s / steps)
    world.process_clock.skew_s = 0.0


async def block_by_budget(world: World, which: int, for_s: int) -> None:
    """F42: a budget that allows nothing stands in the way of a drain, until somebody takes it away."""
    body: Json = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "nothing-may-go"},
        "spec": {"maxUnavailable": 0, "selector": {}},
    }

    def look(request: Request, error: ApiError | None) -> None:
        if request.verb == "evict" and error is not None and error.code in (429, 500):
            world.mark("F42")

    with suppress(ApiError):
        await world.install([body])
    await asyncio.sleep(1.0)
    world.api_faults.after_calls.append(look)
    await delete_claim(world, which)
    await asyncio.sleep(for_s)
    world.api_faults.forget(look)
    with suppress(ApiError):
        await world.user.delete(kinds.PDB, "nothing-may-go", "default")


async def spoil_prices(world: World, how: str, for_s: int) -> None:
    """F44: the cloud tells no prices, or wrong ones."""
    market = world.cluster.cloud.market
    price = {"missing": None, "zero": 0.0, "huge": 1e9}[how]
    market.bad_data = tuple(
        replace(item, offerings=tuple(replace(o, price=price) for o in item.offerings)) for item in market.catalog.types
    )
    await _tell_bad_data(world, "F44", for_s)


async def empty_catalogue(world: World, for_s: int) -> None:
    """F45: the cloud lists no types at all."""
    world.cluster.cloud.market.bad_data = ()
    await _tell_bad_data(world, "F45", for_s)


async def _tell_bad_data(world: World, fault: str, for_s: int) -> None:
    """The fault has fired when somebody asked meanwhile."""
    market = world.cluster.cloud.market
    before = market.bad_answers
    await asyncio.sleep(for_s)
    if market.bad_answers > before:
        world.mark(fault)
    market.bad_data = None


def _cloud(field: str) -> Callable[..., Awaitable[None]]:
    async def arm(world: World, times: int) -> None:
        setattr(world.cluster.cloud.faults, field, times)

    return arm


def _until(field: str) -> Callable[..., Awaitable[None]]:
    async def arm(world: World, for_s: int) -> None:
        setattr(world.api_faults, field, asyncio.get_running_loop().time() + for_s)

    return arm


async def throttle_cloud(world: World, times: int, after_success: int = 0) -> None:
    """F5: calls are refused, and launches that did happen look as if they were."""
    world.cluster.cloud.faults.throttle = times
    world.cluster.cloud.faults.throttle_after_success = after_success


async def conflict(world: World, times: int) -> None:
    world.api_faults.conflicts = times


ACTIONS: dict[str, Callable[..., Awaitable[None]]] = {
    "pool": pool,
    "broken_pool": broken_pool,
    "hopeless_pod": hopeless_pod,
    "deploy": deploy,
    "job": job,
    "scale": scale,
    "roll_out": roll_out,
    "delete_pod": delete_pod,
    "delete_claim": delete_claim,
    "lose_machine": lose_machine,
    "lose_deleting": lose_deleting,
    "crash_after_launch": crash_after_launch,
    "crash_at_write": crash_at_write,
    "compact": compact,
    "run_short": run_short,
    "deny": deny,
    "interrupt": interrupt,
    "foreign": foreign,
    "lag_pods": lag_pods,
    "disorder": disorder,
    "outage": outage,
    "conflict": conflict,
    "burst": burst,
    "protect": protect,
    "unready": unready,
    "replace_pool": replace_pool,
    "skew_clock": skew_clock,
    "block_by_budget": block_by_budget,
    "spoil_prices": spoil_prices,
    "empty_catalogue": empty_catalogue,
    "taint_new_nodes": third_parties.taint_new_nodes,
    "bind_late": third_parties.bind_late,
    "flash_claim": third_parties.flash_claim,
    "distrust_nodes": third_parties.distrust_nodes,
    "grow_daemons": third_parties.grow_daemons,
    "poison": third_parties.poison,
    "double_identity": third_parties.double_identity,
    "reuse_name": third_parties.reuse_name,
    "pause": processes.pause_leader,
    "block_loop": processes.block_loop,
    "roll_program": processes.roll_program,
    "change_hashes": processes.change_hashes,
    "bad_image": changes.bad_image,
    "garble_queue": changes.garble_queue,
    "unserve": changes.unserve,
    "newer_fields": changes.newer_fields,
    "shut_window": changes.shut_window,
    "stick_volumes": changes.stick_volumes,
    "lose_launch_replies": _cloud("lose_launch_replies"),
    "ignore_deletes": _cloud("ignore_deletes"),
    "throttle_cloud": throttle_cloud,
    "shorten_lists": _cloud("short_lists"),
    "stale_lists": _cloud("stale_lists"),
    "fail_boots": _cloud("boot_failures"),
    "exhaust_subnets": _cloud("exhausted_subnets"),
    "stall_watches": _until("stalled_until"),
    "block_lease": _until("lease_blocked_until"),
    "break_webhook": _until("webhook_until"),
}

# What a counter of the API middleware or the cloud means in the fault catalogue.
MARKS: dict[str, str] = {
    "F2": "F2",
    "F21": "F21",
    "lose_launch_replies": "F3",
    "ignore_deletes": "F4",
    "throttle": "F5",
    "throttle_after_success": "F5",
    "short_lists": "F6",
    "stale_lists": "F7",
    "shortage": "F8",
    "boot_failures": "F9",
    "exhausted_subnets": "F46",
    "broken_images": "F27",
    "queue": "F30",
    "foreign_listed": "F31",
    "unserved": "F33",
    "lag:pods": "F13",
    "stall": "F15",
    "expired": "F16",
    "denied": "F17",
    "lease_blocked": "F19",
    "conflicts": "F22",
    "outage": "F23",
    "server_errors": "F23",
    "throttles": "F23",
    "duplicates": "F24",
    "webhook": "F32",
}


async def carry_out(world: World, action: str, args: dict[str, Any]) -> None:
    await ACTIONS[action](world, **args)
