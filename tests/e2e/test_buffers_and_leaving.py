"""Spare capacity and leaving, on a real Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from .cluster import Cluster, ProgramRunner, wait_until
from .cluster.waiting import stays_true
from .test_machines import CLAIMS, Machines, claim, condition, node_class, pool
from .workloads import deployment, pause_pod, pause_pod_spec


@pytest.fixture
def machines(cluster: Cluster, namespace: str, crds: None) -> Machines:
    cluster.apply(node_class())
    return Machines(cluster, namespace)


@pytest.mark.full
def test_a_buffer_gets_its_capacity_is_consumed_and_refills_within_limits(
    machines: Machines, programs: ProgramRunner
) -> None:
    """Pods that come find room at once; the pool's limit holds all the while."""
    cluster, namespace = machines.cluster, machines.namespace
    programs.start("run", "--provider", "kwok", env={"FEATURE_GATES": "CapacityBuffer=true"}).wait_ready()
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "spare", "namespace": namespace},
        "template": {"spec": pause_pod_spec(cpu="1")},
    }
    buffer: dict[str, Any] = {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "spare", "namespace": namespace},
        "spec": {"podTemplateRef": {"name": "spare"}, "replicas": 3},
    }
    cluster.apply(pool("default", limits={"cpu": "8"}), template, buffer)
    path = f"/apis/autoscaling.x-k8s.io/v1beta1/namespaces/{namespace}/capacitybuffers/spare"

    def provisioning() -> str:
        return str(condition(cluster.admin.find(path), "Provisioning")["reason"])

    wait_until(lambda: len(machines.nodes()) == 1, 60, what="a machine for the buffer")
    wait_until(
        lambda: provisioning() == "FitsExistingCapacity", 90, what=lambda: f"room stands ready: {provisioning()}"
    )
    cluster.apply(deployment(namespace, "web", 3, cpu="1"))

    def running() -> int:
        pods = cluster.admin.items(f"/api/v1/namespaces/{namespace}/pods")
        return sum(pod["status"].get("phase") == "Running" for pod in pods)

    wait_until(lambda: running() == 3, 15, what="the pods run without a new machine")
    wait_until(lambda: len(machines.nodes()) == 2, 90, what="the buffer refills")
    cluster.kubectl("scale", "deployment", "web", "--replicas=6", "-n", namespace)
    wait_until(lambda: running() == 6, 30, what="the next pods take the new room")
    stays_true(lambda: len(machines.nodes()) == 2, 35, what="the limit of 8 cpu")


def test_release_refuses_a_running_controller_and_then_leaves_the_machines(
    machines: Machines, programs: ProgramRunner
) -> None:
    """Afterwards the claims can go and the nodes stay."""
    cluster, namespace = machines.cluster, machines.namespace
    controller = programs.start("run", "--provider", "kwok", env={"KWOK_KUBELETS": "external"})
    controller.wait_ready()
    programs.start("kubelets")
    cluster.apply(claim("kept"))
    node = machines.wait_ready("kept")
    cluster.apply(pause_pod(namespace, "web", cpu="100m"))
    machines.wait_running("web")
    refused = programs.call("release")
    assert refused.returncode == 1
    assert "is held by" in refused.stderr
    controller.kill()
    name = node["metadata"]["name"]
    released = wait_until(
        lambda: (done := programs.call("release")).returncode == 0 and done.stdout, 40, what="the lease runs out"
    )
    assert f"released Node/{name}" in released
    assert "released NodeClaim/kept" in released
    cluster.kubectl("delete", "nodeclaim", "kept")
    assert cluster.admin.find(f"{CLAIMS}/kept") is None
    stays_true(lambda: machines.nodes() == [name] and machines.pod("web"), 5, what="node and pod stay")
