"""Asking a real cluster why, writing it down, and trying the program out without letting it act."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cluster import Cluster, ProgramRunner, wait_until
from .kwok_fleet import claims, name, nodes, pool, wait_running
from .workloads import deployment

pytestmark = pytest.mark.usefixtures("crds")


def test_explain_snapshot_and_dry_run_change_nothing(
    cluster: Cluster, namespace: str, programs: ProgramRunner, tmp_path: Path
) -> None:
    """Live and from a file the same blocker is named; a dry run reports and sends no write."""
    run = programs.start("run", "--provider", "kwok")
    run.wait_ready()
    cluster.apply(*pool())
    body = deployment(namespace, "web", 1, cpu="3")
    body["spec"]["template"]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    cluster.apply(body)
    wait_running(cluster, namespace, 1)
    (node,) = nodes(cluster)
    live = programs.call("explain", "node", name(node))
    assert live.returncode == 0, live.stderr
    assert 'stays: Pod has "karpenter.sh/do-not-disrupt" annotation' in live.stdout
    file = tmp_path / "cluster.yaml"
    written = programs.call("snapshot", "-o", str(file))
    assert written.returncode == 0, written.stderr
    assert programs.call("explain", "node", name(node), "-f", str(file)).stdout.splitlines()[2] in live.stdout

    assert run.terminate() == 0
    dry = programs.start("run", "--provider", "kwok", "--dry-run", kubeconfig=cluster.kubeconfig_for("dry"))
    cluster.kubectl("create", "clusterrolebinding", "dry", "--clusterrole=cluster-admin", "--user=dry")
    try:
        cluster.apply(deployment(namespace, "more", 2, cpu="3"))

        def reported() -> bool:
            told = [entry["message"] for entry in dry.log_entries()]
            return "would create nodeclaim, but this is a dry run" in told

        wait_until(reported, 60, what="the dry run reports what it would create")
        reads = ("get", "list", "watch")
        assert [r for r in cluster.requests() if r.user == "dry" and r.verb not in reads] == []
        assert len(claims(cluster)) == 1
    finally:
        cluster.kubectl("delete", "clusterrolebinding", "dry")
