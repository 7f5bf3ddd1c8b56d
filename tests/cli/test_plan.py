"""`pykarpenter plan`: manifests in, machines or reasons out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from pykarpenter.cli.main import cli

POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default, creationTimestamp: null}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
      - {key: kubernetes.io/os, operator: In, values: [linux]}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: app, resources: {limits: {cpu: 500m, memory: 1Gi}}}]
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}
      containers: [{name: app, resources: {requests: {cpu: 1}}}]
"""

SKEWED = DEPLOYMENT.replace(
    "      affinity:", "      topologySpreadConstraints: [{maxSkew: 0, topologyKey: z}]\n      affinity:"
)


def run(*texts: str, args: tuple[str, ...] = ("-o", "json")) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["plan", "-f", "-", *args], input="\n---\n".join(texts), standalone_mode=False)
    assert result.exception is None, result.exception
    return result.return_value, result.stdout, result.stderr


def plan(*texts: str, args: tuple[str, ...] = ()) -> dict[str, Any]:
    _, out, _ = run(*texts, args=("-o", "json", *args))
    answer: dict[str, Any] = json.loads(out)
    return answer


def test_the_json_has_exactly_the_promised_shape() -> None:
    """Programs depend on it."""
    code, out, _ = run(POOL, POD)
    answer = json.loads(out)
    assert code == 0
    assert list(answer) == ["nodes", "existing", "unschedulable", "pricePerHour", "lowerBound", "seconds"]
    (node,) = answer["nodes"]
    assert list(node) == [
        "name", "nodePool", "instanceType", "instanceTypes", "zone", "capacityType", "price", "pods",
    ]  # fmt: skip
    assert node["pods"] == ["default/web"]
    assert node["instanceType"] == node["instanceTypes"][0]
    assert answer["pricePerHour"] == node["price"]


def test_workloads_become_their_replicas() -> None:
    """Nothing needs to run for a plan to be made."""
    answer = plan(POOL, DEPLOYMENT)
    assert sorted(pod for node in answer["nodes"] for pod in node["pods"]) == [f"default/web-{i}" for i in range(4)]
    assert len(answer["nodes"]) == 4


def test_lists_and_pods_of_a_running_workload_are_not_doubled() -> None:
    """A dump of a cluster holds both the workload and its pods."""
    owned = yaml.safe_load(POD)
    owned["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u1"}]
    workload = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "uid": "u1"}, "spec": {}}
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [owned, workload, yaml.safe_load(POOL)]})
    assert [node["pods"] for node in plan(text)["nodes"]] == [["default/web"]]


def test_pods_of_a_deployment_are_not_doubled_when_its_replica_set_is_left_out() -> None:
    """`kubectl get pods,deployments -o yaml` shows both ends and not the middle."""
    owned = yaml.safe_load(POD)
    owned["metadata"]["labels"] = {"app": "web", "pod-template-hash": "abc"}
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "r1"}
    ]
    assert [node["pods"] for node in plan(POOL, DEPLOYMENT, yaml.safe_dump(owned))["nodes"]] == [["default/web"]]


def test_a_suspended_job_has_no_pods() -> None:
    """Its controller would make none."""
    job = """
apiVersion: batch/v1
kind: Job
metadata: {name: paused}
spec: {suspend: true, parallelism: 3, template: {spec: {containers: [{name: app}]}}}
"""
    assert plan(POOL, job)["nodes"] == []


def test_a_pod_with_a_volume_of_its_own_has_its_claim_made() -> None:
    """The claim of an ephemeral volume is never written by people."""
    template = "{spec: {storageClassName: fast}}"
    volume = f"volumes: [{{name: scratch, ephemeral: {{volumeClaimTemplate: {template}}}}}]"
    assert [node["pods"] for node in plan(POOL, POD.replace("spec:", f"spec:\n  {volume}"))["nodes"]] == [
        ["default/web"]
    ]


def test_pools_that_cannot_launch_now_are_named(tmp_path: Path) -> None:
    """Saying that there are no pools would send the user looking in the wrong place."""
    waiting = POOL + "status: {conditions: [{type: Ready, status: 'False', message: NodeClassReady=False}]}\n"
    (left,) = plan(waiting, POD)["unschedulable"]
    assert left["reason"] == 'nodepool "default": is not ready: NodeClassReady=False'
    nothing = tmp_path / "types.json"
    nothing.write_text("[]")
    (left,) = plan(POOL, POD, args=("--catalog", str(nothing)))["unschedulable"]
    assert left["reason"] == 'nodepool "default": has no instance types'


