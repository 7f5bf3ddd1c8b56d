"""Asking about what is not there, not ours or not ready: a clear answer or a clear error, and never a secret."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pykarpenter.api import crds, kinds, labels
from pykarpenter.cli.explain import command as explain
from pykarpenter.cli.snapshot import command as snapshot
from pykarpenter.runtime.clock import SystemClock
from pykarpenter.sim.api import StoreApi
from pykarpenter.sim.server import ServedCluster
from pykarpenter.sim.store import Store
from pykarpenter.state.manifests import READ_KINDS

CLASS = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
SECRET = "hunter2"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
Ask = Callable[..., Awaitable[Result]]


async def _ask(kubeconfig: Path, command: Any, *arguments: str) -> Result:
    """The command in a thread of its own, as it has its own event loop."""
    args = [*arguments, "--kubeconfig", str(kubeconfig)]
    return await asyncio.to_thread(CliRunner().invoke, command, args)


class _Cluster:
    def __init__(self, api: StoreApi, kubeconfig: Path) -> None:
        self.api = api
        self.kubeconfig = kubeconfig

    async def explain(self, *arguments: str) -> Result:
        return await _ask(self.kubeconfig, explain, *arguments)

    async def snapshot(self, *arguments: str) -> Result:
        return await _ask(self.kubeconfig, snapshot, *arguments)


@pytest.fixture
async def bare(tmp_path: Path) -> Any:
    """A served cluster without our CRDs."""
    store = Store(SystemClock())
    async with ServedCluster(store, tmp_path / "kubeconfig") as served:
        yield _Cluster(StoreApi(store), served.kubeconfig_path)


@pytest.fixture
async def cluster(bare: _Cluster) -> _Cluster:
    """With our CRDs, a pool and a class."""
    for manifest in crds.crds():
        await bare.api.create(kinds.CRD, manifest)
    await bare.api.create(kinds.KWOK_NODE_CLASS, {"metadata": {"name": "default"}, "spec": {}})
    template = {"spec": {"nodeClassRef": CLASS, "requirements": []}}
    await bare.api.create(kinds.NODE_POOL, {"metadata": {"name": "default"}, "spec": {"template": template}})
    return bare


async def test_cluster_without_our_kinds_says_so(bare: _Cluster) -> None:
    """Nothing can be explained, and the remedy is named."""
    asked = await bare.explain("nodepool", "default")
    assert asked.exit_code == 1
    assert "nodepools.karpenter.sh: not served by this cluster; install it with `pykarpenter crds`" in asked.output
    assert "nodepool 'default' is not in the cluster" in asked.output


@pytest.mark.parametrize(("kind", "name"), [("node", "ghost"), ("nodepool", "defaut"), ("pod", "default/ghost")])
async def test_unknown_name_exits_1_and_names_what_there_is(cluster: _Cluster, kind: str, name: str) -> None:
    """A typing error should be seen at once."""
    asked = await cluster.explain(kind, name)
    assert asked.exit_code == 1
    assert f"{kind} {name!r} is not in the cluster; there is " in asked.output
    if kind == "nodepool":
        assert asked.output.rstrip().endswith("there is default")


async def test_s10_foreign_node_is_said_to_be_foreign(cluster: _Cluster) -> None:
    """In words and as JSON."""
    await cluster.api.create(kinds.NODE, {"metadata": {"name": "foreign"}})
    asked = await cluster.explain("node", "foreign")
    assert asked.exit_code == 0
    assert "stays: Node is not managed by us" in asked.output
    values = json.loads((await cluster.explain("node", "foreign", "-o", "json")).output)
    assert values["blocker"]["why"] == "NoNodeClaim"
    assert values["nextCommand"] is None


async def test_node_that_does_not_say_yet_what_it_is(cluster: _Cluster) -> None:
    """It is in the cluster, so it must not be called absent."""
    body = {"metadata": {"name": "new", "labels": {labels.NODEPOOL: "default"}}, "spec": {"providerID": "kwok://new"}}
    await cluster.api.create(kinds.NODE, body)
    asked = await cluster.explain("node", "new")
    assert asked.exit_code == 0
    assert "it is left alone until it has both" in asked.output


async def test_standalone_claim_without_a_node(cluster: _Cluster) -> None:
    """People know claims by name too."""
    spec = {"nodeClassRef": CLASS, "requirements": []}
    await cluster.api.create(kinds.NODE_CLAIM, {"metadata": {"name": "alone"}, "spec": spec})
    asked = await cluster.explain("node", "alone")
    assert asked.exit_code == 0
    assert "stays: NodeClaim doesn't have a node" in asked.output


async def machine(cluster: _Cluster, name: str, **metadata: Any) -> None:
    """A claim and its Node, initialized."""
    found = {
        labels.NODEPOOL: "default",
        labels.INSTANCE_TYPE: "c-4x-amd64-linux",
        labels.ZONE: "test-zone-a",
        labels.CAPACITY_TYPE: "on-demand",
        labels.REGISTERED: "true",
        labels.INITIALIZED: "true",
        "karpenter.kwok.sh/kwoknodeclass": "default",
    }
    claim = {"metadata": {"name": name, "labels": found}, "spec": {"nodeClassRef": CLASS, "requirements": []}}
    await cluster.api.create(kinds.NODE_CLAIM, claim)
    status = {"providerID": f"kwok://{name}", "nodeName": name}
    await cluster.api.patch(kinds.NODE_CLAIM, name, {"status": status}, subresource="status")
    node = {"metadata": {"name": name, "labels": found, **metadata}, "spec": {"providerID": f"kwok://{name}"}}
    await cluster.api.create(kinds.NODE, node)


async def test_node_that_is_being_deleted_or_disrupted_says_so(cluster: _Cluster) -> None:
    """Whatever else would keep it."""
    await machine(cluster, "going", finalizers=["karpenter.sh/termination"])
    await machine(cluster, "tainted")
    await cluster.api.delete(kinds.NODE, "going")
    taints = [{"key": labels.DISRUPTED_TAINT, "effect": "NoSchedule"}]
    await cluster.api.patch(kinds.NODE, "tainted", {"spec": {"taints": taints}})
    assert "stays: Node is deleting or marked for deletion" in (await cluster.explain("node", "going")).output
    assert "stays: Node is already being disrupted" in (await cluster.explain("node", "tainted")).output


async def test_pod_that_has_ended_is_not_called_absent(cluster: _Cluster) -> None:
    """It is there, but there is nothing to decide about it."""
    body = {"metadata": {"name": "done"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await cluster.api.create(kinds.POD, body, "default")
    await cluster.api.patch(kinds.POD, "done", {"status": {"phase": "Succeeded"}}, "default", subresource="status")
    asked = await cluster.explain("pod", "done")
    assert asked.exit_code == 1
    assert "pod 'default/done' has ended" in asked.output


async def test_unknown_gate_is_named_and_bad_values_stop(cluster: _Cluster) -> None:
    """B37."""
    assert (
        "unknown feature gates are ignored: Nope"
        in (await cluster.explain("nodepool", "default", "--feature-gates", "Nope=true")).output
    )
    refused = await cluster.explain("nodepool", "default", "--min-saving", "much")
    assert refused.exit_code == 1
    assert "--min-saving: expected a price" in refused.output


def test_missing_kubeconfig_and_unreadable_files_are_named(tmp_path: Path) -> None:
    """Each with its path and what is wrong."""
    missing = CliRunner().invoke(explain, ["node", "x", "--kubeconfig", str(tmp_path / "none")])
    assert (missing.exit_code, "none does not exist" in missing.output) == (1, True)
    (tmp_path / "broken.yaml").write_text("{{{")
    for name, problem in (("absent.yaml", "No such file"), ("broken.yaml", "not YAML")):
        asked = CliRunner().invoke(explain, ["node", "x", "-f", str(tmp_path / name)])
        assert asked.exit_code == 1
        assert name in asked.output and problem in asked.output


def _container() -> dict[str, Any]:
    return {
        "name": "main",
        "image": "pause",
        "command": ["sh", SECRET],
        "args": [SECRET],
        "env": [{"name": "TOKEN", "value": SECRET}],
        "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
        "livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": SECRET}]}},
    }


async def test_s14_snapshot_holds_no_secret_in_any_object_or_template(cluster: _Cluster, tmp_path: Path) -> None:
    """Also not in what kubectl kept of a manifest, nor in the templates of workloads and pools."""
    notes = {LAST_APPLIED: f'{{"env": "{SECRET}"}}', "example.com/token": SECRET}
    pod = {"containers": [_container()], "initContainers": [{**_container(), "name": "first"}]}
    await cluster.api.create(kinds.POD, {"metadata": {"name": "p", "annotations": notes}, "spec": pod}, "default")
    template = {"metadata": {"labels": {"app": "w"}, "annotations": notes}, "spec": {"containers": [_container()]}}
    spec = {"selector": {"matchLabels": {"app": "w"}}, "template": template, "replicas": 1}
    for kind in (kinds.DEPLOYMENT, kinds.REPLICA_SET, kinds.DAEMON_SET):
        own = {key: value for key, value in spec.items() if kind is not kinds.DAEMON_SET or key != "replicas"}
        await cluster.api.create(kind, {"metadata": {"name": "w", "annotations": notes}, "spec": own}, "default")
    await cluster.api.create(kinds.NODE, {"metadata": {"name": "n", "annotations": notes}})
    patch = {"metadata": {"annotations": notes}, "spec": {"template": {"metadata": {"annotations": notes}}}}
    await cluster.api.patch(kinds.NODE_POOL, "default", patch)
    file = tmp_path / "cluster.json"
    written = await cluster.snapshot("-o", str(file))
    assert written.exit_code == 0, written.output
    text = file.read_text()
    assert {item["kind"] for item in json.loads(text)["items"]} >= {"Pod", "Deployment", "NodePool", "Node"}
    for secret in (SECRET, "last-applied", "example.com/token", "TOKEN"):
        assert secret not in text


def test_s14_secrets_and_config_maps_are_never_asked_for() -> None:
    """What is not read cannot leak."""
    assert not {"Secret", "ConfigMap"} & {kind.kind for kind in READ_KINDS}


async def test_snapshot_that_cannot_be_written_says_why(cluster: _Cluster, tmp_path: Path) -> None:
    written = await cluster.snapshot("-o", str(tmp_path / "no" / "file.yaml"))
    assert written.exit_code == 1
    assert "file.yaml: cannot be written: No such file or directory" in written.output


RECORDING = {"apiVersion": "pykarpenter.sh/v1alpha1", "kind": "ClusterSnapshot", "metadata": {"name": "recording"}}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}


def asked_of(tmp_path: Path, part: dict[str, Any]) -> Result:
    """The node of a file whose recording has this part."""
    listed = {"apiVersion": "v1", "kind": "List", "items": [NODE, {**RECORDING, **part}]}
    (tmp_path / "cluster.json").write_text(json.dumps(listed))
    return CliRunner().invoke(explain, ["node", "n", "-f", str(tmp_path / "cluster.json")])


REPAIR = {"feature-gates": "NodeRepair=true"}


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"time": "yesterday"}, "ClusterSnapshot time: 'yesterday': expected a time such as"),
        ({"time": 5}, "ClusterSnapshot time: 5: expected a time such as"),
        ({"settings": ["a"]}, "ClusterSnapshot settings: ['a']: expected a mapping"),
        ({"settings": {"nope": "1"}}, "--nope: unknown flag"),
        ({"instanceTypes": "x"}, "ClusterSnapshot instanceTypes: 'x': expected a list"),
        ({"instanceTypes": [{"name": 5}]}, "every instance type needs a name"),
        ({"repairPolicies": "x", "settings": REPAIR}, "ClusterSnapshot repairPolicies: 'x': expected a list"),
        ({"repairPolicies": ["x"], "settings": REPAIR}, "ClusterSnapshot repairPolicies: 'x': expected a mapping"),
        ({"repairPolicies": [{"priority": "x"}], "settings": REPAIR}, "ClusterSnapshot repairPolicies: {'priority'"),
        ({"repairPolicies": [{"conditionType": "X"}], "settings": REPAIR}, "repairPolicies[0].conditionStatus"),
    ],
)
def test_recording_that_is_damaged_is_refused_with_the_part_and_its_value(
    tmp_path: Path, part: dict[str, Any], problem: str
) -> None:
    """Files are edited and cut; none of that may end in a stack trace or in a silent default."""
    asked = asked_of(tmp_path, part)
    assert isinstance(asked.exception, SystemExit)
    assert asked.exit_code == 1
    assert problem in asked.output


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("metadata.creationTimestamp", "yesterday"),
        ("metadata.deletionTimestamp", "2026-13-01T00:00:00Z"),
        ("status.conditions[0].lastTransitionTime", "noon"),
    ],
)
def test_time_that_cannot_be_read_is_refused_with_its_place(tmp_path: Path, place: str, value: str) -> None:
    """An API server would not have let it in; a hand that edits a file may have written it."""
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": None}
    body: dict[str, Any] = {"metadata": {"name": "n", "creationTimestamp": None}, "status": {"conditions": [condition]}}
    part: dict[str, Any] = condition if "conditions" in place else body["metadata"]
    part[place.rpartition(".")[2]] = value
    listed = {"kind": "List", "apiVersion": "v1", "items": [{"apiVersion": "v1", "kind": "Node", **body}, RECORDING]}
    (tmp_path / "cluster.json").write_text(json.dumps(listed))
    asked = CliRunner().invoke(explain, ["node", "n", "-f", str(tmp_path / "cluster.json")])
    assert isinstance(asked.exception, SystemExit)
    assert asked.exit_code == 1
    assert f'{place}: "{value}": expected a time such as 2026-01-14T12:00:00Z' in asked.output


@pytest.mark.parametrize("part", [{}, {"time": None, "settings": None, "instanceTypes": None}, {"settings": REPAIR}])
def test_recording_may_leave_parts_out(tmp_path: Path, part: dict[str, Any]) -> None:
    """A hand-written file needs no more than its objects; without policies there is no repair to speak of."""
    asked = asked_of(tmp_path, part)
    assert asked.exit_code == 0, asked.output
    assert "stays: Node is not managed by us" in asked.output
