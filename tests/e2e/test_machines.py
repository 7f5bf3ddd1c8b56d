"""The life of machines on a real Kubernetes: drains, deadlines, deletions in order, static pools, reboots, orphans."""

from __future__ import annotations

from typing import Any

import pytest

from .cluster import Cluster, Program, ProgramRunner, wait_until
from .cluster.waiting import stays_true
from .workloads import deployment, pause_pod

POOLS = "/apis/karpenter.sh/v1/nodepools"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
NODES = "/api/v1/nodes"
CLASS_REF = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
TYPES = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-4x-amd64-linux"]}


def node_class() -> dict[str, Any]:
    return {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}


def claim(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name},
        "spec": {
            "nodeClassRef": CLASS_REF,
            "requirements": [TYPES],
            "resources": {"requests": {"cpu": "1"}},
            **spec,
        },
    }


def pool(name: str, template: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": {"nodeClassRef": CLASS_REF, "requirements": [TYPES], **(template or {})}},
            "disruption": {"consolidateAfter": "Never"},
            **spec,
        },
    }


def condition(obj: dict[str, Any] | None, kind: str) -> dict[str, Any]:
    conditions = (obj or {}).get("status", {}).get("conditions", [])
    return next((found for found in conditions if found["type"] == kind), {"status": "", "reason": ""})


class Machines:
    """What these tests look at."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def claim(self, name: str) -> dict[str, Any] | None:
        return self.cluster.admin.find(f"{CLAIMS}/{name}")

    def wait_ready(self, name: str) -> dict[str, Any]:
        """The claim's Node, once the claim is Ready."""
        wait_until(lambda: condition(self.claim(name), "Ready")["status"] == "True", what=f"claim {name} is Ready")
        ready = self.claim(name)
        assert ready is not None
        node: dict[str, Any] = self.cluster.admin.get(f"{NODES}/{ready['status']['nodeName']}")
        return node

    def wait_gone(self, name: str, timeout_s: float = 60.0) -> None:
        wait_until(
            lambda: self.claim(name) is None,
            timeout_s,
            what=lambda: f"claim {name} is gone; {condition(self.claim(name), 'Drained')}",
        )

    def pod(self, name: str) -> dict[str, Any] | None:
        return self.cluster.admin.find(f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    def wait_running(self, name: str) -> None:
        wait_until(lambda: (self.pod(name) or {}).get("status", {}).get("phase") == "Running", what=f"{name} runs")

    def nodes(self) -> list[str]:
        return sorted(node["metadata"]["name"] for node in self.cluster.admin.items(NODES))


@pytest.fixture
def machines(cluster: Cluster, namespace: str, crds: None) -> Machines:
    cluster.apply(node_class())
    return Machines(cluster, namespace)


@pytest.fixture
def program(programs: ProgramRunner, machines: Machines) -> Program:
    started = programs.start("run", "--provider", "kwok", env={"FEATURE_GATES": "StaticCapacity=true"})
    started.wait_ready()
    return started


def on(node: dict[str, Any], pod: dict[str, Any]) -> dict[str, Any]:
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node["metadata"]["labels"]["kubernetes.io/hostname"]}
    return pod


def test_a_drain_waits_for_a_budget_and_a_protected_pod(machines: Machines, program: Program) -> None:
    """Both hold the node; taking them away lets it go, and nothing is left."""
    cluster, namespace = machines.cluster, machines.namespace
    cluster.apply(claim("held"))
    node = machines.wait_ready("held")
    protected = on(node, pause_pod(namespace, "protected", cpu="100m"))
    protected["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    budgeted = on(node, pause_pod(namespace, "budgeted", cpu="100m"))
    budgeted["metadata"]["labels"] = {"app": "budgeted"}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "tight", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "budgeted"}}},
    }
    cluster.apply(budget, protected, budgeted)
    for name in ("protected", "budgeted"):
        machines.wait_running(name)
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/tight"
    wait_until(lambda: cluster.admin.get(path)["status"].get("currentHealthy") == 1, what="the budget counts its pod")
    cluster.kubectl("delete", "nodeclaim", "held", "--wait=false")
    wait_until(lambda: condition(machines.claim("held"), "Drained")["reason"] == "Draining", what="the drain began")
    stays_true(lambda: machines.pod("protected") and machines.pod("budgeted"), 5, what="both pods are kept")
    cluster.kubectl("delete", "pdb", "tight", "-n", namespace)
    wait_until(lambda: machines.pod("budgeted") is None, what="the pod without a budget leaves")
    stays_true(lambda: machines.pod("protected"), 2, what="the protected pod is kept")
    cluster.kubectl("annotate", "pod", "protected", "-n", namespace, "karpenter.sh/do-not-disrupt-")
    machines.wait_gone("held")
    assert machines.nodes() == []


