"""Two replicas on a real Kubernetes: only one acts, a frozen leader that wakes does no harm, a dead one is replaced."""

from __future__ import annotations

import time
from typing import Any

from .cluster import Cluster, ProgramRunner, wait_until
from .cluster.program import LEASE_NAMESPACE, Program
from .test_rbac import grant, pool_and_class
from .workloads import deployment

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/karpenter-leader-election"
DISRUPTIVE = {"create", "update", "patch", "delete", "deletecollection"}
# Who leads writes here too; a candidate that was frozen may well ask for the lease.
HARMLESS = {"leases", "events"}
TAKEOVER_S = 20.0


def holder(cluster: Cluster) -> str:
    found: dict[str, Any] | None = cluster.admin.find(LEASE)
    return str((found or {}).get("spec", {}).get("holderIdentity") or "")


def leads(program: Program) -> bool:
    return 'leader_election_master_status{name="karpenter-leader-election"} 1.0' in program.metrics()


class Replicas:
    """Two controllers, each with a service account of its own, so that the audit log tells them apart."""

    def __init__(self, cluster: Cluster, programs: ProgramRunner, namespace: str) -> None:
        self._cluster = cluster
        self.users: dict[str, str] = {}
        self.programs: list[Program] = []
        for number in (1, 2):
            account = f"replica-{number}"
            kubeconfig = grant(cluster, programs, namespace, "", account=account, lease_namespace=LEASE_NAMESPACE)
            program = programs.start("run", "--provider", "kwok", name=account, kubeconfig=kubeconfig)
            self.users[account] = f"system:serviceaccount:{namespace}:{account}"
            self.programs.append(program)
        for program in self.programs:
            program.wait_ready()

    def leader_and_other(self) -> tuple[Program, Program]:
        wait_until(lambda: [leads(program) for program in self.programs].count(True) == 1, what="one of two leads")
        first, second = self.programs
        return (first, second) if leads(first) else (second, first)

    def writes(self, program: Program) -> list[str]:
        """Everything that a replica changed and that is not about leading."""
        asked = self._cluster.requests(user=self.users[program.name])
        return [
            f"{request.verb} {request.resource} {request.name}"
            for request in asked
            if request.verb in DISRUPTIVE and request.resource.partition("/")[0] not in HARMLESS and request.code < 300
        ]


def running(cluster: Cluster, namespace: str) -> int:
    pods = cluster.admin.items(f"/api/v1/namespaces/{namespace}/pods")
    return sum(pod["status"].get("phase") == "Running" for pod in pods)


def test_f20_a_frozen_leader_that_wakes_writes_nothing(
    cluster: Cluster, crds: None, namespace: str, programs: ProgramRunner
) -> None:
    """It wakes in the middle of what it was doing, with a lease that it believes in."""
    replicas = Replicas(cluster, programs, namespace)
    leader, other = replicas.leader_and_other()
    cluster.apply(*pool_and_class(), deployment(namespace, "web", 2, cpu="1"))
    wait_until(lambda: running(cluster, namespace) == 2, 60, what="the pods run")
    assert replicas.writes(leader) and not replicas.writes(other)
    # Work is waiting the moment it freezes.
    cluster.kubectl("scale", "deployment", "web", "--replicas=12", "-n", namespace)
    leader.pause()
    before = len(replicas.writes(leader))
    wait_until(lambda: leads(other), 40, what="the other replica took over")
    wait_until(lambda: running(cluster, namespace) == 12, 90, what="the successor finished the work")
    leader.resume()
    wait_until(lambda: not leads(leader), 30, what="the old leader noticed")
    cluster.kubectl("scale", "deployment", "web", "--replicas=14", "-n", namespace)
    wait_until(lambda: running(cluster, namespace) == 14, 60, what="the successor goes on")
    late = replicas.writes(leader)[before:]
    assert late == [], "a write of the old leader after it was frozen"
    assert leads(other) and leader.is_running


def test_a_dead_leader_is_replaced_within_twenty_seconds(
    cluster: Cluster, crds: None, namespace: str, programs: ProgramRunner
) -> None:
    """kill -9 releases nothing: the successor waits for the lease to run out, and not longer."""
    replicas = Replicas(cluster, programs, namespace)
    leader, other = replicas.leader_and_other()
    cluster.apply(*pool_and_class())
    leader.kill()
    killed_at = time.monotonic()
    wait_until(lambda: leads(other), 2 * TAKEOVER_S, what="the other replica took over")
    assert time.monotonic() - killed_at < TAKEOVER_S
    cluster.apply(deployment(namespace, "web", 2, cpu="1"))
    wait_until(lambda: running(cluster, namespace) == 2, 60, what="the successor serves")
