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


def _per_pod(count: int, **options: bool) -> tuple[float, Cache[Pod]]:
    """Resident bytes that each of `count` pods adds; the cache is handed out to be kept alive."""
    cache: Cache[Pod] = Cache(indexes={"node": lambda pod: [pod.spec.node_name]})
    codec = Codec(POD, PodInterner(), lambda *_: None)
    codec.page(next(pod_pages(500)))
    gc.collect()
    before = resident_bytes()
    with GarbagePause():
        for page in pod_pages(count, **options):
            for pod in codec.page(page).items:
                cache.put(cache.key_of(pod), pod)
    cache.values()
    return (resident_bytes() - before) / len(cache), cache


def run() -> list[Row]:
    shared, first = _per_pod(PODS)
    total = resident_bytes() / 2**20
    unique, second = _per_pod(PODS // 4, own_claims=True)
    return [
        Row("watched pod", shared, "bytes", 2000.0, cpu_bound=False, note=f"{len(first):,} pods, cache and index"),
        Row("whole process", total, "MiB", cpu_bound=False),
        Row("no two specs equal", unique, "bytes", cpu_bound=False, note=f"{len(second):,} pods, a claim each"),
    ]
