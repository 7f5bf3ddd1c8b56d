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
        (("share: 1.0", "share: lots"), 'spec.steps[1].with.share: "lots": give a number of 0 or more'),
        (("share: 1.0", "share: 5"), "spec.steps[1].with.share: 5: give a share between 0 and 1"),
        (("with: {share: 1.0}", "with: 7"), "spec.steps[1].with: 7: the fault interrupt takes: share"),
        (
            ("fault: interrupt, with: {share: 1.0}", "fault: spoil_prices, with: {how: odd, for_s: 9}"),
            "give one of huge",
        ),
        (("fault: interrupt, with: {share: 1.0}", "fault: outage, with: {for_s: -1, errors: 0}"), "with.for_s: -1"),
        (("fault: interrupt, with: {share: 1.0}", "fault: [a]"), "unknown fault"),
        (("replicas: 30", "replicas: true"), "spec.steps[0].scale"),
        (("duration: 30m", "duration: 0s"), "spec.duration"),
        (("duration: 30m", "duration: [1]"), "spec.duration"),
        (("duration: 30m", "duration: 30m\n  pricePeriod: often"), "spec.pricePeriod"),
        (("duration: 30m", "duration: 30m\n  waves: 3"), "spec.waves: 3: give a list"),
        (("duration: 30m", "duration: 30m\n  waves: [{deployment: web, low: 5, high: 2}]"), "low <= high"),
        (("duration: 30m", "duration: 30m\n  waves: [{deployment: web, low: 1, high: 2, top: 1h}]"), "waves[0].top"),
        (("  steps:", "  stepz:"), "spec.stepz"),
        (("sh/v1alpha1", "sh/v9"), 'apiVersion: "pykarpenter.sh/v9": is not known; write pykarpenter.sh/v1alpha1'),
        (("karpenter.sh/v1\n", "karpenter.sh/v1beta1\n"), "is not served; write karpenter.sh/v1"),
        (("replicas: 30}", "replicas: 30, pods: 1}"), "spec.steps[0].scale.pods: 1: unknown field"),
        (("replicas: 30}}", "replicas: 30}, with: {a: 1}}"), "spec.steps[0].with"),
        (("        replicas: 3\n", "        replicas: 3.0\n"), "spec.replicas"),
        (("metadata: {name: web}", "metadata: {}"), "spec.objects[1].metadata.name"),
        (("metadata: {name: web}", "metadata: 7"), "spec.objects[1].metadata.name"),
        (("- apiVersion: apps/v1\n      kind: Deployment", "- 7\n    - kind: Deployment"), "spec.objects[1]: 7"),
        (("replicas: 3\n", "replicas: -3\n"), "spec.replicas"),
        (("matchLabels: {app: web}", "matchLabels: {app: wib}"), "selector"),
        (("requirements: []", "requirements: [{key: a, operator: In, values: []}]"), "requirements[0]"),
        (("kind: Scenario", "kind: Scenario\nspec: 5\nother"), "small.yaml"),
        (("scale: {deployment: web, replicas: 30}", "delete: {kind: Ufo, name: x}"), "step at 300s: delete Ufo/x"),
        (("scale: {deployment: web, replicas: 30}", "delete: {kind: Pod}"), "spec.steps[0].delete"),
        (("scale: {deployment: web, replicas: 30}", "dance: {}"), "spec.steps[0]"),
        (("scale: {deployment: web, replicas: 30}", "apply: {kind: Ufo}"), "spec.steps[0].apply.kind"),
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("{}", "kind"),
        ("kind: List\nitems: 5", "items"),
        ("[1, 2]", "broken.yaml"),
        ("\x00", "broken.yaml"),
        ("apiVersion: v1\nkind: List\nitems: []", "no objects"),
        ("apiVersion: pykarpenter.sh/v1alpha1\nkind: ClusterSnapshot\nmetadata: {name: x}", "holds no objects"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: 5}", "containers"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: 'A B'}\nspec: {containers: [{name: c, image: c}]}", "A B"),
    ],
)
def test_broken_file_ends_in_one_line_with_the_file(tmp_path, text, expected):
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    result = run(str(file))
    assert result.return_value == 1, result.output
    (line,) = result.output.strip().splitlines()
    assert expected in line and "broken.yaml" in line


