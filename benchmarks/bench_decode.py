"""CPU time to turn an API server's JSON into pods: whole pages as a list brings them, single lines as a watch does."""

from __future__ import annotations

import gc
import time

from benchmarks.pods import pod_pages, pod_texts
from benchmarks.rows import Row
from pykarpenter.api.kinds import POD
from pykarpenter.kube.codec import Codec
from pykarpenter.kube.interning import PodInterner

PODS = 20_000
EVENTS = 10_000


def _refuse(kind: str, key: str, problem: str) -> None:
    raise AssertionError(f"{kind} {key}: {problem}")


def _page_us() -> float:
    codec = Codec(POD, PodInterner(), _refuse)
    kept = []
    spent = 0.0
    for page in pod_pages(PODS):
        started = time.process_time()
        kept.append(codec.page(page).items)
        spent += time.process_time() - started
    return spent / PODS * 1e6


def _event_us() -> float:
    codec = Codec(POD, PodInterner(), _refuse)
    lines = [f'{{"type":"MODIFIED","object":{text}}}'.encode() for text in pod_texts(EVENTS)]
    started = time.process_time()
    for line in lines:
        codec.event(line)
    return (time.process_time() - started) / EVENTS * 1e6


def run() -> list[Row]:
    # As at the start of the program: the collector is off while lists are loaded.
    gc.disable()
    size = sum(len(text) for text in pod_texts(600)) / 600
    return [
        Row("list page", min(_page_us() for _ in range(3)), "µs/pod", 25.0, note=f"{size:,.0f} bytes of JSON each"),
        Row("watch line", min(_event_us() for _ in range(3)), "µs/event", 35.0),
    ]
