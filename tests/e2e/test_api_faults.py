"""An API server that refuses for a while: nothing is lost, nothing is doubled, nothing is deleted."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from .cluster import Cluster, ProgramRunner, wait_until
from .cluster.proxy import Proxy
from .test_rbac import pool_and_class
from .test_two_replicas import running
from .workloads import deployment

OUTAGE_S = 300.0


def claims(cluster: Cluster) -> list[str]:
    return [found["metadata"]["name"] for found in cluster.admin.items("/apis/karpenter.sh/v1/nodeclaims")]


def test_f23_bursts_of_429_are_waited_out(
    cluster: Cluster, crds: None, namespace: str, programs: ProgramRunner, tmp_path: Path
) -> None:
    """A throttling API server is asked again as it wishes; every pod still gets its machine, and only one."""
    with Proxy(cluster.server, cluster.layout.ca) as proxy:
        kubeconfig = proxy.kubeconfig(cluster.admin_kubeconfig, tmp_path / "proxied.kubeconfig")
        program = programs.start("run", "--provider", "kwok", kubeconfig=kubeconfig)
        program.wait_ready()
        # Two seconds of every four: everything but the lease, which has priority of its own on a real server.
        proxy.refuse = lambda method, path: "/leases/" not in path and int(time.monotonic()) % 4 < 2
        cluster.apply(*pool_and_class(), deployment(namespace, "web", 6, cpu="2"))
        wait_until(lambda: running(cluster, namespace) == 6, 120, what="the pods run in spite of it")
        assert proxy.refused > 0
        proxy.refuse = lambda method, path: False
        before = claims(cluster)
        nodes = cluster.admin.items("/api/v1/nodes")
        assert len(nodes) == len(before), "a machine for each claim, and none beside"
        assert program.is_running


@pytest.mark.full
@pytest.mark.timeout(900)
def test_f23_five_minutes_without_an_api_server_delete_nothing(
    cluster: Cluster, crds: None, namespace: str, programs: ProgramRunner
) -> None:
    """Unknown is not absent: when the server is back everything is where it was, and work goes on."""
    program = programs.start("run", "--provider", "kwok", env={"DISABLE_LEADER_ELECTION": "false"})
    program.wait_ready()
    cluster.apply(*pool_and_class(), deployment(namespace, "web", 4, cpu="1"))
    wait_until(lambda: running(cluster, namespace) == 4, 60, what="the pods run")
    time.sleep(30)
    before = identities(cluster, namespace)
    cluster.stop_apiserver(kill=True)
    time.sleep(OUTAGE_S)
    cluster.start_apiserver()
    wait_until(lambda: program.probe("/readyz") == 200, 120, what="the program is ready again")
    # Long enough for the leader to be elected again and for two rounds of garbage collection.
    time.sleep(60)
    assert before <= identities(cluster, namespace), "the same claims, nodes and pods, none of them going"
    cluster.kubectl("scale", "deployment", "web", "--replicas=8", "-n", namespace)
    wait_until(lambda: running(cluster, namespace) == 8, 180, what="it goes on")


def identities(cluster: Cluster, namespace: str) -> set[str]:
    """The UIDs of all claims, nodes and pods that nobody has deleted."""
    paths = ("/apis/karpenter.sh/v1/nodeclaims", "/api/v1/nodes", f"/api/v1/namespaces/{namespace}/pods")
    found = [item["metadata"] for path in paths for item in cluster.admin.items(path)]
    return {meta["uid"] for meta in found if "deletionTimestamp" not in meta}
