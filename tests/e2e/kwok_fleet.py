"""A pool of the KWOK provider and what tests look at of its machines."""

from __future__ import annotations

from typing import Any

from .cluster import Cluster, wait_until
from .workloads import deployment

CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
POOLS = "/apis/karpenter.sh/v1/nodepools"
CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
NODES = "/api/v1/nodes"
TAINT = "karpenter.sh/disrupted"
FOUR = "c-4x-amd64-linux"

Json = dict[str, Any]


def pool(types: list[str] | None = None, delay: str | None = None, **disruption: Any) -> list[Json]:
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    requirements = [
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types or [FOUR]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    ]
    return [
        {
            "apiVersion": "karpenter.kwok.sh/v1alpha1",
            "kind": "KWOKNodeClass",
            "metadata": {"name": "default"},
            "spec": {"nodeRegistrationDelay": delay} if delay else {},
        },
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "default"},
            "spec": {
                "template": {"spec": {"nodeClassRef": reference, "requirements": requirements}},
                "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}], **disruption},
            },
        },
    ]


def nodes(cluster: Cluster) -> list[Json]:
    return cluster.admin.items(NODES)


def claims(cluster: Cluster) -> list[Json]:
    return cluster.admin.items(CLAIMS)


def name(item: Json) -> str:
    return str(item["metadata"]["name"])


def names(items: list[Json]) -> set[str]:
    return {name(item) for item in items}


def is_tainted(node: Json) -> bool:
    return any(taint["key"] == TAINT for taint in node["spec"].get("taints") or [])


def is_going(node: Json) -> bool:
    return is_tainted(node) or "deletionTimestamp" in node["metadata"]


def is_serving(node: Json) -> bool:
    return not is_going(node) and node["metadata"]["labels"].get("karpenter.sh/initialized") == "true"


def condition(claim: Json, kind: str) -> Json | None:
    return next((c for c in claim.get("status", {}).get("conditions", []) if c["type"] == kind), None)


def pods(cluster: Cluster, namespace: str) -> list[Json]:
    return cluster.admin.items(f"/api/v1/namespaces/{namespace}/pods")


def wait_running(cluster: Cluster, namespace: str, count: int, timeout_s: float = 60.0) -> list[Json]:
    def all_run() -> list[Json] | None:
        found = [p for p in pods(cluster, namespace) if "deletionTimestamp" not in p["metadata"]]
        running = [p for p in found if p["status"].get("phase") == "Running"]
        return running if len(running) == len(found) == count else None

    return wait_until(all_run, timeout_s, what=f"{count} pods run")


def messages(cluster: Cluster, reason: str) -> list[str]:
    found = cluster.admin.items("/api/v1/events")
    return [event["message"] for event in found if event["reason"] == reason]


def one_pod_per_node(cluster: Cluster, namespace: str, count: int, app: str = "web") -> list[Json]:
    """`count` pods of three cores each on `count` machines of four."""
    cluster.apply(deployment(namespace, app, count, cpu="3"))
    wait_running(cluster, namespace, count)
    found = nodes(cluster)
    assert len(found) == count
    return found
