"""Short stories in the embedded cluster on virtual time: manifests in, what kubectl would show out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pykarpenter.api import kinds
from pykarpenter.api.pods import Pod
from pykarpenter.kube.contract import list_all
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.cluster import ClusterOptions, EmbeddedCluster
from pykarpenter.sim.views import RawObject, whole

T = TypeVar("T")


def in_cluster(story: Callable[[EmbeddedCluster], Awaitable[T]], options: ClusterOptions | None = None) -> T:
    """Run a story in a fresh cluster; everything has ended when it returns."""

    async def main() -> T:
        async with EmbeddedCluster(running_clock(), options) as cluster:
            return await story(cluster)

    return run_virtual(main())


async def settle(seconds: float = 30.0) -> None:
    """Let the cluster come to rest; virtual time, so it costs nothing."""
    await asyncio.sleep(seconds)


def node(name: str, cpu: str = "4", zone: str = "a", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone},
            **metadata,
        },
        "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}},
    }


def template(app: str, cpu: str = "500m", annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": app, "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"labels": {"app": app}, "annotations": annotations or {}},
        "spec": {"containers": [container], **spec},
    }


def workload(kind: str, name: str, replicas: int | None = None, **spec: Any) -> dict[str, Any]:
    body = {"selector": {"matchLabels": {"app": name}}, "template": template(name), **spec}
    if replicas is not None:
        body["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body}


def job(name: str, runs_for: str = "10s", **spec: Any) -> dict[str, Any]:
    pod = template(name, annotations={"pykarpenter.sh/completes-after": runs_for}, restartPolicy="Never")
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": pod, **spec}}


async def pods(cluster: EmbeddedCluster, app: str = "") -> list[Pod]:
    found = await list_all(cluster.api, kinds.POD)
    return [pod for pod in found if not app or pod.metadata.labels.get("app") == app]


async def running(cluster: EmbeddedCluster, app: str = "") -> list[Pod]:
    return [pod for pod in await pods(cluster, app) if pod.status.phase == "Running" and not pod.is_deleting]


async def raw(cluster: EmbeddedCluster, kind: kinds.Kind[Any], name: str, namespace: str = "default") -> RawObject:
    return await cluster.api.get(whole(kind), name, namespace if kind.namespaced else "")
