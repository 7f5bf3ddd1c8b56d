"""Resident memory of watched pods: 100,000 of them decoded page by page into a cache, as a reflector does."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from benchmarks.pods import pod_pages
from benchmarks.rows import Row
from pykarpenter.api.kinds import POD
from pykarpenter.api.pods import Pod
from pykarpenter.kube.cache import Cache
from pykarpenter.kube.codec import Codec
from pykarpenter.kube.interning import PodInterner
from pykarpenter.runtime.garbage import GarbagePause

PODS = 100_000


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def run() -> list[Row]:
    cache: Cache[Pod] = Cache(indexes={"node": lambda pod: [pod.spec.node_name]})
    codec = Codec(POD, PodInterner(), lambda *_: None)
    codec.page(next(pod_pages(500)))
    gc.collect()
    before = resident_bytes()
    with GarbagePause():
        for page in pod_pages(PODS):
            for pod in codec.page(page).items:
                cache.put(cache.key_of(pod), pod)
    cache.values()
    per_pod = (resident_bytes() - before) / len(cache)
    total = resident_bytes() / 2**20
    return [
        Row("watched pod", per_pod, "bytes", 2000.0, cpu_bound=False, note=f"{len(cache):,} pods, cache and index"),
        Row("whole process", total, "MiB", cpu_bound=False),
    ]
