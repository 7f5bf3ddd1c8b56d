"""F10 on a real Kubernetes: many more pods at once than limits allow; limits are used up and never passed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykarpenter.api.quantity import available
from pykarpenter.cloud.catalog import read_catalog
from pykarpenter.core.resources import Resources, add
from tests.soak.bursts import Share, pool, shares, still_fitting, workload

from .cluster import Cluster, ProgramRunner, wait_until
from .cluster.processes import Process, environment

CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
POD_COUNT = 240
NODE_CLASS = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
    "spec": {},
}


@pytest.fixture
def watched(cluster: Cluster, crds: None, tmp_path: Path) -> Iterator[Process]:
    """A watch of all NodeClaims that began before the first of them; every event of it is kept."""
    kubectl = [str(cluster.binaries.kubectl), "get", "nodeclaims", "--watch", "--output-watch-events", "-o", "json"]
    env = environment(KUBECONFIG=str(cluster.admin_kubeconfig))
    process = Process("watch", kubectl, log_path=tmp_path / "claims.json", env=env)
    yield process
    process.kill()


def events(text: str) -> list[dict[str, Any]]:
    """The whole JSON documents in the text; an unfinished one at its end is left out."""
    found, at, decoder = [], 0, json.JSONDecoder()
    while at < len(text):
        try:
            document, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            break
        found.append(document)
        while at < len(text) and text[at].isspace():
            at += 1
    return found


def use_of(claims: list[dict[str, Any]], part: Share) -> Resources:
    mine = [
        claim
        for claim in claims
        if claim["metadata"]["labels"].get("karpenter.sh/nodepool") == part.name
        and "deletionTimestamp" not in claim["metadata"]
    ]
    return {**add(*(available(claim.get("status", {}).get("capacity", {})) for claim in mine)), "nodes": len(mine)}


def test_f10_a_burst_near_the_limits_uses_them_up_and_never_passes_them(
    cluster: Cluster, namespace: str, programs: ProgramRunner, watched: Process
) -> None:
    """cpu, nodes and GPUs at once; judged at every change that a watch tells of."""
    parts = shares(POD_COUNT)
    programs.start("run", "--provider", "kwok", env={"INSTANCE_TYPES_FILE_PATH": "demo"}).wait_ready()
    cluster.apply(NODE_CLASS, *(on_kwok(pool(part)) for part in parts))
    burst = [workload(part, "burst", part.pods) for part in parts]
    for body in burst:
        body["metadata"]["namespace"] = namespace
    cluster.apply(*burst)
    types = read_catalog("demo").types

    def is_used_up() -> bool:
        claims = cluster.admin.items(CLAIMS)
        launched = all("capacity" in claim.get("status", {}) for claim in claims)
        return launched and not any(still_fitting(part, use_of(claims, part), types) for part in parts)

    wait_until(is_used_up, 60, what="nothing more fits", interval_s=0.5)
    wait_until(lambda: len(running(cluster, namespace)) > POD_COUNT // 5, 30, what="pods run")
    claims: dict[str, dict[str, Any]] = {}
    passed = []
    for event in events(watched.log()):
        name = event["object"]["metadata"]["name"]
        if event["type"] == "DELETED":
            claims.pop(name, None)
        else:
            claims[name] = event["object"]
        for part in parts:
            used = use_of(list(claims.values()), part)
            passed += [(part.name, used) for key, limit in available(part.limits).items() if used.get(key, 0) > limit]
    assert set(claims) == {claim["metadata"]["name"] for claim in cluster.admin.items(CLAIMS)}
    assert passed == []


def on_kwok(body: dict[str, Any]) -> dict[str, Any]:
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    body["spec"]["template"]["spec"]["nodeClassRef"] = reference
    return body


def running(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    found = cluster.admin.items(f"/api/v1/namespaces/{namespace}/pods")
    return [pod for pod in found if pod["status"].get("phase") == "Running"]
