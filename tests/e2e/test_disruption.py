"""Disruption on a real Kubernetes: its own scheduler moves the pods, its own eviction API guards them.

Every test starts the controller as a process of its own with the KWOK provider and looks only at the cluster.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from .cluster import Cluster, ProgramRunner, wait_until
from .cluster.program import Program
from .cluster.waiting import stays_true
from .kwok_fleet import (
    CLAIMS,
    CLASSES,
    NODES,
    POOLS,
    Json,
    claims,
    condition,
    is_going,
    is_serving,
    is_tainted,
    messages,
    name,
    names,
    nodes,
    one_pod_per_node,
    pool,
    wait_running,
)
from .workloads import deployment

pytestmark = pytest.mark.usefixtures("crds")


@pytest.fixture
def run(programs: ProgramRunner) -> Program:
    """The controller, ready."""
    program = programs.start("run", "--provider", "kwok", env={"FEATURE_GATES": "NodeRepair=true"})
    program.wait_ready()
    return program


def drift(cluster: Cluster) -> None:
    """Change the template: every node is out of date."""
    patch = {"spec": {"template": {"metadata": {"labels": {"generation": "two"}}}}}
    cluster.admin.patch(f"{POOLS}/default", patch)


def test_under_used_nodes_are_consolidated_and_no_pod_is_lost(cluster: Cluster, namespace: str, run: Program) -> None:
    """L7: the real scheduler puts every evicted pod somewhere; the bill goes down."""
    cluster.apply(*pool())
    one_pod_per_node(cluster, namespace, 3, "large")
    cluster.apply(deployment(namespace, "web", 3, cpu="500m"))
    wait_running(cluster, namespace, 6)
    cluster.kubectl("delete", "deployment", "large", "-n", namespace)
    wait_until(lambda: len(nodes(cluster)) == 1, 150, what="one node is left")
    wait_running(cluster, namespace, 3)
    assert any(message == "Disrupting Node: Underutilized" for message in messages(cluster, "DisruptionTerminating"))


def test_drift_replaces_first_and_protection_holds(cluster: Cluster, namespace: str, run: Program) -> None:
    """S5, S6, S8: one node at a time, its replacement first; a PDB and do-not-disrupt keep theirs."""
    cluster.apply(*pool(consolidateAfter="Never", budgets=[{"nodes": "1"}]))
    guarded = deployment(namespace, "guarded", 1, cpu="3")
    protected = deployment(namespace, "protected", 1, cpu="3")
    template = protected["spec"]["template"]["metadata"]
    template["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded", "namespace": namespace},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    cluster.apply(guarded, protected, budget, deployment(namespace, "free", 2, cpu="3"))
    placed = {p["metadata"]["labels"]["app"]: p["spec"]["nodeName"] for p in wait_running(cluster, namespace, 4)}
    before = names(nodes(cluster))
    kept = {placed["guarded"], placed["protected"]}
    drift(cluster)
    most_going, deadline = 0, time.monotonic() + 120
    while (before - kept) & names(nodes(cluster)):
        found = nodes(cluster)
        most_going = max(most_going, sum(is_going(node) for node in found))
        assert sum(is_serving(node) for node in found) >= 3, "a replacement comes first"
        assert time.monotonic() < deadline, "both free nodes are replaced"
        time.sleep(0.2)
    assert most_going == 1
    wait_running(cluster, namespace, 4)
    stays_true(lambda: kept <= names(nodes(cluster)), 10, what="protected nodes stay")
    assert not any(is_tainted(node) for node in nodes(cluster) if name(node) in kept)
    told = messages(cluster, "DisruptionBlocked")
    assert any("PDB prevents pod evictions" in message for message in told)
    assert any("do-not-disrupt" in message for message in told)


def test_lost_replacement_leaves_the_old_node_in_service(cluster: Cluster, namespace: str, run: Program) -> None:
    """The test deletes the replacement's claim; the node is untainted and keeps its pod."""
    cluster.apply(*pool(consolidateAfter="Never", delay="3s"))
    (node,) = one_pod_per_node(cluster, namespace, 1)
    (old,) = claims(cluster)
    # From now on machines take their time, so that the replacement can be caught.
    cluster.admin.patch(f"{CLASSES}/default", {"spec": {"nodeRegistrationDelay": "60s"}})
    drift(cluster)

    def replacement() -> Json | None:
        return next((claim for claim in claims(cluster) if name(claim) != name(old)), None)

    found = wait_until(replacement, 60, what="the replacement exists")
    wait_until(lambda: is_tainted(cluster.admin.get(f"{NODES}/{name(node)}")), what="the old node is tainted")
    cluster.admin.delete(f"{CLAIMS}/{name(found)}")
    wait_until(lambda: not is_tainted(cluster.admin.get(f"{NODES}/{name(node)}")), 30, what="the taint is gone")
    claim = cluster.admin.get(f"{CLAIMS}/{name(old)}")
    assert condition(claim, "DisruptionReason") is None
    assert "deletionTimestamp" not in claim["metadata"]
    wait_running(cluster, namespace, 1)
    annotations = cluster.admin.get(f"{POOLS}/default")["metadata"]["annotations"]
    assert annotations["pykarpenter.sh/replacement-back-off"].startswith("1/")


