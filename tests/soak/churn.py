"""F38: weeks of coming and going in one process, and the memory of the program must not grow with them.

Workloads grow and shrink, jobs come and end, pools roll and machines are lost all day, every day. What the process
holds is read at the same hour of each day, after a collection; caches may fill in the first part, then the line must
be flat. The embedded cluster is part of the process, so what a cluster forgets by itself (events) is forgotten here.
"""

from __future__ import annotations

import asyncio
import gc
import random
import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from pykarpenter.api import kinds, labels
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.kube.contract import Json, Selection
from pykarpenter.providers.kwok.kubelet import KubeletOptions
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.cluster import ClusterOptions, EmbeddedCluster
from pykarpenter.sim.faults.actions import CLASS, deployment_manifest, pool_manifest
from pykarpenter.sim.process import OperatorProcess

DAY_S = 86_400.0
# One change of what users want in each of these stretches.
STEP_S = 1_800.0
# How long an API server keeps events.
EVENT_TTL_S = 3_600.0
# What the growth over the judged days may come to, as a share of what was held in their first half.
MOST_GROWTH = 0.02
_SIZES = (2, 5, 9, 14, 20)


@dataclass(slots=True)
class Churn:
    """What was held at the end of each day: objects that the collector tracks, and resident bytes."""

    objects: list[int] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    launches: int = 0
    writes: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    @property
    def judged(self) -> list[int]:
        """Readings of the second half: by then every cache has had its chance to fill."""
        return self.objects[len(self.objects) // 2 :]

    def problems(self) -> list[str]:
        found = [f"the program died: {error}" for error in self.failures]
        held = self.judged
        # Halves are compared rather than ends, because what is there at one moment swings with the workloads.
        middle = len(held) // 2
        before, after = sum(held[:middle]) / max(1, middle), sum(held[-middle:]) / max(1, middle)
        if middle and after > before * (1 + MOST_GROWTH):
            found.append(f"F38: objects held grew from {before:.0f} to {after:.0f} over the last {len(held)} days")
        return found


def run_churn(days: int, *, seed: int = 1, day_s: float = DAY_S) -> Churn:
    started = time.monotonic()
    churn = run_virtual(_run(days, seed, day_s))
    churn.seconds = time.monotonic() - started
    return churn


def describe_churn(churn: Churn) -> int:
    days = len(churn.objects)
    print(f"{days} days in {churn.seconds:.0f} s, {churn.writes} writes, {churn.launches} launches")
    problems = churn.problems()
    for problem in problems:
        print(f"  {problem}")
    if not problems:
        print("F38: memory does not grow")
    return 1 if problems else 0


async def _run(days: int, seed: int, day_s: float) -> Churn:
    kubelet = KubeletOptions(nodes=Selection(), lease_interval_s=None)
    churn = Churn()
    async with EmbeddedCluster(
        running_clock(), ClusterOptions(seed=seed, kubelet=kubelet, scheduler_events=False)
    ) as cluster:
        process = OperatorProcess(cluster)
        process.start()
        await cluster.install([CLASS, pool_manifest("general", 400)])
        apps = [f"app-{number}" for number in range(4)]
        await cluster.install([deployment_manifest(name, 5, "1", "1Gi") for name in apps])
        rng = random.Random(f"churn/{seed}")
        for day in range(days):
            await _one_day(cluster, rng, apps, day, int((day_s - EVENT_TTL_S) / STEP_S))
            # The same workloads at each reading, so that readings can be compared.
            for name in apps:
                await _scale(cluster, name, 5)
            await asyncio.sleep(EVENT_TTL_S)
            _forget(cluster)
            gc.collect()
            churn.objects.append(len(gc.get_objects()))
            churn.resident.append(_resident_bytes())
            print(f"day {day + 1:2}: {churn.objects[-1]} objects, {churn.resident[-1] / 2**20:.0f} MiB", flush=True)
        churn.launches, churn.writes = cluster.cloud.ledger.launched, cluster.store.rv
        await process.stop()
        churn.failures = [f"{type(error).__name__}: {error}" for error in process.failures]
    return churn


async def _one_day(cluster: EmbeddedCluster, rng: random.Random, apps: list[str], day: int, steps: int) -> None:
    for step in range(steps):
        what = rng.choice(("scale", "scale", "scale", "job", "lose", "delete", "roll"))
        if what == "scale":
            await _scale(cluster, rng.choice(apps), rng.choice(_SIZES))
        elif what == "job":
            await cluster.install([job_manifest(f"job-{day}-{step}", rng.randint(1, 8), rng.randint(30, 900))])
        elif what == "roll":
            generation = {"example.com/generation": f"g{day}-{step}"}
            template = {"metadata": {"labels": generation}}
            await cluster.api.patch(kinds.NODE_POOL, "general", {"spec": {"template": template}})
        else:
            await _lose_one(cluster, rng, what)
        await asyncio.sleep(STEP_S)
        _forget(cluster)


def job_manifest(name: str, pods: int, runs_for: int) -> Json:
    container = {"name": "main", "image": name, "resources": {"requests": {"cpu": "1", "memory": "512Mi"}}}
    template = {
        "metadata": {"annotations": {f"{labels.OWN_GROUP}/completes-after": f"{runs_for}s"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    spec = {"parallelism": pods, "completions": pods, "ttlSecondsAfterFinished": 60, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {**spec, "backoffLimit": 100}}


async def _scale(cluster: EmbeddedCluster, name: str, to: int) -> None:
    await cluster.api.patch(kinds.DEPLOYMENT, name, {"spec": {"replicas": to}}, "default")


async def _lose_one(cluster: EmbeddedCluster, rng: random.Random, what: str) -> None:
    live = sorted(cluster.cloud.live(), key=lambda instance: instance.id)
    claims = sorted(cluster.store.table(kinds.NODE_CLAIM.group, kinds.NODE_CLAIM.plural).entries)
    if what == "lose" and live:
        cluster.cloud.lose(rng.choice(live).id)
    elif what == "delete" and claims:
        await cluster.api.delete(kinds.NODE_CLAIM, rng.choice(claims))


def _forget(cluster: EmbeddedCluster) -> None:
    """What a server does by itself: history is compacted, and events go an hour after they were last written."""
    cluster.store.compact()
    store, now = cluster.store, cluster.clock.now()
    events = store.resource("", "events")
    for entry in list(store.table("", "events").entries.values()):
        meta = entry.obj["metadata"]
        written = parse_optional_timestamp(entry.obj.get("lastTimestamp") or meta["creationTimestamp"])
        if written is not None and now - written > EVENT_TTL_S:
            store.delete(events, meta["name"], meta["namespace"])


def _resident_bytes() -> int:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
