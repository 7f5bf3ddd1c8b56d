"""The ground the end-to-end tests stand on: a real control plane that is reachable, strict and swept."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from .cluster import Binaries, Cluster, wait_until
from .cluster.controlplane import KubectlFailed
from .cluster.sweep import sweep
from .workloads import pause_pod


def test_cluster_runs_the_kubernetes_version_it_was_built_from(cluster: Cluster) -> None:
    """kubectl and the API server agree on the pinned minor version, so neither is a stray one of the machine."""
    version = json.loads(cluster.kubectl("version", "-o", "json"))
    assert version["serverVersion"]["gitVersion"].startswith("v1.36.")
    assert version["clientVersion"]["gitVersion"] == version["serverVersion"]["gitVersion"]


def test_cluster_reports_ready(cluster: Cluster) -> None:
    assert cluster.kubectl("get", "--raw", "/readyz") == "ok"


def test_pod_without_nodes_becomes_unschedulable(cluster: Cluster, namespace: str) -> None:
    """The verdict that all provisioning starts from comes from the real scheduler."""
    cluster.apply(pause_pod(namespace, "lonely"))
    path = f"/api/v1/namespaces/{namespace}/pods/lonely"

    def scheduled_condition() -> dict[str, str] | None:
        conditions = cluster.admin.get(path)["status"].get("conditions", [])
        return next((found for found in conditions if found["type"] == "PodScheduled"), None)

    condition = wait_until(scheduled_condition, what="the scheduler looked at the pod")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")


def test_users_may_do_only_what_a_role_grants(cluster: Cluster, namespace: str) -> None:
    """Access control is on, for static users and for service accounts alike."""
    account = cluster.kubeconfig_for_service_account(namespace, "reader")
    cluster.apply(pause_pod(namespace, "seen"))
    for kubeconfig in (cluster.kubeconfig_for("viewer"), account):
        with pytest.raises(KubectlFailed, match="forbidden"):
            cluster.kubectl("get", "pods", "-n", namespace, kubeconfig=kubeconfig)
    cluster.kubectl(
        *("create", "rolebinding", "readers", "-n", namespace, "--clusterrole=view"),
        *("--user=viewer", f"--serviceaccount={namespace}:reader"),
    )
    for kubeconfig in (cluster.kubeconfig_for("viewer"), account):
        # A binding takes effect a moment after it is made.
        listed = wait_until(
            partial(cluster.kubectl, "get", "pods", "-n", namespace, "-o", "name", kubeconfig=kubeconfig),
            retry_on=(KubectlFailed,),
            what="the binding is in effect",
        )
        assert listed == "pod/seen\n"
        with pytest.raises(KubectlFailed, match="forbidden"):
            cluster.kubectl("delete", "pod", "seen", "-n", namespace, kubeconfig=kubeconfig)


def test_audit_log_names_the_user_and_the_answer(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(KubectlFailed):
        cluster.kubectl("create", "configmap", "nope", "-n", namespace, kubeconfig=cluster.kubeconfig_for("developer"))
    made = [request for request in cluster.requests(user="developer") if request.namespace == namespace]
    assert [(request.verb, request.resource, request.code) for request in made] == [("create", "configmaps", 403)]


@pytest.mark.parametrize("kill", [False, True], ids=["orderly", "crash"])
def test_restarted_api_server_keeps_its_state_and_address(cluster: Cluster, namespace: str, kill: bool) -> None:
    cluster.kubectl("create", "configmap", "kept", "-n", namespace)
    cluster.restart_apiserver(kill=kill)
    assert cluster.admin.get(f"/api/v1/namespaces/{namespace}/configmaps/kept")


def test_sweep_leaves_no_node_and_no_pod_behind(cluster: Cluster, namespace: str) -> None:
    """Finalizers and grace periods that nobody is left to serve do not survive into the next test."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "finalizers": ["karpenter.sh/termination"]}}
    bound = pause_pod(namespace, "bound")
    bound["spec"]["nodeName"] = "n1"
    bound["metadata"]["finalizers"] = ["example.com/held"]
    cluster.apply(node, bound)
    sweep(cluster.admin)
    assert cluster.admin.items("/api/v1/nodes") == []
    assert cluster.admin.items(f"/api/v1/namespaces/{namespace}/pods") == []


def test_failed_start_stops_what_it_started(binaries: Binaries, tmp_path: Path) -> None:
    """A control plane that cannot come up leaves no etcd running and says which program it was."""
    cluster = Cluster(tmp_path, replace(binaries, kube_apiserver=Path("/bin/false")))
    with pytest.raises(RuntimeError, match="kube-apiserver ended with 1"):
        cluster.start()
    assert cluster.layout.log("etcd").exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", cluster.ports.etcd), timeout=5)
