"""What `/debug` shows of the running program: where its time goes, what its tasks wait for, how big it is.

Only code locations, names of tasks and counts; never the values of variables, so that secrets cannot leak (S14).
Stacks of running threads are taken by `faulthandler`, in one piece under the interpreter's lock: walking their frames
from Python races with the threads themselves and has crashed the interpreter.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import re
import tempfile
import threading
import time
from collections import Counter
from types import FrameType

from aiohttp import web

_SAMPLE_EVERY_S = 0.005
_MAX_SECONDS = 60.0
_THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]+)")
_PLACE = re.compile(r'  File "(.*)", line ([0-9]+) in (.*)')


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
    lines = [f"{names.get(ident, ident)}: {stack}" for ident, stack in _stacks().items()]
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
    found: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found.update(stack for ident, stack in _stacks().items() if ident != own)
        time.sleep(_SAMPLE_EVERY_S)
    return found


def _stacks() -> dict[int, str]:
    """The stack of every thread by its identifier, outermost call first."""
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        dump = file.read().decode(errors="replace")
    stacks: dict[int, list[str]] = {}
    places: list[str] = []
    for line in dump.splitlines():
        if thread := _THREAD.match(line):
            places = stacks.setdefault(int(thread[1], 16), [])
        elif place := _PLACE.fullmatch(line):
            places.append(f"{place[3]} ({_short(place[1])}:{place[2]})")
    return {ident: ";".join(reversed(places)) for ident, places in stacks.items()}


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
