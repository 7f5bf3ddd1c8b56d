"""`pykarpenter run` on a real API server with a service account's own token and exactly the printed roles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykarpenter.runtime.feature_gates import GATES

from .cluster import Cluster, ProgramRunner, wait_until
from .workloads import deployment

ACCOUNT = "karpenter"
NONE, ALL = "none", "all"


def pool_and_class() -> list[dict[str, Any]]:
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    on_demand = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
    template = {"spec": {"nodeClassRef": reference, "requirements": [on_demand], "terminationGracePeriod": "30s"}}
    return [
        {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}},
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "default"},
            "spec": {"template": template, "disruption": {"consolidateAfter": "1s", "budgets": [{"nodes": "100%"}]}},
        },
    ]


def gates(which: str) -> str:
    names = {gate.name for gate in GATES} if which == ALL else {which} - {NONE}
    return ",".join(f"{gate.name}={str(gate.name in names).lower()}" for gate in GATES)


def grant(
    cluster: Cluster,
    programs: ProgramRunner,
    namespace: str,
    chosen: str,
    *,
    account: str = ACCOUNT,
    lease_namespace: str = "",
) -> Path:
    """A kubeconfig of a fresh account that has the printed roles and no other right."""
    named = ["--service-account", account, "--name", f"{namespace}-{account}"]
    env = {"LEADER_ELECTION_NAMESPACE": lease_namespace or namespace, "FEATURE_GATES": chosen}
    printed = programs.call("rbac", "--provider", "kwok", "--namespace", namespace, *named, env=env)
    assert printed.returncode == 0, printed.stderr
    cluster.kubectl("apply", "-f", "-", input=printed.stdout)
    return cluster.kubeconfig_for_service_account(namespace, account)


def refused(cluster: Cluster, namespace: str) -> list[str]:
    user = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    asked = cluster.requests(user=user)
    assert asked, "the audit log has nothing of the account: is this the right token?"
    return [f"{r.verb} {r.group}/{r.resource} {r.namespace}/{r.name}" for r in asked if r.code == 403]


def live(cluster: Cluster, programs: ProgramRunner, namespace: str, which: str, *, consolidates: bool = False) -> None:
    chosen = gates(which)
    kubeconfig = grant(cluster, programs, namespace, chosen)
    env = {"FEATURE_GATES": chosen, "LEADER_ELECTION_NAMESPACE": namespace, "BATCH_IDLE_DURATION": "200ms"}
    program = programs.start("run", "--provider", "kwok", kubeconfig=kubeconfig, env=env)
    program.wait_ready()
    cluster.apply(*pool_and_class(), deployment(namespace, "web", 3, cpu="1"))

    def running() -> int:
        pods = cluster.admin.items(f"/api/v1/namespaces/{namespace}/pods")
        return sum(pod["status"].get("phase") == "Running" for pod in pods)

    wait_until(lambda: running() == 3, 60, what="the pods run")
    cluster.kubectl("scale", "deployment", "web", "--replicas=0", "-n", namespace)
    if not consolidates:
        cluster.kubectl("delete", "nodeclaims", "--all", "--wait=false")
    wait_until(lambda: not cluster.admin.items("/apis/karpenter.sh/v1/nodeclaims"), 90, what="the machine is gone")
    wait_until(lambda: not cluster.admin.items("/api/v1/nodes"), what="its Node is gone")
    assert program.terminate() == 0
    assert refused(cluster, namespace) == []


def test_run_works_with_exactly_its_rights(
    cluster: Cluster, crds: None, namespace: str, programs: ProgramRunner
) -> None:
    """A role that is too small shows only where RBAC is enforced."""
    live(cluster, programs, namespace, NONE)


def test_run_works_with_exactly_the_rights_of_all_gates(
    cluster: Cluster, crds: None, namespace: str, programs: ProgramRunner
) -> None:
    """With everything on, down to an empty machine that is taken away on the program's own decision."""
    live(cluster, programs, namespace, ALL, consolidates=True)


@pytest.mark.full
@pytest.mark.parametrize("which", [gate.name for gate in GATES])
def test_run_works_with_exactly_the_rights_of_one_gate(
    which: str, cluster: Cluster, crds: None, namespace: str, programs: ProgramRunner
) -> None:
    """`make test` tries each gate's rights on the in-process store; this is the last word."""
    live(cluster, programs, namespace, which)


def test_without_roles_the_program_says_what_it_may_not_do(
    cluster: Cluster, crds: None, namespace: str, programs: ProgramRunner
) -> None:
    """Nobody should have to guess why nothing happens."""
    kubeconfig = cluster.kubeconfig_for_service_account(namespace, "nobody")
    program = programs.start("run", "--provider", "kwok", kubeconfig=kubeconfig)
    wait_until(lambda: "forbidden" in program.log().lower(), 60, what="the log names what is forbidden")
    assert program.probe("/readyz") != 200
