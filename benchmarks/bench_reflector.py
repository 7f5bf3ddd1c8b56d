"""How much a reflector can follow: the first list of 100,000 pods, then watch events; decoding and handlers count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

from benchmarks.pods import pod_pages, pod_texts
from benchmarks.rows import Row
from pykarpenter.api.kinds import POD
from pykarpenter.kube.cache import Cache, Change
from pykarpenter.kube.codec import Codec
from pykarpenter.kube.contract import Page, WatchEvent
from pykarpenter.kube.errors import Invalid
from pykarpenter.kube.interning import PodInterner
from pykarpenter.kube.reflector import Reflector
from pykarpenter.runtime.clock import SystemClock
from pykarpenter.runtime.garbage import GarbagePause

PODS = 100_000
EVENTS = 20_000


class RecordedApi:
    """Answers with prepared bytes: a list in pages, then one burst of changes."""

    def __init__(self, codec: Codec[Any], lines: list[bytes]) -> None:
        self._codec = codec
        self._pages = pod_pages(PODS)
        self._lines = lines
        self._left = PODS
        self.making_s = 0.0
        self.following_s = 0.0
        self.watched = asyncio.Event()

    async def list_page(self, *_: Any, **__: Any) -> Page[Any]:
        started = time.process_time()
        body = next(self._pages)
        self.making_s += time.process_time() - started
        page = self._codec.page(body)
        self._left -= len(page.items)
        return Page(page.items, page.resource_version, "more" if self._left else "")

    async def watch(
        self, *_: Any, send_initial_events: bool = False, **__: Any
    ) -> AsyncGenerator[WatchEvent[Any], None]:
        if send_initial_events:
            raise Invalid("not served")
        started = time.process_time()
        for line in self._lines:
            yield self._codec.event(line)
        self.following_s = time.process_time() - started
        self.watched.set()
        await asyncio.Event().wait()


async def _follow() -> tuple[float, float]:
    """CPU seconds of the list and of the events."""
    codec: Codec[Any] = Codec(POD, PodInterner(), lambda *_: None)
    # The same pods as listed, each changed once: newer versions of known objects.
    lines = [
        f'{{"type":"MODIFIED","object":{text}}}'.replace('"resourceVersion":"1', '"resourceVersion":"9', 1).encode()
        for text, _ in zip(pod_texts(PODS), range(EVENTS), strict=False)
    ]
    api = RecordedApi(codec, lines)
    seen: list[int] = [0]

    def hear(change: Change[Any]) -> None:
        seen[0] += 1

    cache: Cache[Any] = Cache(indexes={"node": lambda pod: [pod.spec.node_name]})
    reflector = Reflector(api, POD, cache, clock=SystemClock(), handlers=[hear], garbage=GarbagePause())  # type: ignore[arg-type]
    running = asyncio.create_task(reflector.run())
    started = time.process_time()
    await reflector.wait_synced()
    listed = time.process_time() - started - api.making_s - api.following_s
    await api.watched.wait()
    running.cancel()
    assert seen[0] == PODS + EVENTS, seen
    return listed, api.following_s


def run() -> list[Row]:
    listed, followed = asyncio.run(_follow())
    return [
        Row("first list of 100,000 pods", listed, "s CPU", 5.0),
        Row(
            "watch events",
            EVENTS / followed,
            "events/s",
            10_000.0,
            higher_is_better=True,
            note="1,000 events/s are then a tenth of a core",
        ),
    ]
