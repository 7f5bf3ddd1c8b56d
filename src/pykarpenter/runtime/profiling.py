"""What `/debug` shows of the running program: where its time goes, what its tasks wait for, how big it is.

Only code locations, names of tasks and counts; never the values of variables, so that secrets cannot leak (S14).
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import traceback
from collections import Counter
from types import FrameType

from aiohttp import web

_SAMPLE_EVERY_S = 0.005
_MAX_SECONDS = 60.0


def add_routes(router: web.UrlDispatcher) -> None:
    router.add_get("/debug/tasks", _tasks)
    router.add_get("/debug/threads", _threads)
    router.add_get("/debug/profile", _profile)
    router.add_get("/debug/memory", _memory)


async def _tasks(_: web.Request) -> web.Response:
    lines = []
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        lines.append(f"{task.get_name()}: {' > '.join(_awaiting(task.get_coro()))}")
    return web.Response(text="\n".join(lines) + "\n")


async def _threads(_: web.Request) -> web.Response:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = [f"{names.get(ident, ident)}: {_stack(frame)}" for ident, frame in sys._current_frames().items()]
    return web.Response(text="\n".join(lines) + "\n")


async def _profile(request: web.Request) -> web.Response:
    """Stacks sampled for `?seconds=` (default 10), in the collapsed form that flame-graph tools read."""
    try:
        seconds = min(_MAX_SECONDS, float(request.query.get("seconds", "10")))
    except ValueError:
        return web.Response(status=400, text="seconds: not a number\n")
    stacks = await asyncio.to_thread(_sample, seconds)
    lines = [f"{stack} {count}" for stack, count in stacks.most_common()]
    return web.Response(text="\n".join(lines) + "\n")


async def _memory(_: web.Request) -> web.Response:
    kinds = Counter(type(obj).__name__ for obj in gc.get_objects())
    lines = [f"tracked objects: {sum(kinds.values())}, frozen: {gc.get_freeze_count()}"]
    lines += [f"{count:10d} {name}" for name, count in kinds.most_common(40)]
    return web.Response(text="\n".join(lines) + "\n")


def _sample(seconds: float) -> Counter[str]:
    own = threading.get_ident()
    stacks: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for ident, frame in sys._current_frames().items():
            if ident != own:
                stacks[_stack(frame)] += 1
        time.sleep(_SAMPLE_EVERY_S)
    return stacks


def _stack(frame: FrameType) -> str:
    return ";".join(
        f"{entry.name} ({_short(entry.filename)}:{entry.lineno})" for entry in traceback.extract_stack(frame)
    )


def _location(frame: FrameType) -> str:
    return f"{frame.f_code.co_qualname} ({_short(frame.f_code.co_filename)}:{frame.f_lineno})"


def _awaiting(coroutine: object) -> list[str]:
    """Where a task waits, from its outermost coroutine inwards; a task's own stack ends at the outermost."""
    places = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        places.append(_location(frame))
        coroutine = getattr(coroutine, "cr_await", None)
    return places


def _short(path: str) -> str:
    return "/".join(path.split("/")[-2:])