def test_existing_nodes_are_used_first() -> None:
    """A node in the input is free capacity."""
    node = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {kubernetes.io/os: linux}}
status: {capacity: {cpu: 4, memory: 8Gi, pods: 110}}
"""
    answer = plan(POOL, POD, node)
    assert answer["existing"] == [{"node": "n1", "pods": ["default/web"]}]
    assert answer["nodes"] == []


def test_claims_of_a_stateful_set_are_made_with_a_warning_about_their_class() -> None:
    """An unknown class waits for its first consumer."""
    text = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  template: {spec: {containers: [{name: app, resources: {requests: {cpu: 1}}}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: fast}}]
"""
    code, _, err = run(POOL, text)
    assert code == 0
    assert "storageclass fast" in err


BOUND = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  csi: {driver: d, volumeHandle: v}
  nodeAffinity:
    required:
      nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [test-zone-c]}]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-db-0}
spec: {volumeName: disk, storageClassName: fast}
"""


def test_a_claim_that_names_its_volume_counts_as_bound_and_wins_over_the_one_its_workload_would_make() -> None:
    """People write no binder's annotation, and the disk's zone decides where the pod goes."""
    pod = POD.replace("spec:", "spec:\n  volumes: [{name: d, persistentVolumeClaim: {claimName: data-db-0}}]")
    assert [node["zone"] for node in plan(POOL, pod, BOUND)["nodes"]] == ["test-zone-c"]
    workload = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  template: {spec: {containers: [{name: app, resources: {requests: {cpu: 1}}}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: fast}}]
"""
    assert [node["zone"] for node in plan(POOL, workload, BOUND)["nodes"]] == ["test-zone-c"]


def test_a_claim_without_any_class_is_not_given_the_default_one() -> None:
    """An empty storageClassName asks for a volume that somebody made by hand."""
    claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\nspec: {storageClassName: ''}\n"
    pod = POD.replace("spec:", "spec:\n  volumes: [{name: d, persistentVolumeClaim: {claimName: c}}]")
    assert "names no storage class" in plan(POOL, pod, claim)["unschedulable"][0]["reason"]


def test_an_object_written_twice_counts_once_with_a_warning() -> None:
    """As when both are applied: the last one stays."""
    code, out, err = run(POOL, POD.replace("500m", "999"), POD)
    assert code == 0
    assert json.loads(out)["nodes"][0]["pods"] == ["default/web"]
    assert "warning: Pod default/web is in the input more than once; the last one counts" in err


def test_other_kinds_are_skipped_and_counted_or_refused_when_strict() -> None:
    """A folder of ordinary manifests works as it is."""
    other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"
    code, _, err = run(POOL, POD, other)
    assert code == 0
    assert "skipped: 1 ConfigMap" in err
    code, _, err = run(POOL, POD, other, args=("--strict",))
    assert code == 1
    assert "document 3: kind" in err


