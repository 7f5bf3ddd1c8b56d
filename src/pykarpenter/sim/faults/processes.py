"""Faults of the program's own processes: frozen, blocked, two at a time, restarted with another idea of hashes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import condition_status
from pykarpenter.kube.errors import ApiError
from pykarpenter.runtime.virtual_loop import VirtualTimeLoop

if TYPE_CHECKING:
    from pykarpenter.sim.faults.world import World

# What a new process takes to read the cluster and stand by.
_READY_S = 5.0
# How long two processes live side by side before the first is told to go.
_OVERLAP_S = 20.0


def _thaw(identity: str) -> None:
    loop = asyncio.get_running_loop()
    if isinstance(loop, VirtualTimeLoop):
        loop.thaw(identity)


async def pause_leader(world: World, for_s: int) -> None:
    """F20: the leader stands still for longer than its lease lasts, another takes over, and then it wakes."""
    _stand_by(world)
    await asyncio.sleep(_READY_S)
    frozen = world.process.freeze()
    led = world.lease_holder() == frozen
    await asyncio.sleep(for_s)
    if led and world.lease_holder() == world.second().identity:
        world.mark("F20")
    _thaw(frozen)
    await asyncio.sleep(_OVERLAP_S)
    await world.second().stop()


async def block_loop(world: World, seconds: int) -> None:
    """F48: nothing of the process runs for a while although time goes on."""
    frozen = world.process.freeze()
    if world.lease_holder() == frozen:
        world.mark("F48")
    await asyncio.sleep(seconds)
    _thaw(frozen)


async def roll_program(world: World, for_s: int) -> None:
    """F34: a second version of the program runs beside the first, takes over when it is told to go, and goes back."""
    _stand_by(world)
    await asyncio.sleep(_OVERLAP_S)
    world.process.held_back = True
    await world.process.stop()
    await asyncio.sleep(for_s)
    if world.lease_holder() == world.second().identity:
        world.mark("F34")
    world.process.held_back = False
    await asyncio.sleep(_OVERLAP_S)
    await world.second().stop()


async def change_hashes(world: World, for_s: int) -> None:
    """F35: the program comes back and finds hashes of another algorithm on everything; nothing is out of date."""
    world.process.held_back = True
    world.process.crash()
    await asyncio.sleep(_READY_S)
    older = {labels.NODEPOOL_HASH: "1234567890", labels.NODEPOOL_HASH_VERSION: "v2"}
    sound: dict[str, int] = {}
    written: tuple[kinds.Kind[Any], ...] = (kinds.NODE_POOL, kinds.NODE_CLAIM)
    for kind in written:
        for item in world.all(kind):
            with suppress(ApiError):
                await world.user.patch(kind, item.name, {"metadata": {"annotations": older}})
            if kind is kinds.NODE_CLAIM and condition_status(item.status.conditions, "Drifted") != "True":
                sound[item.uid] = world.template_generation(item.pool_name)
    if sound:
        world.mark("F35")
    world.process.held_back = False
    await asyncio.sleep(for_s)
    for claim in world.all(kinds.NODE_CLAIM):
        unchanged = sound.get(claim.uid) == world.template_generation(claim.pool_name)
        if unchanged and condition_status(claim.status.conditions, "Drifted") == "True":
            world.broken("F35", f"NodeClaim {claim.name} counts as drifted although only the hash algorithm changed")


def _stand_by(world: World) -> None:
    """Start the second process, unless another fault that is under way has done so."""
    if not world.second().is_running:
        world.second().start()
