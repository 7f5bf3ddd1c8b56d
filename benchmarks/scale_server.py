"""A big cluster for `benchmarks.scale`, served over TLS by a process of its own: `python -m benchmarks.scale_server`.

A small cluster runs first, on virtual time, until one machine serves pods; what the controller and the provider wrote
about that machine is then copied for every other one. Copies go straight into the store: 110,000 objects through
admission would take longer than what is measured. Pods are kept as the text that a client receives.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.pods import pod_texts
from pykarpenter.api.crds import crds
from pykarpenter.cloud.catalog import INSTANCE_CPU
from pykarpenter.kube.contract import Selection
from pykarpenter.providers.kwok.kubelet import KubeletOptions
from pykarpenter.runtime.clock import SystemClock
from pykarpenter.runtime.garbage import GarbagePause
from pykarpenter.runtime.settings import Settings
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.cluster import ClusterOptions, EmbeddedCluster
from pykarpenter.sim.faults.actions import deployment_manifest
from pykarpenter.sim.process import OperatorProcess
from pykarpenter.sim.server.serving import ServedCluster
from pykarpenter.sim.store import Store
from pykarpenter.sim.store.entries import Entry, Json
from pykarpenter.sim.store.history import Change

CLASS_REF = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
CLASS = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
    "spec": {},
}
SETTLE_S = 60.0


def pool(consolidate_after: str) -> Json:
    """Machines of 16 cores that nothing but consolidation replaces."""
    requirements = [{"key": INSTANCE_CPU, "operator": "In", "values": ["16"]}]
    template = {"spec": {"nodeClassRef": CLASS_REF, "expireAfter": "Never", "requirements": requirements}}
    spec = {"template": template, "disruption": {"consolidateAfter": consolidate_after}}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": spec}


async def _one_machine(consolidate_after: str) -> list[tuple[str, Json]]:
    """Class, pool, claim and node of a cluster in which one machine runs a pod, as (kind, object)."""
    options = ClusterOptions(provider="kwok", scheduler_events=False, kubelet=KubeletOptions(nodes=Selection()))
    async with EmbeddedCluster(running_clock(), options) as cluster:
        await cluster.install([CLASS, pool(consolidate_after)])
        settings = Settings(disable_leader_election=True)
        process = OperatorProcess(cluster, settings, make_provider=lambda *_: cluster.provider)
        process.start()
        await cluster.install([deployment_manifest("app", 1, "1", "1Gi")])
        await asyncio.sleep(SETTLE_S)
        await process.stop()
        tables = [
            ("karpenter.kwok.sh", "kwoknodeclasses"),
            ("karpenter.sh", "nodepools"),
            ("karpenter.sh", "nodeclaims"),
            ("", "nodes"),
        ]
        return [
            (plural, next(iter(cluster.store.table(group, plural).entries.values())).obj) for group, plural in tables
        ]


class Loader:
    """Puts finished objects into a store; they are neither checked nor defaulted again."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, group: str, plural: str, obj: Json, text: bytes | None = None) -> None:
        """`text` is what clients receive, where it says more than `obj` does."""
        self._store.rv += 1
        version = self._store.rv
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
        entry = Entry(obj, version)
        if text is not None:
            entry._encoded = text
        table = self._store.table(group, plural)
        self._store.garbage.observe(table.resource, entry, None, removed=False)
        table.record(Change("ADDED", version, entry, None))


def _copies(text: bytes, old: dict[str, str], new: dict[str, str]) -> Json:
    for key, value in old.items():
        text = text.replace(value.encode(), new[key].encode())
    copy: Json = msgspec.json.decode(text)
    return copy


def _machines(loader: Loader, claim: Json, node: Json, count: int) -> list[str]:
    """Claims and nodes; returns the nodes' names."""
    old = {
        "node": node["metadata"]["name"],
        "claim": claim["metadata"]["name"],
        "claim_uid": claim["metadata"]["uid"],
        "node_uid": node["metadata"]["uid"],
    }
    claim_text, node_text = msgspec.json.encode(claim), msgspec.json.encode(node)
    names = []
    for number in range(count):
        new = {
            "claim": f"default-{number:05d}",
            "node": f"kwok-default-{number:05d}",
            "claim_uid": f"c{number:07x}-0000-4000-8000-000000000000",
            "node_uid": f"d{number:07x}-0000-4000-8000-000000000000",
        }
        loader.put("karpenter.sh", "nodeclaims", _copies(claim_text, old, new))
        loader.put("", "nodes", _copies(node_text, old, new))
        names.append(new["node"])
    return names


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    uid: str
    labels: dict[str, str]


class _PodSpec(msgspec.Struct):
    nodeName: str  # noqa: N815 - as the API spells it


class _PodHead(msgspec.Struct):
    metadata: _Metadata
    spec: _PodSpec


def _pods(store: Store, loader: Loader, nodes: list[str], count: int) -> None:
    heads: Any = msgspec.json.Decoder(_PodHead)
    namespaces: set[str] = set()
    for text in pod_texts(count, nodes=nodes):
        head = msgspec.to_builtins(heads.decode(text))
        namespace = head["metadata"]["namespace"]
        if namespace not in namespaces:
            namespaces.add(namespace)
            store.create(store.resource("", "namespaces"), {"metadata": {"name": namespace}})
        version = f'"resourceVersion":"{store.rv + 1}"'
        before, _, rest = text.partition('"resourceVersion":"')
        loader.put("", "pods", head, f"{before}{version}{rest.partition(chr(34))[2]}".encode())


def load(store: Store, nodes: int, pods: int, consolidate_after: str) -> None:
    for manifest in crds("kwok"):
        store.create(store.resource("apiextensions.k8s.io", "customresourcedefinitions"), manifest)
    found = dict(run_virtual(_one_machine(consolidate_after)))
    loader = Loader(store)
    loader.put("karpenter.kwok.sh", "kwoknodeclasses", found["kwoknodeclasses"])
    loader.put("karpenter.sh", "nodepools", found["nodepools"])
    names = _machines(loader, found["nodeclaims"], found["nodes"], nodes)
    _pods(store, loader, names, pods)


async def _serve(store: Store, kubeconfig: Path) -> None:
    async with ServedCluster(store, kubeconfig):
        print("serving", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--consolidate-after", default="Never")
    options = parser.parse_args()
    with GarbagePause():
        store = Store(SystemClock())
        load(store, options.nodes, options.pods, options.consolidate_after)
    asyncio.run(_serve(store, options.kubeconfig))


if __name__ == "__main__":
    main()
