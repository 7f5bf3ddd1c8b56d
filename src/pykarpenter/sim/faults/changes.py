"""Faults that come with changes: a bad image, definitions that vanish or grow, windows, stuck volumes, bad queues."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pykarpenter.api import crds, kinds, labels
from pykarpenter.api.meta import condition_status
from pykarpenter.kube.contract import Json
from pykarpenter.kube.errors import ApiError
from pykarpenter.sim.api import Request
from pykarpenter.sim.views import whole

if TYPE_CHECKING:
    from pykarpenter.sim.faults.world import World

_FUTURE = "fieldOfTheFuture"


async def bad_image(world: World, for_s: int) -> None:
    """F27: the class moves to an image whose machines never join; later it moves on to a good one."""
    faults = world.cluster.cloud.faults
    faults.broken_images["sim-broken"] = None
    await _set_image(world, "sim-broken")
    await asyncio.sleep(for_s)
    await _set_image(world, "sim-mended")
    faults.broken_images.pop("sim-broken", None)


async def _set_image(world: World, image: str) -> None:
    with suppress(ApiError):
        await world.user.patch(kinds.SIM_NODE_CLASS, "default", {"spec": {"image": image}})


async def garble_queue(world: World, how: str, for_s: int) -> None:
    """F30: half of the spot machines are announced to go by a queue that repeats, delays, reorders or is gone."""
    cloud = world.cluster.cloud
    cloud.faults.queue = how
    spot = [i for i in cloud.live() if i.offering.capacity_type == labels.SPOT]
    for instance in spot[: (len(spot) + 1) // 2]:
        cloud.interrupt(instance.id)
    await asyncio.sleep(for_s)
    cloud.faults.queue = ""


async def unserve(world: World, plural: str, for_s: int) -> None:
    """F33: the API server knows nothing of a kind any more; whoever has noticed buys and removes nothing."""

    async def look(request: Request) -> None:
        operator = world.sender(request).operator
        disruptive = request.kind is kinds.NODE_CLAIM and request.verb in ("create", "delete")
        if disruptive and operator is not None and operator.watches.unserved():
            world.broken("F33", f"{request.verb} NodeClaim {request.name} while {plural} are not served")

    world.api_faults.unserved[plural] = None
    world.api_faults.before_writes.append(look)
    await asyncio.sleep(for_s)
    world.api_faults.forget(look)
    world.api_faults.unserved.pop(plural, None)


async def newer_fields(world: World, for_s: int) -> None:
    """F33: the cluster's definitions are newer than the program, and objects carry fields that it does not know."""
    for plural in ("nodepools", "nodeclaims"):
        (body,) = (m for m in crds.crds() if m["spec"]["names"]["plural"] == plural)
        schema = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["status"]["x-kubernetes-preserve-unknown-fields"] = True
        with suppress(ApiError):
            await world.user.patch(kinds.CRD, body["metadata"]["name"], {"spec": body["spec"]})
    marked: list[tuple[kinds.Kind[Any], str]] = []
    written: tuple[kinds.Kind[Any], ...] = (kinds.NODE_POOL, kinds.NODE_CLAIM)
    for kind in written:
        for item in world.all(kind):
            with suppress(ApiError):
                await world.user.patch(kind, item.name, {"status": {_FUTURE: "kept"}}, subresource="status")
                marked.append((kind, item.uid))
                world.mark("F33")
    await asyncio.sleep(for_s)
    for kind in written:
        for found in world.all(whole(kind)):
            if (kind, found.uid) in marked and found.status.get(_FUTURE) != "kept":
                world.broken("F33", f"{kind.kind} {found.name} lost a field that the program does not know")


async def shut_window(world: World, pool: str, after_s: int, lasts_s: int) -> None:
    """F41: machines are out of date, and a window in which none may go opens and closes meanwhile (UTC)."""
    now = world.cluster.clock.now()
    # On a minute's edge, so that the first second of the window counts.
    starts = (int(now + after_s) // 60 + 1) * 60
    at = datetime.fromtimestamp(starts, UTC)
    schedule = f"{at.minute} {at.hour} {at.day} {at.month} *"
    budgets: list[Json] = [
        {"nodes": "0", "schedule": schedule, "duration": f"{lasts_s // 60}m"},
        {"nodes": "1"},
    ]
    change = {"metadata": {"labels": {"example.com/window": str(starts)}}}
    with suppress(ApiError):
        body = {"spec": {"disruption": {"budgets": budgets}, "template": change}}
        await world.user.patch(kinds.NODE_POOL, pool, body)
    await asyncio.sleep(starts - now + 1.0)
    if any(condition_status(c.status.conditions, "Drifted") == "True" for c in world.all(kinds.NODE_CLAIM)):
        world.mark("F41")
    await asyncio.sleep(lasts_s + 60.0)
    with suppress(ApiError):
        await world.user.patch(kinds.NODE_POOL, pool, {"spec": {"disruption": {"budgets": [{"nodes": "10%"}]}}})


_STORAGE: Json = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "disk"},
    "provisioner": "disk.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def _database(replicas: int) -> Json:
    selector = {"matchLabels": {"app": "database"}}
    mounts = [{"name": "data", "mountPath": "/data"}]
    container = {"name": "main", "image": "database", "resources": {"requests": {"cpu": "1"}}, "volumeMounts": mounts}
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "disk",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    template = {"metadata": {"labels": {"app": "database"}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "database"},
        "spec": {
            "replicas": replicas,
            "serviceName": "database",
            "selector": selector,
            "template": template,
            "volumeClaimTemplates": [claim],
        },
    }


async def stick_volumes(world: World, replicas: int, for_s: int) -> None:
    """F43: the node of a database goes, its pod leaves, and the volume stays attached."""
    attacher = world.cluster.workloads.attacher
    with suppress(ApiError):
        await world.install([_STORAGE])
    with suppress(ApiError):
        await world.install([_database(replicas)])
    await asyncio.sleep(180.0)
    attacher.is_stuck = True
    refused = attacher.refused
    attached = {item.spec.node_name for item in world.all(kinds.VOLUME_ATTACHMENT)}
    nodes = {n.spec.provider_id for n in world.all(kinds.NODE) if n.name in attached}
    for claim in world.all(kinds.NODE_CLAIM):
        if claim.status.provider_id in nodes and not claim.is_deleting:
            with suppress(ApiError):
                await world.user.delete(kinds.NODE_CLAIM, claim.name)
            break
    await asyncio.sleep(for_s)
    if attacher.refused > refused:
        world.mark("F43")
    attacher.is_stuck = False