def make_sick(cluster: Cluster, node: str, kind: str) -> None:
    """Add a fault to the node's conditions, as a monitoring agent would."""
    fault = {
        "type": kind,
        "status": "True",
        "reason": "Injected",
        "message": "by the test",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    path = f"{NODES}/{node}/status"
    strategic = "application/strategic-merge-patch+json"
    cluster.admin.patch(path, {"status": {"conditions": [fault]}}, content_type=strategic)


def test_unhealthy_node_is_repaired_replacement_first(cluster: Cluster, namespace: str, run: Program) -> None:
    """S8: five nodes keep serving while the sick one is replaced."""
    cluster.apply(*pool(consolidateAfter="Never"))
    found = one_pod_per_node(cluster, namespace, 5)
    sick = name(found[0])
    make_sick(cluster, sick, "KWOKUnhealthy")
    deadline = time.monotonic() + 120
    while sick in names(nodes(cluster)):
        serving = [node for node in nodes(cluster) if is_serving(node)]
        assert len(serving) >= (5 if any("deletionTimestamp" in n["metadata"] for n in nodes(cluster)) else 4)
        assert time.monotonic() < deadline, "the sick node goes"
        time.sleep(0.2)
    wait_running(cluster, namespace, 5)
    assert any(message == "Disrupting Node: Unhealthy" for message in messages(cluster, "DisruptionTerminating"))


@pytest.mark.full
def test_breaker_freezes_repair_above_a_fifth(cluster: Cluster, namespace: str, run: Program) -> None:
    """F28: two of five at once; nothing is repaired and three kinds of objects say why."""
    cluster.apply(*pool(consolidateAfter="Never"))
    found = one_pod_per_node(cluster, namespace, 5)
    for node in found[:2]:
        make_sick(cluster, name(node), "KWOKUnhealthy")
    wait_until(lambda: messages(cluster, "NodeRepairBlocked"), 90, what="repair says that it is blocked")
    stays_true(lambda: names(nodes(cluster)) == names(found), 20, what="all nodes stay")


@pytest.mark.full
@pytest.mark.timeout(600)
def test_persistent_reboot_fault_gives_two_reboots_then_a_replacement(
    cluster: Cluster, namespace: str, run: Program
) -> None:
    """A machine that two reboots did not heal is not rebooted for ever."""
    cluster.apply(*pool(consolidateAfter="Never"))
    found = one_pod_per_node(cluster, namespace, 5)
    sick = name(found[0])

    def boots() -> str:
        node = cluster.admin.find(f"{NODES}/{sick}")
        return str(node["status"]["nodeInfo"]["bootID"]) if node is not None else "gone"

    seen = [boots()]
    make_sick(cluster, sick, "KWOKRebootRequired")
    deadline = time.monotonic() + 400
    while seen[-1] != "gone":
        assert time.monotonic() < deadline, f"boots so far: {seen}"
        now = boots()
        if now != seen[-1]:
            seen.append(now)
        time.sleep(0.5)
    assert len(seen) == 4, "the first boot, two reboots, gone"
    wait_running(cluster, namespace, 5)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_window_of_zero_holds_then_empty_nodes_go_within_budget(cluster: Cluster, namespace: str, run: Program) -> None:
    """S4 and F41 on a real clock: nothing before the end of the freeze, then at most two at a time."""
    now = datetime.now(UTC)
    minutes = 2 if now.second < 40 else 3
    freeze = {"nodes": "0", "schedule": f"{now.minute} {now.hour} * * *", "duration": f"{minutes}m"}
    opens = now.replace(second=0, microsecond=0).timestamp() + minutes * 60
    cluster.apply(*pool(budgets=[{"nodes": "2"}, freeze]))
    one_pod_per_node(cluster, namespace, 3)
    cluster.kubectl("scale", "deployment", "web", "--replicas=0", "-n", namespace)
    while time.time() < opens - 1:
        assert len(nodes(cluster)) == 3
        assert not any(is_going(node) for node in nodes(cluster))
        time.sleep(0.5)
    most, deadline = 0, time.monotonic() + 150
    while nodes(cluster):
        most = max(most, sum(is_going(node) for node in nodes(cluster)))
        assert time.monotonic() < deadline, "all empty nodes go"
        time.sleep(0.2)
    assert most == 2


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_replacement_that_never_registers_is_given_up(cluster: Cluster, namespace: str, run: Program) -> None:
    """F27: the command ends by its time-out or the claim's, and the old node serves on."""
    cluster.apply(*pool(consolidateAfter="Never", delay="1s"))
    (node,) = one_pod_per_node(cluster, namespace, 1)
    cluster.admin.patch(f"{CLASSES}/default", {"spec": {"nodeRegistrationDelay": "2h"}})
    drift(cluster)
    wait_until(lambda: is_tainted(cluster.admin.get(f"{NODES}/{name(node)}")), 60, what="the old node is tainted")
    wait_until(
        lambda: not is_tainted(cluster.admin.get(f"{NODES}/{name(node)}")), 16 * 60, what="the command is given up"
    )
    wait_running(cluster, namespace, 1)
