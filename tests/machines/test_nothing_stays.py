"""What controllers remember of an object goes with the object, even when the watch is faster than an answer (F38)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

from pykarpenter.api import kinds

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
