"""The real kubectl on the embedded cluster, served on loopback.

No real control plane is needed here: only the kubectl that the build made.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pykarpenter.api.crds import crds
from pykarpenter.runtime.clock import SystemClock
from pykarpenter.sim.cluster import EmbeddedCluster
from pykarpenter.sim.server import ServedCluster
from pykarpenter.sim.store import Store

from .cluster import Binaries

POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "general"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
            }
        }
    },
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "web:1", "ports": [{"containerPort": 80}]}]},
        },
    },
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kubeletVersion": "v1.36.0"},
    },
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p1", "labels": {"app": "p"}},
    "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "p:1"}]},
}


class Served:
    """A store served from a thread of its own, and kubectl on it."""

    def __init__(self, kubectl: Path, folder: Path) -> None:
        self._program, self._folder = kubectl, folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.store: Store
        self._served: ServedCluster

    async def _start(self) -> None:
        self.store = Store(SystemClock())
        for manifest in crds():
            self.store.create(self.store.resource("apiextensions.k8s.io", "customresourcedefinitions"), manifest)
        self._served = ServedCluster(self.store, self._folder / "kubeconfig")
        await self._served.start()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def start(self) -> None:
        self._thread.start()
        self._run(self._start())

    def stop(self) -> None:
        self._run(self._served.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def do(self, action: Callable[[Store], Any]) -> Any:
        """Runs an action on the store's own thread."""

        async def call() -> Any:
            return action(self.store)

        return self._run(call())

    def popen(self, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "KUBECONFIG": str(self._folder / "kubeconfig"), "HOME": str(self._folder)}
        return subprocess.Popen(
            [str(self._program), *words],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def call(self, *words: str, manifest: Any = None) -> tuple[int, str, str]:
        text = yaml.safe_dump_all(manifest if isinstance(manifest, list) else [manifest]) if manifest else ""
        process = self.popen(*words)
        out, error = process.communicate(text, timeout=60)
        return process.returncode, out, error

    def kubectl(self, *words: str, manifest: Any = None) -> str:
        code, out, error = self.call(*words, manifest=manifest)
        assert code == 0, f"kubectl {' '.join(words)}: {out}{error}"
        return out

    def apply(self, *manifests: Any) -> str:
        return self.kubectl("apply", "-f", "-", manifest=list(manifests))


@pytest.fixture
def served(binaries: Binaries, tmp_path: Path) -> Iterator[Served]:
    served = Served(binaries.kubectl, tmp_path)
    served.start()
    yield served
    served.stop()


def test_apply_twice_says_unchanged(served: Served) -> None:
    """The second apply of the same files changes nothing."""
    assert served.apply(POOL, DEPLOYMENT).splitlines() == [
        "nodepool.karpenter.sh/general created",
        "deployment.apps/web created",
    ]
    assert served.apply(POOL, DEPLOYMENT).splitlines() == [
        "nodepool.karpenter.sh/general unchanged",
        "deployment.apps/web unchanged",
    ]


def test_server_side_apply_changes_nothing_the_second_time(served: Served) -> None:
    """Field ownership is stable, also after a client-side apply."""
    served.apply(DEPLOYMENT)
    words = ("apply", "--server-side", "-f", "-")
    served.kubectl(*words, manifest=[POOL, DEPLOYMENT])
    before = served.do(lambda store: store.rv)
    out = served.kubectl(*words, manifest=[POOL, DEPLOYMENT])
    assert out.splitlines() == [
        "nodepool.karpenter.sh/general serverside-applied",
        "deployment.apps/web serverside-applied",
    ]
    assert served.do(lambda store: store.rv) == before
    changed = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": 3}}  # type: ignore[dict-item]
    code, _, error = served.call(*words, "--field-manager=other", manifest=changed)
    assert code != 0 and 'conflict with "kubectl": .spec.replicas' in error.replace(" using apps/v1", "")


def test_diff_shows_what_an_apply_would_change(served: Served) -> None:
    """Without changing it."""
    served.apply(DEPLOYMENT)
    changed = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": 9}}  # type: ignore[dict-item]
    assert served.call("diff", "-f", "-", manifest=DEPLOYMENT)[:2] == (0, "")
    code, out, _ = served.call("diff", "-f", "-", manifest=changed)
    assert code == 1 and "-  replicas: 2" in out and "+  replicas: 9" in out
    assert served.kubectl("get", "deploy", "web", "-o", "jsonpath={.spec.replicas}") == "2"


def test_get_shows_columns(served: Served) -> None:
    """Server-side tables, narrow and wide, of built-in and custom kinds."""
    served.apply(POOL, NODE, POD)
    assert served.kubectl("get", "nodepools").split()[:5] == ["NAME", "NODECLASS", "NODES", "READY", "AGE"]
    assert served.kubectl("get", "nodes").split()[5:8] == ["n1", "Ready", "<none>"]
    wide = served.kubectl("get", "pods", "-o", "wide")
    assert "NOMINATED NODE" in wide and "n1" in wide
    assert "general" in served.kubectl("get", "nodepool", "-o", "wide")
    assert "No resources found" in served.call("get", "nodeclaims")[2]


def test_get_watch_prints_changes(served: Served) -> None:
    """-w over a Table stream."""
    served.apply(NODE)
    process = served.popen("get", "nodes", "-w")
    assert process.stdout is not None
    try:
        assert process.stdout.readline().split()[:2] == ["NAME", "STATUS"]
        assert process.stdout.readline().split()[:2] == ["n1", "Ready"]
        served.kubectl("cordon", "n1")
        assert process.stdout.readline().split()[:2] == ["n1", "Ready,SchedulingDisabled"]
    finally:
        process.terminate()
        process.communicate(timeout=10)


def test_describe_and_explain(served: Served) -> None:
    """People read these first."""
    served.apply(POOL, NODE, POD)
    assert "Non-terminated Pods:          (1 in total)" in served.kubectl("describe", "node", "n1")
    assert "node.kubernetes.io/not-ready:NoExecute op=Exists for 300s" in served.kubectl("describe", "pod", "p1")
    assert "Node Class Ref:" in served.kubectl("describe", "nodepool", "general")
    assert "FIELD: budgets" in served.kubectl("explain", "nodepool.spec.disruption.budgets")
    assert "FIELD: containers" in served.kubectl("explain", "pod.spec.containers")


def test_api_resources_lists_kinds_with_short_names(served: Served) -> None:
    """Discovery of built-in and custom kinds."""
    out = served.kubectl("api-resources")
    assert "nodepools" in out and "NodeClaim" in out and "deploy" in out
    assert served.kubectl("api-resources", "--api-group=karpenter.sh", "-o", "name").split() == [
        "nodeclaims.karpenter.sh",
        "nodeoverlays.karpenter.sh",
        "nodepools.karpenter.sh",
    ]


def test_patch_scale_label_annotate_and_taint(served: Served) -> None:
    """Small changes by every patch type."""
    served.apply(DEPLOYMENT, NODE)
    served.kubectl("scale", "deploy", "web", "--replicas=5")
    served.kubectl("patch", "deploy", "web", "-p", '{"spec":{"template":{"spec":{"nodeName":"x"}}}}')
    served.kubectl("patch", "deploy", "web", "--type=merge", "-p", '{"spec":{"paused":true}}')
    path = (
        '[{"op":"replace","path":"/spec/minReadySeconds","value":7},{"op":"test","path":"/spec/paused","value":true}]'
    )
    served.kubectl("patch", "deploy", "web", "--type=json", "-p", path.replace("replace", "add"))
    served.kubectl("set", "image", "deploy/web", "main=web:2")
    served.kubectl("label", "node", "n1", "a=b")
    served.kubectl("annotate", "node", "n1", "c=d")
    served.kubectl("taint", "node", "n1", "e=f:NoSchedule")
    spec = served.do(lambda store: store.get(store.resource("apps", "deployments"), "web", "default").obj["spec"])
    assert (spec["replicas"], spec["paused"], spec["minReadySeconds"]) == (5, True, 7)
    assert spec["template"]["spec"]["containers"][0]["image"] == "web:2"
    node = served.do(lambda store: store.get(store.resource("", "nodes"), "n1").obj)
    assert node["metadata"]["labels"]["a"] == "b" and node["spec"]["taints"][0]["key"] == "e"


def test_wait_returns_when_the_condition_comes(served: Served) -> None:
    """`wait --for=condition=Ready nodepool --all`."""
    served.apply(POOL)
    waiting = served.popen("wait", "--for=condition=Ready", "nodepool", "--all", "--timeout=30s")
    time.sleep(0.5)
    assert waiting.poll() is None
    condition = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    patch = {"status": {"conditions": [condition]}}
    pools = served.do(lambda store: store.resource("karpenter.sh", "nodepools"))
    served.do(lambda store: store.patch(pools, "general", patch, subresource="status"))
    out, error = waiting.communicate(timeout=30)
    assert out == "nodepool.karpenter.sh/general condition met\n", error


def test_drain_evicts_within_the_budget(served: Served) -> None:
    """The eviction API, and kubectl waiting for the pod to go."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}},
    }
    served.apply(NODE, POD, budget)
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}

    def status(plural: str, group: str, name: str, patch: Any) -> None:
        served.do(
            lambda store: store.patch(store.resource(group, plural), name, patch, "default", subresource="status")
        )

    status("pods", "", "p1", running)
    counts = {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    status("poddisruptionbudgets", "policy", "b", {"status": {**counts, "disruptionsAllowed": 0}})
    code, _, error = served.call("drain", "n1", "--force", "--timeout=1s")
    assert code != 0 and "Cannot evict pod as it would violate the pod's disruption budget." in error
    status("poddisruptionbudgets", "policy", "b", {"status": {**counts, "disruptionsAllowed": 1}})
    process = served.popen("drain", "n1", "--force", "--grace-period=0", "--timeout=30s")
    out, error = process.communicate(timeout=40)
    assert "node/n1 drained" in out, error
    assert served.do(lambda store: store.get(store.resource("", "nodes"), "n1").obj["spec"]["unschedulable"]) is True


def test_delete_waits_for_finalizers(served: Served) -> None:
    """kubectl returns when the object is really gone."""
    held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "finalizers": ["example.com/hold"]}}
    served.apply(held)
    deleting = served.popen("delete", "configmap", "c")
    time.sleep(0.5)
    assert deleting.poll() is None
    maps = served.do(lambda store: store.resource("", "configmaps"))
    served.do(lambda store: store.patch(maps, "c", {"metadata": {"finalizers": None}}, "default"))
    out, error = deleting.communicate(timeout=30)
    assert out == 'configmap "c" deleted from default namespace\n', error


def test_create_makes_objects_from_words_and_files(served: Served) -> None:
    """What people type first."""
    served.kubectl("create", "namespace", "team")
    served.kubectl("create", "deployment", "web", "--image=web:1", "--replicas=3", "-n", "team")
    served.kubectl("create", "configmap", "settings", "--from-literal=a=b")
    served.kubectl("create", "-f", "-", manifest=POOL)
    found = served.kubectl(
        "get", "deploy", "-n", "team", "web", "-o", "jsonpath={.spec.replicas} {.spec.strategy.type}"
    )
    assert found == "3 RollingUpdate"
    assert served.kubectl("get", "cm", "settings", "-o", "jsonpath={.data.a}") == "b"
    served.kubectl("delete", "namespace", "team")
    assert "No resources found" in served.call("get", "deploy", "-A")[2]


def test_a_refusal_names_the_field(served: Served) -> None:
    """CEL and unknown fields, in kubectl's words."""
    bad = yaml.safe_load(yaml.safe_dump(POOL))
    bad["spec"]["template"]["spec"]["requirements"][0]["values"] = []
    _, _, error = served.call("create", "-f", "-", manifest=bad)
    assert 'The NodePool "general" is invalid: spec.template.spec.requirements[0]: Invalid value: ' in error
    misspelt = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicaz": 1}}  # type: ignore[dict-item]
    _, _, error = served.call("create", "-f", "-", manifest=misspelt)
    assert 'unknown field "spec.replicaz"' in error


def test_an_unknown_token_is_refused(served: Served) -> None:
    """Loopback is shared with every user of the machine."""
    code, _, error = served.call("--token=wrong", "get", "nodes")
    assert code != 0 and "You must be logged in to the server" in error


def test_a_kind_that_is_not_served_is_named(served: Served) -> None:
    """The usual words, and the other objects of the file are applied."""
    ingress = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "x"}, "spec": {}}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    for words in (("apply",), ("apply", "--server-side"), ("replace",)):
        code, out, error = served.call(*words, "-f", "-", manifest=[ingress, settings])
        assert code == 1 and 'no matches for kind "Ingress" in version "networking.k8s.io/v1"' in error
        assert "configmap/c" in out