def simulated(tmp_path, *items, until="15m"):
    pool = {"template": {"spec": {"requirements": []}}}
    general = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"}, "spec": pool}
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [general, *items]}))
    result = run(str(file), "--json", "--until", until)
    assert result.return_value == 0, result.output
    return json.loads(result.stdout), result.stderr


def item(kind, name, spec, *, owner=None, status=None, api="v1", uid=None, labels=None):
    meta = {"name": name, "namespace": "default", "uid": uid or f"uid-{kind}-{name}", "labels": labels or {}}
    if owner:
        meta["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": owner[0], "name": owner[1], "uid": owner[2]}]
    return {"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec, "status": status or {}}


CONTAINERS = {"containers": [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "1"}}}]}
WEB = {
    "replicas": 3,
    "selector": {"matchLabels": {"app": "web"}},
    "template": {"metadata": {"labels": {"app": "web"}}, "spec": CONTAINERS},
}


def pod_of(number, owner, **more):
    return item("Pod", f"web-{number}", {**CONTAINERS, "nodeName": "old"}, owner=owner, labels={"app": "web"}, **more)


def test_a_dump_without_replica_sets_does_not_double_the_pods(tmp_path):
    """`kubectl get deploy,pods,nodepools -o yaml` is what people have."""
    pods = [pod_of(i, ("ReplicaSet", "web-abc", "gone")) for i in range(3)]
    summary, _ = simulated(tmp_path, item("Deployment", "web", WEB, api="apps/v1"), *pods)
    assert (summary["pods_scheduled"], summary["pods_waiting"]) == (3, 0)


def test_pods_of_a_replica_set_without_deployment_are_not_lost(tmp_path):
    replica_set = item("ReplicaSet", "web", WEB, api="apps/v1", uid="rs")
    summary, _ = simulated(tmp_path, replica_set, *(pod_of(i, ("ReplicaSet", "web", "rs")) for i in range(3)))
    assert summary["pods_scheduled"] == 3


def test_what_is_finished_or_made_by_others_does_not_run_again(tmp_path):
    """Finished pods and Jobs, pods on their way out, pods of daemons and of kubelets."""
    done = {"conditions": [{"type": "Complete", "status": "True"}]}
    template = {"spec": {**CONTAINERS, "restartPolicy": "Never"}}
    summary, _ = simulated(
        tmp_path,
        item("Pod", "done", CONTAINERS, status={"phase": "Succeeded"}),
        item("Pod", "agent", CONTAINERS, owner=("DaemonSet", "agent", "gone")),
        item("Pod", "mirror", CONTAINERS, owner=("Node", "old", "gone")),
        item("Job", "old", {"completions": 1, "template": template}, api="batch/v1", status=done),
        item("Pod", "alone", CONTAINERS),
    )
    assert (summary["pods_scheduled"], summary["pods_waiting"]) == (1, 0)


def test_an_unknown_storage_class_is_taken_as_waiting_with_a_warning(tmp_path):
    """As `plan` does; without it the pods would wait for ever and nobody would say why."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    templates = [
        {"metadata": {"name": "a"}, "spec": {**claim, "storageClassName": "gp3"}},
        {"metadata": {"name": "b"}, "spec": claim},
    ]
    spec = {**WEB, "serviceName": "web", "volumeClaimTemplates": templates}
    summary, said = simulated(tmp_path, item("StatefulSet", "web", spec, api="apps/v1"))
    assert (summary["pods_scheduled"], summary["pods_waiting"]) == (3, 0)
    assert "warning: storageclass gp3 is not in the input; taken as WaitForFirstConsumer" in said
    assert "no storageclass is the default" in said


def test_an_indexed_job_runs_every_number_once(tmp_path):
    """Also when a pod's machine is lost on the way."""
    annotations = {"pykarpenter.sh/completes-after": "60s"}
    template = {"metadata": {"annotations": annotations}, "spec": {**CONTAINERS, "restartPolicy": "Never"}}
    spec = {"completions": 5, "parallelism": 2, "completionMode": "Indexed", "template": template}
    summary, _ = simulated(tmp_path, item("Job", "numbers", spec, api="batch/v1"))
    assert (summary["pods_scheduled"], summary["pods_waiting"]) == (5, 0)
