"""One real path: a pending pod gets a machine on a real Kubernetes, and the machine goes away again.

The scheduler and the controllers are Kubernetes' own, access control is on, and the program runs as a user of its own
in a process of its own. What happened is read from the cluster and from the API server's audit log.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest

from pykarpenter.runtime.settings import KARPENTER_SETTINGS

from .cluster import Cluster, ProgramRunner, wait_until
from .cluster.program import LEASE_NAMESPACE, Program
from .cluster.waiting import stays_true
from .workloads import deployment

pytestmark = pytest.mark.usefixtures("crds")

USER = "pykarpenter"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
NODES = "/api/v1/nodes"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/karpenter-leader-election"

Start = Callable[..., Program]


@pytest.fixture
def start(cluster: Cluster, programs: ProgramRunner) -> Start:
    """Starts the controller as its own user."""
    binding = ("create", "clusterrolebinding", USER, "--clusterrole=cluster-admin", f"--user={USER}")
    cluster.kubectl("delete", "clusterrolebinding", USER, "--ignore-not-found")
    cluster.kubectl(*binding)
    kubeconfig = cluster.kubeconfig_for(USER)

    def start(*flags: str, **env: str) -> Program:
        return programs.start("run", "--provider", "kwok", *flags, kubeconfig=kubeconfig, env=env)

    return start


def pool(**spec: Any) -> list[dict[str, Any]]:
    """A NodePool and its class. Nodes stay until somebody deletes them, so that tests decide."""
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    linux = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    return [
        {
            "apiVersion": "karpenter.kwok.sh/v1alpha1",
            "kind": "KWOKNodeClass",
            "metadata": {"name": "default"},
            "spec": {},
        },
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "default"},
            "spec": {
                "template": {"spec": {"nodeClassRef": reference, "requirements": [linux]}},
                "disruption": {"consolidateAfter": "Never"},
                **spec,
            },
        },
    ]


def pods(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    return cluster.admin.items(f"/api/v1/namespaces/{namespace}/pods")


def wait_running(cluster: Cluster, namespace: str, count: int, timeout_s: float = 60.0) -> list[dict[str, Any]]:
    """The pods, once exactly so many exist and all of them run."""

    def all_run() -> list[dict[str, Any]] | None:
        found = pods(cluster, namespace)
        running = [pod for pod in found if pod["status"].get("phase") == "Running"]
        return found if len(found) == len(running) == count else None

    return wait_until(all_run, timeout_s, what=f"{count} pods run")


def names(cluster: Cluster, collection: str) -> set[str]:
    return {item["metadata"]["name"] for item in cluster.admin.items(collection)}


def created(cluster: Cluster, resource: str, since: int, alive: set[str]) -> list[str]:
    """Names of what was created since that many audit entries.

    A client that stops before the answer leaves a 504 behind, whether the object was stored or not: those alive were.
    """
    sent = [request for request in cluster.requests(verb="create")[since:] if request.resource == resource]
    answered = [request.name for request in sent if request.code == 201]
    unanswered = {request.name for request in sent if request.code == 504} & alive
    return answered + sorted(unanswered.difference(answered))


def assert_bought_once(cluster: Cluster, namespace: str, since: int) -> None:
    """Every machine was bought once, is alive, and is used."""
    live_claims, live_nodes = names(cluster, CLAIMS), names(cluster, NODES)
    claims = created(cluster, "nodeclaims", since, live_claims)
    nodes = created(cluster, "nodes", since, live_nodes)
    assert sorted(claims) == sorted(live_claims)
    assert sorted(nodes) == sorted(live_nodes) and len(nodes) == len(claims)
    assert {pod["spec"]["nodeName"] for pod in pods(cluster, namespace)} == live_nodes


def test_pending_pods_get_machines_and_leave_nothing_behind(cluster: Cluster, namespace: str, start: Start) -> None:
    """Deployment → Pending → NodeClaim → Node → bound → Running; and back to nothing."""
    program = start()
    program.wait_ready()
    cluster.apply(*pool(), deployment(namespace, "web", 5, cpu="1"))
    running = wait_running(cluster, namespace, 5)
    (claim,) = cluster.admin.items(CLAIMS)
    (node,) = cluster.admin.items(NODES)
    assert node["metadata"]["labels"]["karpenter.sh/initialized"] == "true"
    assert {pod["spec"]["nodeName"] for pod in running} == {node["metadata"]["name"]} == {claim["status"]["nodeName"]}
    ready = {found["type"]: found["status"] for found in claim["status"]["conditions"]}
    assert ready["Ready"] == ready["Launched"] == ready["Registered"] == ready["Initialized"] == "True"
    plan = claim["metadata"]["annotations"]["pykarpenter.sh/plan-id"]
    told = [entry["message"] for entry in program.log_entries() if entry.get("plan") == plan]
    assert told[:3] == [
        "found provisionable pod(s)",
        "computed new nodeclaim(s) to fit pod(s)",
        "created nodeclaim",
    ]
    events = cluster.admin.items(f"/api/v1/namespaces/{namespace}/events")
    assert any(event["reason"] == "Nominated" and claim["metadata"]["name"] in event["message"] for event in events)
    assert 'karpenter_nodeclaims_created_total{min_values_relaxed="false",nodepool="default"' in program.metrics()

    cluster.kubectl("scale", "deployment", "web", "--replicas=0", "-n", namespace)
    cluster.kubectl("delete", "nodeclaims", "--all", "--wait=true", "--timeout=60s")
    wait_until(lambda: not names(cluster, NODES) and not pods(cluster, namespace), what="nodes and pods are gone")
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    wait_until(lambda: not names(cluster, leases), what="node leases are gone")

    assert program.terminate() == 0
    assert not cluster.admin.get(LEASE)["spec"].get("holderIdentity"), "the lease is handed back"


def test_restart_in_the_middle_loses_and_doubles_nothing(cluster: Cluster, namespace: str, start: Start) -> None:
    since = len(cluster.requests(verb="create"))
    first = start()
    first.wait_ready()
    cluster.apply(*pool(limits={"cpu": "64"}), deployment(namespace, "web", 12, cpu="3"))
    wait_until(lambda: names(cluster, CLAIMS), interval_s=0.02, what="the first claim exists")
    assert first.terminate() == 0
    second = start()
    wait_running(cluster, namespace, 12)
    stays_true(lambda: len(pods(cluster, namespace)) == 12, 2, what="nothing is replaced")
    assert_bought_once(cluster, namespace, since)
    assert second.is_running


def test_kill_right_after_launch_buys_no_second_node(cluster: Cluster, namespace: str, start: Start) -> None:
    """The process dies without a word the moment its machine exists; the successor waits for the lease and adopts."""
    since = len(cluster.requests(verb="create"))
    first = start()
    first.wait_ready()
    cluster.apply(*pool(), deployment(namespace, "web", 3, cpu="1"))
    wait_until(lambda: names(cluster, NODES), interval_s=0.01, what="the machine exists")
    first.send(signal.SIGKILL)
    second = start()
    wait_running(cluster, namespace, 3, timeout_s=90)
    assert_bought_once(cluster, namespace, since)
    assert second.is_running and first.exit_code == -signal.SIGKILL


def test_api_server_restart_is_survived(cluster: Cluster, namespace: str, start: Start) -> None:
    since = len(cluster.requests(verb="create"))
    program = start()
    program.wait_ready()
    cluster.apply(*pool(), deployment(namespace, "web", 2, cpu="1"))
    wait_running(cluster, namespace, 2)
    before = names(cluster, NODES)
    cluster.restart_apiserver(kill=True)
    cluster.kubectl("scale", "deployment", "web", "--replicas=40", "-n", namespace)
    wait_running(cluster, namespace, 40, timeout_s=120)
    assert program.is_running and names(cluster, NODES) > before
    assert_bought_once(cluster, namespace, since)


def test_every_variable_of_karpenter_at_its_default_is_accepted(start: Start) -> None:
    """The environment block of an existing Deployment starts ours."""
    env = {item.env: item.default for item in KARPENTER_SETTINGS}
    for name in ("METRICS_PORT", "HEALTH_PROBE_PORT"):
        if not _is_free(int(env[name])):
            del env[name]
    env["LEADER_ELECTION_NAMESPACE"] = LEASE_NAMESPACE
    program = start(**env)
    wait_until(lambda: "starting controllers" in program.log() or not program.is_running, 60, what="it leads")
    assert program.is_running, program.log_tail()
    assert not [entry for entry in program.log_entries() if "ignored" in entry["message"]]


def test_bad_settings_exit_1_with_all_of_them(start: Start) -> None:
    program = start("--log-level=loud", BATCH_MAX_DURATION="soon", FEATURE_GATES="NodeRepair=")
    assert program.wait(30) == 1
    for problem in ("--log-level", "BATCH_MAX_DURATION", "FEATURE_GATES"):
        assert problem in program.log()


def test_external_kubelets_leave_nodes_alone(
    cluster: Cluster, namespace: str, start: Start, programs: ProgramRunner
) -> None:
    start("--kwok-kubelets=external").wait_ready()
    cluster.apply(*pool(), deployment(namespace, "web", 1, cpu="1"))
    (node,) = wait_until(lambda: cluster.admin.items(NODES), what="the node exists")
    path = f"{NODES}/{node['metadata']['name']}"
    assert node["metadata"]["labels"]["kwok-partition"] == "a"
    stays_true(lambda: not _is_ready(cluster.admin.get(path)), 3, what="nobody plays its kubelet")
    programs.start("kubelets")
    wait_running(cluster, namespace, 1)
    assert _is_ready(cluster.admin.get(path))


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
