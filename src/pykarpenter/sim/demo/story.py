"""The demonstration's story: a web service, a burst of batch jobs, GPU work, the way back down, and a quiet night.

Each chapter waits for what it promises; a promise that does not come true in time ends the story with the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pykarpenter.api import kinds, labels
from pykarpenter.cloud.catalog import INSTANCE_FAMILY
from pykarpenter.kube.contract import Json
from pykarpenter.sim.cloud.cloud import Timing
from pykarpenter.sim.cluster import EmbeddedCluster
from pykarpenter.sim.views import DEPLOYMENT, JOB

# Machines of the demonstration come quickly: nobody wants to watch a real boot.
TIMING = Timing(launch_s=(0.3, 0.8), boot_s=(3.0, 6.0), shutdown_s=(1.0, 2.0), call_s=(0.01, 0.05))

WEB = 12
WEB_AT_NIGHT = 6
CACHES = 6
BATCH = 60
GPU = 3
GPU_FAMILIES = ["g4", "g6", "p4"]
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}

# How long emptied and under-used machines may stay.
_PATIENCE_S = 75.0

Say = Callable[[str], None]


class StoryFailed(Exception):
    """A promise of the story did not come true."""


def manifests() -> list[Json]:
    """The class and the two pools."""
    return [
        {
            "apiVersion": "pykarpenter.sh/v1alpha1",
            "kind": "SimNodeClass",
            "metadata": {"name": "default"},
            "spec": {},
        },
        _pool("general", [{"key": INSTANCE_FAMILY, "operator": "NotIn", "values": GPU_FAMILIES}], [], {"cpu": "500"}),
        _pool(
            "gpu",
            [{"key": INSTANCE_FAMILY, "operator": "In", "values": GPU_FAMILIES}],
            [GPU_TAINT],
            {"nvidia.com/gpu": "16"},
        ),
    ]


def _pool(name: str, requirements: list[Json], taints: list[Json], limits: Json) -> Json:
    template = {
        "nodeClassRef": {"group": "pykarpenter.sh", "kind": "SimNodeClass", "name": "default"},
        "requirements": [
            {"key": labels.ARCH, "operator": "In", "values": ["amd64"]},
            {"key": labels.CAPACITY_TYPE, "operator": "In", "values": [labels.SPOT, labels.ON_DEMAND]},
            *requirements,
        ],
        "taints": taints,
    }
    spec = {
        "template": {"spec": template},
        "limits": limits,
        "disruption": {"consolidateAfter": "5s", "consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": "100%"}]},
    }
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def _pod(app: str, requests: Json, **spec: Any) -> Json:
    container = {
        "name": "main",
        "image": f"example.com/{app}:1",
        "resources": {"requests": requests, "limits": {k: v for k, v in requests.items() if "/" in k}},
    }
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container], **spec}}


def web() -> Json:
    spread = {
        "maxSkew": 1,
        # Without it the first two zones to have a node would take all pods.
        "minDomains": 3,
        "topologyKey": labels.ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    template = _pod("web", {"cpu": "500m", "memory": "768Mi"}, topologySpreadConstraints=[spread])
    return _deployment("web", WEB, template)


def caches() -> Json:
    """One for each machine: by day they keep the web service on more machines than it fills."""
    apart = {"topologyKey": labels.HOSTNAME, "labelSelector": {"matchLabels": {"app": "cache"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    return _deployment("cache", CACHES, _pod("cache", {"cpu": "250m", "memory": "512Mi"}, affinity=affinity))


def training() -> Json:
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    requests = {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"}
    return _deployment("training", GPU, _pod("training", requests, tolerations=[toleration]))


def batch() -> Json:
    template = _pod("batch", {"cpu": "1", "memory": "1536Mi"}, restartPolicy="Never")
    template["metadata"]["annotations"] = {f"{labels.OWN_GROUP}/completes-after": "8s"}
    spec = {"parallelism": BATCH, "completions": BATCH, "backoffLimit": BATCH, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "batch"}, "spec": spec}


def _deployment(name: str, replicas: int, template: Json) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


class Story:
    """Tells the story in a cluster whose operator runs."""

    def __init__(self, cluster: EmbeddedCluster, say: Say) -> None:
        self._cluster = cluster
        self._say = say
        self.chapter = ""
        self.peak_price = 0.0

    async def tell(self) -> None:
        """From the first pod to the last machine given back; raises StoryFailed."""
        sentence = f"{WEB} web pods, spread over three zones, and {CACHES} caches, each on a machine of its own"
        await self._begin("1/5  a web service", sentence, [*manifests(), web(), caches()])
        await self._until(lambda: self._is_served("web"), f"{WEB} web pods run")
        await self._until(lambda: self._is_served("cache"), f"{CACHES} caches run")
        await self._begin(
            "2/5  a burst of batch jobs", f"{BATCH} batch pods at once, a few seconds of work each", [batch()]
        )
        await self._until(lambda: self._finished("batch") > 0, "batch pods finish")
        await self._begin("3/5  GPU work", f"{GPU} training pods, one GPU each", [training()])
        await self._until(lambda: self._is_served("training"), f"{GPU} training pods run")
        await self._until(lambda: self._finished("batch") == BATCH, f"{BATCH} batch pods are done")
        self.chapter = "4/5  the way back down"
        self._say("training ends; every machine without work is given back")
        await self._cluster.api.patch(kinds.DEPLOYMENT, "training", {"spec": {"replicas": 0}}, "default")
        await self._until(lambda: not self._present("training"), "training pods are gone")
        await self._until(lambda: not self._empty(), "emptied machines go by themselves", _PATIENCE_S)
        await self._come_together()
        self.chapter = "the end"
        await self._until(lambda: not self.problems(), "all is as it should be at the end", 20.0)

    def problems(self) -> list[str]:
        """What is not as it should be at the end."""
        found = []
        if not self._is_served("web"):
            found.append(f"{self._running('web')} of {self._wanted('web')} web pods run")
        if self._finished("batch") != BATCH:
            found.append(f"{self._finished('batch')} of {BATCH} batch pods succeeded")
        gpu = [c.name for c in self._claims() if c.pool_name == "gpu"]
        if gpu:
            found.append(f"GPU machines are left: {', '.join(gpu)}")
        if self._cluster.cloud.price_per_hour() >= self.peak_price:
            found.append(f"the bill did not fall below its peak of ${self.peak_price:.2f}/h")
        if len(self._cluster.cloud.live()) != len(self._claims()):
            found.append("machines and NodeClaims do not match")
        return found

    async def _begin(self, chapter: str, sentence: str, objects: list[Json]) -> None:
        self.chapter = chapter
        self._say(sentence)
        await self._cluster.install(objects)

    async def _until(self, holds: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        deadline = self._cluster.clock.monotonic() + timeout_s
        while not holds():
            self.peak_price = max(self.peak_price, self._cluster.cloud.price_per_hour())
            if self._cluster.clock.monotonic() > deadline:
                problems = f" ({'; '.join(self.problems())})" if self.chapter == "the end" else ""
                raise StoryFailed(f"not within {timeout_s:.0f} s: {what}{problems}")
            await asyncio.sleep(0.1)

    async def _come_together(self) -> None:
        """Half of the web service and all caches go to sleep; what is left moves to fewer machines."""
        self.chapter = "5/5  a quiet night"
        before, machines = self._cluster.cloud.price_per_hour(), len(self._claims())
        self._say(f"night: {WEB_AT_NIGHT} web pods are enough without caches, and under-used machines may be emptied")
        policy = {"spec": {"disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized"}}}
        await self._cluster.api.patch(kinds.NODE_POOL, "general", policy)
        for name, replicas in (("web", WEB_AT_NIGHT), ("cache", 0)):
            await self._cluster.api.patch(kinds.DEPLOYMENT, name, {"spec": {"replicas": replicas}}, "default")

        def is_quiet() -> bool:
            cheaper = self._cluster.cloud.price_per_hour() < 0.9 * before and len(self._claims()) < machines
            return cheaper and not self._empty() and self._is_served("web")

        await self._until(is_quiet, "under-used machines go", _PATIENCE_S)
        self._say(f"the bill fell from ${before:.2f}/h to ${self._cluster.cloud.price_per_hour():.2f}/h")

    def _empty(self) -> list[str]:
        """NodeClaims whose node has no pod that is still to run."""
        busy = {p.spec.node_name for p in self._pods() if p.status.phase in ("Pending", "Running")}
        return [c.name for c in self._claims() if c.status.node_name not in busy]

    def _pods(self) -> list[Any]:
        return self._cluster.views.of(kinds.POD).values()

    def _claims(self) -> list[Any]:
        table = self._cluster.store.table(kinds.NODE_CLAIM.group, kinds.NODE_CLAIM.plural)
        return [entry.decode(kinds.NODE_CLAIM.type) for _, entry in sorted(table.entries.items())]

    def _wanted(self, app: str) -> int:
        """As many as the Deployment asks for: whoever plays with kubectl meanwhile may have changed it."""
        deployment = self._cluster.views.of(DEPLOYMENT).get(f"default/{app}")
        return int(deployment.spec.get("replicas", 1)) if deployment is not None else -1

    def _is_served(self, app: str) -> bool:
        return self._running(app) == self._wanted(app)

    def _running(self, app: str) -> int:
        return sum(
            p.metadata.labels.get("app") == app and p.status.phase == "Running" and not p.is_deleting
            for p in self._pods()
        )

    def _present(self, app: str) -> bool:
        return any(p.metadata.labels.get("app") == app for p in self._pods())

    def _finished(self, name: str) -> int:
        """By the Job's own count: its pods go with their machines."""
        job = self._cluster.views.of(JOB).get(f"default/{name}")
        return int(job.status.get("succeeded", 0)) if job is not None else 0
