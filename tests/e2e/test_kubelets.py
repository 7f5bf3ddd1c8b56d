"""Simulated kubelets as a process of their own, on a real Kubernetes."""

from __future__ import annotations

from typing import Any

from .cluster import Cluster, ProgramRunner, wait_until
from .cluster.waiting import stays_true
from .workloads import deployment

NODE = "/api/v1/nodes/fake-1"


def fake_node() -> dict[str, Any]:
    resources = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "fake-1", "labels": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def running(cluster: Cluster, namespace: str) -> list[str]:
    pods = cluster.admin.items(f"/api/v1/namespaces/{namespace}/pods")
    return [pod["metadata"]["uid"] for pod in pods if pod["status"].get("phase") == "Running"]


def is_ready(cluster: Cluster) -> bool:
    node = cluster.admin.find(NODE)
    conditions = (node or {}).get("status", {}).get("conditions", [])
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)


def test_nodes_outlive_their_kubelets_and_are_adopted_by_the_next(
    cluster: Cluster, namespace: str, programs: ProgramRunner
) -> None:
    """A crash of the process costs nothing: what it knew is in the cluster."""
    first = programs.start("kubelets")
    cluster.apply(fake_node(), deployment(namespace, "web", 3, cpu="1"))
    wait_until(lambda: is_ready(cluster), what="the node is Ready")
    wait_until(lambda: len(running(cluster, namespace)) == 3, what="the pods run")
    lease = cluster.admin.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/fake-1")
    assert lease["spec"]["holderIdentity"] == "fake-1"
    before = sorted(running(cluster, namespace))
    first.kill()
    stays_true(lambda: sorted(running(cluster, namespace)) == before, 2, what="pods run on")
    programs.start("kubelets")
    cluster.kubectl("scale", "deployment", "web", "--replicas=1", "-n", namespace)
    wait_until(
        lambda: len(cluster.admin.items(f"/api/v1/namespaces/{namespace}/pods")) == 1,
        what="deleted pods stop and are gone",
    )
    assert is_ready(cluster)


def test_unreachable_settings_are_refused(programs: ProgramRunner) -> None:
    """A wrong file is named, and the program does not start."""
    refused = programs.call("kubelets", env={"KUBECONFIG": "no-such-file"})
    assert refused.returncode == 1
    assert "no-such-file" in refused.stderr
