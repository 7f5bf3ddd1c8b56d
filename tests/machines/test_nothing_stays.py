"""What controllers remember of an object goes with the object, even when the watch is faster than an answer (F38)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from pykarpenter.api import kinds
from pykarpenter.kube.contract import list_all
from pykarpenter.kube.errors import NotFound

from .world import World, story


def slow_answers(world: World, *verbs: str) -> None:
    """Requests are carried out at once, but their answers are long on the way: watches show them before."""
    for verb in verbs:
        asked = getattr(world.operator_api, verb)

        async def late(*args: Any, _asked: Any = asked, **how: Any) -> Any:
            answer = await _asked(*args, **how)
            await asyncio.sleep(45.0)
            return answer

        setattr(world.operator_api, verb, late)


async def is_ready(world: World, name: str) -> bool:
    return await world.status_of("Ready", name) == "True"


def keys_held(roots: list[Any]) -> Iterator[tuple[str, str]]:
    """Keys of all dictionaries and sets that are attributes of these objects, with the names of both."""
    for root in roots:
        for name, value in vars(root).items():
            if isinstance(value, dict | set):
                yield from ((f"{type(root).__name__}.{name}", repr(key)) for key in value)


def parts_of(controllers: list[Any]) -> list[Any]:
    """The controllers and the objects of ours that they are made of."""
    found, waiting = {}, list(controllers)
    while waiting:
        item = waiting.pop()
        if id(item) not in found and type(item).__module__.startswith("pykarpenter.controllers"):
            found[id(item)] = item
            waiting.extend(gc.get_referents(*vars(item).values()) if hasattr(item, "__dict__") else ())
            waiting.extend(vars(item).values() if hasattr(item, "__dict__") else ())
    return [item for item in found.values() if hasattr(item, "__dict__")]


def test_f38_controllers_keep_nothing_of_machines_and_pods_that_are_gone() -> None:
    """Ten machines with a pod each come and go, and every answer comes after the watch has shown what it is about."""

    async def main(world: World) -> None:
        made: list[Any] = []
        make = world.controllers
        world.controllers = lambda ctx: made.extend(make(ctx)) or made  # type: ignore[func-returns-value]
        slow_answers(world, "evict", "delete", "patch")
        await world.begin()
        gone: set[str] = set()
        for number in range(10):
            name = f"c{number}"
            gone.add((await world.claim(name)).uid)
            await world.until(lambda name=name: is_ready(world, name), 900.0)
            node = await world.node()
            await world.pod(f"p{number}", node.name, metadata={"uid": f"pod-{number}"})
            gone |= {node.uid, node.name, (await world.api.get(kinds.POD, f"p{number}", "default")).uid}
            await asyncio.sleep(900.0)
            await world.api.delete(kinds.NODE_CLAIM, name)
            await world.gone(name, 900.0)
        await asyncio.sleep(3600.0)
        parts = parts_of(made)
        assert len(parts) > len(made)
        assert [found for found in keys_held(parts) if any(item in found[1] for item in gone)] == []

    story(main)


async def tear_out_everything(world: World) -> None:
    """Somebody takes the finalizers off and deletes what there is: gone at once, whatever is under way."""
    for kind in (kinds.NODE_CLAIM, kinds.NODE):
        for item in await list_all(world.api, kind):
            await world.api.patch(kind, item.name, {"metadata": {"finalizers": None}})
            with contextlib.suppress(NotFound):
                await world.api.delete(kind, item.name)


def tear_out_at_write(world: World, nth: int) -> list[str]:
    """Machines vanish between the nth write of the program and its answer; replies with the UIDs that did, in time."""
    asked, written, torn = world.operator_api.patch, 0, []

    async def patch(*args: Any, **how: Any) -> Any:
        nonlocal written
        answer = await asked(*args, **how)
        written += 1
        if written == nth:
            torn.extend(
                [item.uid for kind in (kinds.NODE_CLAIM, kinds.NODE) for item in await list_all(world.api, kind)]
            )
            await tear_out_everything(world)
            await asyncio.sleep(5.0)
        return answer

    world.operator_api.patch = patch  # type: ignore[method-assign]
    return torn


@pytest.mark.parametrize("nth", range(1, 25))
def test_f38_controllers_keep_nothing_of_machines_that_vanish_during_a_write(nth: int) -> None:
    """Two machines come, work and are deleted; each write on the way is the last that is answered too late."""

    async def main(world: World) -> list[str]:
        made: list[Any] = []
        make = world.controllers
        world.controllers = lambda ctx: made.extend(make(ctx)) or made  # type: ignore[func-returns-value]
        torn = tear_out_at_write(world, nth)
        await world.begin()
        for name in ("c1", "c2"):
            await world.claim(name)
        await asyncio.sleep(300.0)
        for name in ("c1", "c2"):
            with contextlib.suppress(NotFound):
                await world.api.delete(kinds.NODE_CLAIM, name)
        await asyncio.sleep(3600.0)
        assert torn
        return [where for where, key in keys_held(parts_of(made)) if any(uid in key for uid in torn)]

    assert story(main) == []