def test_the_termination_grace_period_forces_at_its_deadline(machines: Machines, program: Program) -> None:
    """No annotation outlasts it."""
    cluster, namespace = machines.cluster, machines.namespace
    cluster.apply(claim("bounded", terminationGracePeriod="15s"))
    node = machines.wait_ready("bounded")
    stubborn = on(node, pause_pod(namespace, "stubborn", cpu="100m"))
    stubborn["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    stubborn["spec"]["terminationGracePeriodSeconds"] = 5
    cluster.apply(stubborn)
    machines.wait_running("stubborn")
    cluster.kubectl("delete", "nodeclaim", "bounded", "--wait=false")
    stays_true(lambda: machines.pod("stubborn"), 6, what="the pod has its time")
    machines.wait_gone("bounded", 40)
    assert machines.nodes() == []


def test_a_deleted_node_goes_with_its_claim_and_in_order(machines: Machines, program: Program) -> None:
    """The pod leaves first, then the Node, then the claim."""
    cluster, namespace = machines.cluster, machines.namespace
    cluster.apply(claim("ordered"))
    node = machines.wait_ready("ordered")
    cluster.apply(on(node, pause_pod(namespace, "web", cpu="100m")))
    machines.wait_running("web")
    cluster.kubectl("delete", "node", node["metadata"]["name"], "--wait=false")
    seen: list[str] = []

    def watch() -> bool:
        here = {
            "pod": machines.pod("web"),
            "node": cluster.admin.find(f"{NODES}/{node['metadata']['name']}"),
            "claim": machines.claim("ordered"),
        }
        seen.extend(name for name, found in here.items() if found is None and name not in seen)
        return len(seen) == 3

    wait_until(watch, 60, what=lambda: f"all are gone; gone so far: {seen}", interval_s=0.02)
    assert seen == ["pod", "node", "claim"]


def test_a_static_pool_follows_kubectl_scale(machines: Machines, program: Program) -> None:
    """The scale subresource is all a user needs."""
    cluster = machines.cluster
    cluster.apply(pool("fixed", replicas=2))
    wait_until(lambda: len(machines.nodes()) == 2, 60, what="two machines")
    cluster.kubectl("scale", "nodepool", "fixed", "--replicas=3")
    wait_until(lambda: len(machines.nodes()) == 3, 60, what="three machines")
    cluster.kubectl("scale", "nodepool", "fixed", "--replicas=1")
    wait_until(lambda: len(machines.nodes()) == 1, 90, what="one machine")


@pytest.mark.full
def test_an_expired_node_is_replaced(machines: Machines, program: Program) -> None:
    """Its pods get another machine."""
    cluster, namespace = machines.cluster, machines.namespace
    cluster.apply(pool("short", {"expireAfter": "20s"}), deployment(namespace, "web", 1, cpu="1"))
    first = wait_until(machines.nodes, 60, what="a machine")
    wait_until(
        lambda: machines.nodes() and first[0] not in machines.nodes(), 90, what="another machine, and the first is gone"
    )


def test_a_committed_reboot_keeps_the_node_and_its_pods(machines: Machines, program: Program) -> None:
    """What repair commits, the controller carries out."""
    cluster, namespace = machines.cluster, machines.namespace
    cluster.apply(claim("rebooted"))
    node = machines.wait_ready("rebooted")
    cluster.apply(on(node, pause_pod(namespace, "web", cpu="100m")))
    machines.wait_running("web")
    pod_uid = (machines.pod("web") or {})["metadata"]["uid"]
    grace = {"metadata": {"annotations": {"karpenter.sh/reboot-termination-grace-period": "0s"}}}
    committed = cluster.admin.patch(f"{CLAIMS}/rebooted", grace)
    conditions = committed["status"]["conditions"]
    stamp = max(found["lastTransitionTime"] for found in conditions)
    conditions.append(
        {
            "type": "Rebooting",
            "status": "True",
            "reason": "RebootRequested",
            "message": "rebooting for KWOKRebootRequired/Test",
            "lastTransitionTime": stamp,
        }
    )
    cluster.admin.patch(f"{CLAIMS}/rebooted/status", {"status": {"conditions": conditions}})
    wait_until(
        lambda: condition(machines.claim("rebooted"), "Rebooting")["reason"] == "RebootSucceeded",
        60,
        what=lambda: f"the reboot ends; {condition(machines.claim('rebooted'), 'Rebooting')}",
    )
    after = machines.wait_ready("rebooted")
    assert after["metadata"]["uid"] == node["metadata"]["uid"]
    assert after["status"]["nodeInfo"]["bootID"] != node["status"]["nodeInfo"]["bootID"]
    assert (machines.pod("web") or {})["metadata"]["uid"] == pod_uid


@pytest.mark.full
def test_an_instance_without_a_claim_is_collected(
    machines: Machines, program: Program, programs: ProgramRunner
) -> None:
    """Somebody tore its claim away; the machine must not be paid for for ever."""
    cluster = machines.cluster
    cluster.apply(claim("torn"))
    node = machines.wait_ready("torn")
    name = node["metadata"]["name"]
    program.kill()
    cluster.admin.patch(f"{NODES}/{name}", {"metadata": {"ownerReferences": None}})
    cluster.admin.patch(f"{CLAIMS}/torn", {"metadata": {"finalizers": None}})
    cluster.kubectl("delete", "nodeclaim", "torn")
    assert machines.nodes() == [name]
    programs.start("run", "--provider", "kwok")
    wait_until(lambda: machines.nodes() == [], 120, what="the orphan is collected")