def test_left_out_pods_give_exit_2_and_json_all_the_same() -> None:
    """Scripts can tell a full plan from a partial one."""
    code, out, _ = run(POOL, POD.replace("500m", "999"))
    assert code == 2
    (left,) = json.loads(out)["unschedulable"]
    assert left["pod"] == "default/web"
    assert left["details"]["why"] == "InsufficientResources"
    assert left["details"]["nodePools"][0]["removed"]["resources"] > 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("kind: [", "stdin: document 1: line 2: not YAML"),
        (POD.replace("500m", '"-1"'), 'spec.containers[0].resources.limits.cpu: "-1": must not be negative'),
        (POD.replace("500m", "lots"), 'limits.cpu: "lots": expected a quantity'),
        (SKEWED, "spec.template.spec.topologySpreadConstraints[0].maxSkew: 0: must be at least 1"),
        (DEPLOYMENT.replace("replicas: 4", "replicas: many"), 'document 1: spec.replicas: "many": Expected int'),
        ("apiVersion: v1\nkind: Pod\nspec: {}", "metadata.name: null: every Pod needs a name"),
        ("- 1", "expected an object with apiVersion and kind"),
        (POOL.replace("operator: In", "operator: Is"), "spec.template.spec.requirements[0].operator"),
        (DEPLOYMENT.replace("replicas: 4", "replicas: -4"), "document 1: spec.replicas: -4: must not be negative"),
        (POD.replace("containers:", "container:"), "spec.containers: null: a pod needs at least one container"),
        (json.dumps({"kind": "List", "items": [{"kind": "ConfigMap"}, yaml.safe_load(SKEWED)]}),
         "document 1: items[1].spec.template.spec.topologySpreadConstraints[0].maxSkew: 0"),
        ("# nothing\n---\n", "stdin: is empty; give at least one object"),
    ],
)  # fmt: skip
def test_bad_input_gives_one_clear_line_and_exit_1(text: str, line: str) -> None:
    """File, document, field, value and remedy."""
    code, out, err = run(text)
    assert code == 1
    assert out == ""
    assert line in err
    assert len(err.strip().splitlines()) == 1


def test_a_class_reference_is_wrong_only_when_classes_of_that_kind_are_given() -> None:
    """Manifests often come without the cloud's classes."""
    classes = "apiVersion: karpenter.kwok.sh/v1alpha1\nkind: KWOKNodeClass\nmetadata: {name: other}\n"
    code, _, err = run(POOL, POD, classes)
    assert code == 1
    assert "nodeClassRef.name" in err


def test_overlays_and_buffers_in_the_input_count() -> None:
    """Their gates are on when their kinds are there."""
    overlay = """
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: cheap}
spec:
  requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m-16x-amd64-linux]}]
  price: "0.001"
"""
    assert plan(POOL, POD, overlay)["nodes"][0]["instanceType"] == "m-16x-amd64-linux"
    buffer = """
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: spare}
spec: {scalableRef: {apiGroup: apps, kind: Deployment, name: web}, percentage: 50}
"""
    pods = [pod for node in plan(POOL, DEPLOYMENT, buffer)["nodes"] for pod in node["pods"]]
    assert sorted(pods)[:2] == ["default/capacity-buffer-spare-1", "default/capacity-buffer-spare-2"]


def test_a_deadline_gives_a_partial_plan_that_names_the_rest() -> None:
    """Time is up, but what is decided is valid."""
    answer = plan(POOL, DEPLOYMENT, args=("--deadline", "0"))
    assert len(answer["unschedulable"]) == 4
    assert answer["unschedulable"][0]["details"]["why"] == "DeadlineReached"


def test_settings_come_from_flags_and_bad_ones_are_refused() -> None:
    """The same settings as the controller's."""
    code, _, err = run(POOL, POD, args=("--preference-policy", "Sometimes"))
    assert code == 1
    assert "preference-policy" in err


def test_a_folder_is_read_in_order(tmp_path: Path) -> None:
    """All files of a folder together are the input."""
    (tmp_path / "pool.yaml").write_text(POOL)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "pod.yml").write_text(POD)
    (tmp_path / "notes.txt").write_text("not a manifest")
    result = CliRunner().invoke(cli, ["plan", "-f", str(tmp_path)], standalone_mode=False)
    assert result.return_value == 0
    assert "1 pods placed, 1 new nodes" in result.stdout


def test_yaml_dates_and_times_stay_text() -> None:
    """12:30 is no number and a date no date, as in Kubernetes."""
    labelled = POD.replace("name: web", "name: web, labels: {started: 2026-01-02, at: 12:30}")
    assert run(POOL, labelled)[0] == 0


def examples() -> list[tuple[str, str]]:
    text = (Path(__file__).parents[2] / "docs" / "unschedulable.md").read_text()
    return re.findall(r"```yaml\n(.*?)```\n\n```text\n(.*?)\n```", text, re.DOTALL)


@pytest.mark.parametrize("number", range(10))
def test_the_documented_examples_give_their_documented_text(number: int) -> None:
    """The docs show what users get."""
    assert len(examples()) == 10
    manifest, text = examples()[number]
    code, out, _ = run(manifest)
    assert code == 2
    assert json.loads(out)["unschedulable"][0]["reason"] == text
