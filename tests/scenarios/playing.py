"""Plays all scenarios at once on a cluster, real or embedded."""

from __future__ import annotations

import asyncio

from pykarpenter.api import kinds
from pykarpenter.kube.contract import Json, KubeApi, Selection
from pykarpenter.providers.kwok.kubelet import KubeletOptions
from pykarpenter.runtime.settings import Settings
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.cluster import ClusterOptions, EmbeddedCluster
from pykarpenter.sim.process import OperatorProcess
from tests.conformance.sides import Finding

from .stage import Stage
from .ten import TEN

# One after the other, each with a scheduling batch of its own: the program bounds how many pods a second it speaks of.
STAGGER_S = 2.5

Findings = dict[str, list[Finding]]

CLASS: Json = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
    "spec": {},
}


async def play_all(api: KubeApi, *, namespace_labels: dict[str, str], suffix: str = "") -> Findings:
    """All scenarios side by side; what each found, in their order."""
    await api.create(kinds.KWOK_NODE_CLASS, CLASS)

    async def play(name: str, after_s: float) -> list[Finding]:
        await asyncio.sleep(after_s)
        slug = TEN[name].__name__.replace("_", "-")
        metadata = {"name": f"{slug}{suffix}", "labels": namespace_labels}
        await api.create(kinds.NAMESPACE, {"metadata": metadata})
        stage = Stage(api, slug, metadata["name"])
        await TEN[name](stage)
        return stage.findings

    async with asyncio.TaskGroup() as group:
        playing = {name: group.create_task(play(name, i * STAGGER_S), name=name) for i, name in enumerate(TEN)}
    return {name: task.result() for name, task in playing.items()}


def play_embedded() -> Findings:
    """On virtual time: the embedded cluster with the real program in it."""

    async def main() -> Findings:
        options = ClusterOptions(provider="kwok", kubelet=KubeletOptions(nodes=Selection()))
        async with EmbeddedCluster(running_clock(), options) as cluster:
            process = OperatorProcess(cluster, Settings(), make_provider=lambda api, clock: cluster.provider)
            process.start()
            try:
                found = await play_all(cluster.api, namespace_labels={})
            finally:
                await process.stop()
            assert process.failures == []
            return found

    return run_virtual(main())
