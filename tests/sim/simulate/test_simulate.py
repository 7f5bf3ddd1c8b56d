"""`pykarpenter simulate`: scenarios in, numbers and a picture out; bad input ends in one line."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from pykarpenter.cli.simulate import command

EXAMPLE = Path(__file__).parents[3] / "examples/simulate/day.yaml"

SMALL = """
apiVersion: pykarpenter.sh/v1alpha1
kind: Scenario
metadata: {name: small}
spec:
  duration: 30m
  objects:
    - apiVersion: karpenter.sh/v1
      kind: NodePool
      metadata: {name: general}
      spec: {template: {spec: {requirements: []}}}
    - apiVersion: apps/v1
      kind: Deployment
      metadata: {name: web}
      spec:
        replicas: 3
        selector: {matchLabels: {app: web}}
        template:
          metadata: {labels: {app: web}}
          spec: {containers: [{name: c, image: c, resources: {requests: {cpu: 500m}}}]}
  steps:
    - {at: 5m, scale: {deployment: web, replicas: 30}}
    - {at: 15m, fault: interrupt, with: {share: 1.0}}
"""


def run(*args: str):
    return CliRunner().invoke(command, list(args), standalone_mode=False)


def test_scenario_gives_summary_json_and_picture(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    result = run(str(file), "-o", str(tmp_path / "out"))
    assert result.return_value == 0, result.output
    assert "cost" in result.output
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["pods_waiting"] == 0
    assert summary["pods_scheduled"] >= 30
    assert summary["cost"] > 0
    assert summary["interruptions"] >= 1
    assert len(summary["timeline"]) == 289
    ElementTree.fromstring((tmp_path / "out/timeline.svg").read_text())


def test_s15_same_seed_same_run_other_seed_other_run(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)

    def history(seed: str) -> str:
        return json.loads(run(str(file), "--json", "--seed", seed).output)["history"]

    assert history("3") == history("3")
    assert history("3") != history("4")


def test_until_cuts_the_run_short(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    assert json.loads(run(str(file), "--json", "--until", "2m").output)["duration_s"] == 120.0


def test_plain_manifests_and_snapshots_are_scenarios_too(tmp_path):
    """A snapshot's machines are bought anew, its pods wait for them."""
    snapshot = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {"apiVersion": "pykarpenter.sh/v1alpha1", "kind": "ClusterSnapshot", "metadata": {"name": "prod"}},
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodePool",
                "metadata": {"name": "default", "uid": "1", "resourceVersion": "7"},
                "spec": {
                    "template": {
                        "spec": {
                            "requirements": [],
                            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "x"},
                        }
                    }
                },
            },
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "old"}},
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "p", "namespace": "default", "uid": "2"},
                "spec": {
                    "nodeName": "old",
                    "containers": [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "1"}}}],
                },
                "status": {"phase": "Running"},
            },
        ],
    }
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps(snapshot))
    summary = json.loads(run(str(file), "--json", "--until", "10m").output)
    assert (summary["launches"], summary["pods_scheduled"], summary["pods_waiting"]) == (1, 1, 0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("duration: 30m", "duration: soon"), "spec.duration"),
        (("duration: 30m", "length: 30m"), "spec.length"),
        (("at: 5m", "at: -1"), "spec.steps[0].at"),
        (("fault: interrupt", "fault: meteor"), "unknown fault"),
        (("share: 1.0", "half: 1"), "the fault interrupt takes: share"),
        (("replicas: 30", "replicas: many"), "spec.steps[0].scale"),
        (("kind: Deployment", "kind: Deploymint"), "spec.objects[1].kind"),
        (("deployment: web, replicas", "deployment: wib, replicas"), 'deployments.apps "wib" not found'),
        (("cpu: 500m", "cpu: lots"), "lots"),
        (("duration: 30m", "duration: 30m\n  catalog: nowhere.json"), "spec.catalog"),
        (("spec:\n  duration", "spec: [\n  duration"), "small.yaml"),
    ],
)
def test_bad_scenario_ends_in_one_line_with_file_and_field(tmp_path, change, expected):
    file = tmp_path / "small.yaml"
    assert change[0] in SMALL
    file.write_text(SMALL.replace(*change, 1))
    result = run(str(file))
    assert result.return_value == 1, result.output
    lines = result.output.strip().splitlines()
    assert len(lines) == 1
    assert expected in lines[0]
    assert "small.yaml" in lines[0]


def test_the_example_is_a_valid_scenario():
    result = run(str(EXAMPLE), "--until", "20m")
    assert result.return_value == 0, result.output


def recorded(**cluster):
    """A snapshot as `pykarpenter snapshot` writes it: types at the top, and the namespaces of every cluster."""
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": "1"}}}]},
    }
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    pool = {"template": {"spec": {"requirements": [], "nodeClassRef": reference}}}
    web = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    items = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}},
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"}, "spec": pool},
        {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "prod"}, "spec": web},
        {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}},
        {"apiVersion": "pykarpenter.sh/v1alpha1", "kind": "ClusterSnapshot", "metadata": {"name": "r"}, **cluster},
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def test_a_recorded_cluster_runs_with_its_own_machine_types(tmp_path):
    """Its namespaces exist already, classes and foreign kinds are left out, and its own prices count."""
    types = [
        {
            "name": "only-one",
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": {"cpu": "4", "memory": "8Gi"},
            "offerings": [
                {
                    "Price": 1.0,
                    "Requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1"]},
                    ],
                }
            ],
        }
    ]
    file = tmp_path / "snapshot.json"
    file.write_text(recorded(instanceTypes=types))
    result = run(str(file), "--json", "--until", "10m")
    assert "skipped: 1 CronJob" in result.stderr
    assert json.loads(result.stdout)["bought"] == {"only-one": 1}