def test_permissions_and_identity_are_answered(served: Served) -> None:
    """The token may do everything."""
    assert served.kubectl("auth", "can-i", "delete", "nodeclaims.karpenter.sh") == "yes\n"
    assert "[*]" in served.kubectl("auth", "can-i", "--list")
    assert "pykarpenter" in served.kubectl("auth", "whoami")


def test_what_needs_containers_says_why_it_cannot_be(served: Served) -> None:
    """Not an unknown path, nor a crash of kubectl."""
    served.apply(NODE, POD)
    for words in (("logs", "p1"), ("exec", "p1", "--", "ls"), ("attach", "p1"), ("debug", "p1", "--image=x")):
        code, _, error = served.call(*words)
        assert code == 1 and "pods of the embedded cluster run no containers" in error
    assert "Metrics API not available" in served.call("top", "nodes")[2]


class Running(Served):
    """The same with everything that makes workloads move."""

    async def _start(self) -> None:
        self._cluster = EmbeddedCluster(SystemClock())
        await self._cluster.start()
        self.store = self._cluster.store
        self._served = ServedCluster(self.store, self._folder / "kubeconfig")
        await self._served.start()

    def stop(self) -> None:
        self._run(self._cluster.stop())
        super().stop()


@pytest.fixture
def running(binaries: Binaries, tmp_path: Path) -> Iterator[Running]:
    running = Running(binaries.kubectl, tmp_path)
    running.start()
    yield running
    running.stop()


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_rollouts_are_followed_listed_undone_and_repeated(running: Running, kind: str) -> None:
    """rollout status, history, undo, restart."""
    workload = yaml.safe_load(yaml.safe_dump({**DEPLOYMENT, "kind": kind}))
    if kind != "Deployment":
        workload["spec"]["serviceName"] = "web"
    if kind == "DaemonSet":
        del workload["spec"]["replicas"], workload["spec"]["serviceName"]
    running.apply(NODE, workload)
    what = f"{kind.lower()}/web"
    running.kubectl("rollout", "status", what, "--timeout=50s")
    running.kubectl("set", "image", what, "main=web:2")
    running.kubectl("rollout", "status", what, "--timeout=50s")
    assert "rolled back" in running.kubectl("rollout", "undo", what)
    running.kubectl("rollout", "status", what, "--timeout=50s")
    image = running.kubectl("get", what, "-o", "jsonpath={.spec.template.spec.containers[0].image}")
    assert image == "web:1"
    numbers = [line.split()[0] for line in running.kubectl("rollout", "history", what).splitlines()[2:] if line]
    assert numbers == ["2", "3"]
    running.kubectl("rollout", "restart", what)
    running.kubectl("rollout", "status", what, "--timeout=50s")
    pods = running.kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.annotations}")
    assert "kubectl.kubernetes.io/restartedAt" in pods
