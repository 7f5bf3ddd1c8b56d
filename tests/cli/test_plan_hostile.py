"""`plan` with inputs that people really give it: each ends with a plan or with one line, never with a traceback."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.test_plan import POD, POOL, run

pytestmark = pytest.mark.promise("SCH-2.1")

WEB = "spec:\n  containers: [{name: app, resources: {limits: {cpu: 500m, memory: 1Gi}}}]\n"


def pod(resources: str = "{requests: {cpu: 1}}", spec: str = "", name: str = "web") -> str:
    containers = f"containers: [{{name: app, resources: {resources}}}]"
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  {containers}\n{spec}\n"


def spreading(constraint: str) -> str:
    return pod(spec=f"  topologySpreadConstraints: [{constraint}]")


def pool(more: str) -> str:
    return POOL.replace("spec:\n  template:", f"spec:\n  {more}\n  template:")


def required(text: str) -> str:
    return POOL.replace("{key: kubernetes.io/os, operator: In, values: [linux]}", text)


OVERLAY = """
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: dear}
spec:
  requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}]
"""
BUFFER = "apiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityBuffer\nmetadata: {name: spare}\nspec: "
ZONE = "topologyKey: topology.kubernetes.io/zone"
NEVER = "whenUnsatisfiable: DoNotSchedule"

REFUSED: dict[str, tuple[str, str]] = {
    "tabs": ("apiVersion: v1\nkind: Pod\nmetadata:\n\tname: x\n", "not YAML: found character"),
    "a bracket that stays open": ("kind: [Pod", "not YAML"),
    "half a JSON object": ('{"apiVersion": "v1", "kind": ', "not YAML"),
    "a word": ("hello", "expected an object with apiVersion and kind"),
    "no kind": ("apiVersion: v1\nmetadata: {name: x}", "kind: null: every object needs"),
    "no apiVersion": (POD.replace("apiVersion: v1\n", ""), "is not served for Pod; use v1"),
    "a key written twice": (POD + WEB, "the key 'spec' is written twice"),
    "another language": ("!!python/object/apply:os.system ['true']", "not YAML"),
    "nested without end": ("a: " + "[" * 3000 + "]" * 3000, "nested"),
    "a pod without a spec": ("apiVersion: v1\nkind: Pod\nmetadata: {name: x}", "at least one container"),
    "a pod without containers": ("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {}", "at least one container"),
    "a pod without a name": ("apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a}]}", "every Pod needs a name"),
    "a spec that is a list": ("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: []", "spec: []"),
    "a negative quantity": (pod("{requests: {cpu: -1}}"), "requests.cpu: -1: must not be negative"),
    "no quantity": (pod("{requests: {memory: lots}}"), 'requests.memory: "lots": expected a quantity'),
    "maxSkew 0": (spreading(f"{{maxSkew: 0, {ZONE}, {NEVER}}}"), "maxSkew: 0: must be at least 1"),
    "no maxSkew": (spreading(f"{{{ZONE}, {NEVER}}}"), "maxSkew: null: must be at least 1"),
    "no topologyKey": (spreading(f"{{maxSkew: 1, {NEVER}}}"), "topologyKey: null: must name a node label"),
    "no such action": (spreading(f"{{maxSkew: 1, {ZONE}, whenUnsatisfiable: Maybe}}"), "use DoNotSchedule or"),
    "minDomains 0": (spreading(f"{{maxSkew: 1, minDomains: 0, {ZONE}, {NEVER}}}"), "minDomains: 0: must be at least"),
    "no such toleration": (pod(spec="  tolerations: [{key: a, operator: Maybe}]"), "use one of Exists, Equal"),
    "a pool of v1beta1": (POOL.replace("karpenter.sh/v1", "karpenter.sh/v1beta1"), "use karpenter.sh/v1"),
    "a Provisioner": ("apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: a}", "use NodePool"),
    "weight 101": (pool("weight: 101"), "spec.weight: 101: should be less than or equal to 100"),
    "weight 0": (pool("weight: 0"), "spec.weight: 0: should be greater than or equal to 1"),
    "a static pool with a weight": (pool("replicas: 2\n  weight: 5"), "weight has no meaning for a static pool"),
    "a limit that is no quantity": (pool("limits: {cpu: many}"), 'spec.limits.cpu: "many"'),
    "a budget of 200%": (pool("disruption: {budgets: [{nodes: '200%'}]}"), "budgets[0].nodes"),
    "days": (pool("disruption: {consolidateAfter: 1d}"), "there is no unit for days"),
    "a pool without a template": (
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec: {}",
        "template",
    ),
    "an operator with a typo": (required("{key: kubernetes.io/os, operator: Inn, values: [linux]}"), '"Inn"'),
    "In without values": (required("{key: kubernetes.io/os, operator: In, values: []}"), "needs at least one value"),
    "a hostname": (required("{key: kubernetes.io/hostname, operator: In, values: [a]}"), "cannot be required"),
    "51 minValues": (required("{key: kubernetes.io/os, operator: Exists, minValues: 51}"), "minValues: 51"),
    "an overlay with two prices": (OVERLAY + "  price: '1'\n  priceAdjustment: '+1'\n", "exclude each other"),
    "an overlay without a number": (OVERLAY + "  price: cheap\n", "is no price"),
    "a buffer of v1alpha1": (
        BUFFER.replace("v1beta1", "v1alpha1") + "{replicas: 1}",
        "use autoscaling.x-k8s.io/v1beta1",
    ),
    "a claim without a class": (
        "apiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {name: a}\nspec: {}",
        "spec.nodeClassRef: null: is required",
    ),
    "a node with less than nothing": (
        "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus: {allocatable: {cpu: -4}}",
        "status.allocatable.cpu: -4: must not be negative",
    ),
    "claim templates that are none": (
        "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: s}\nspec:\n  volumeClaimTemplates: [data]\n"
        "  template: {spec: {containers: [{name: a}]}}",
        "spec.volumeClaimTemplates[0]",
    ),
    "a Deployment of apps/v1beta1": (
        "apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {containers: [{}]}}}",
        "use apps/v1",
    ),
    "fewer replicas than none": (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  replicas: -1\n"
        "  template: {spec: {containers: [{name: a}]}}",
        "spec.replicas: -1: must not be negative",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_input_that_no_cluster_would_take_gives_one_line_and_exit_1(name: str) -> None:
    """The line says where, what and how to mend it; nothing is planned from the rest."""
    text, expected = REFUSED[name]
    code, out, error = run(POOL.replace("default", "other"), text)
    assert (code, out) == (1, "")
    assert expected in error
    assert len(error.strip().splitlines()) == 1, error
    assert error.startswith("stdin: document ")


@pytest.mark.parametrize(
    ("text", "path"),
    [(pool("wieght: 10"), "spec.wieght: 10"), (pod(spec="  nodeSelektor: {a: b}"), 'spec.nodeSelektor: {"a": "b"}')],
)
def test_a_field_that_the_kind_does_not_have_is_told_and_refused_when_strict(text: str, path: str) -> None:
    """An API server drops it without a word, and the plan would silently be another than the one that was meant."""
    code, _, error = run(POOL.replace("default", "other"), text)
    assert code == 0
    assert f"warning: stdin: document 2: {path}: is not a field of this kind; did you mean" in error
    code, out, error = run(POOL.replace("default", "other"), text, args=("-o", "json", "--strict"))
    assert (code, out) == (1, "")
    assert path in error
    assert len(error.strip().splitlines()) == 1


ACCEPTED: dict[str, tuple[str, int]] = {
    "carriage returns": ((POOL + "---\n" + POD).replace("\n", "\r\n"), 1),
    "a byte order mark": ("\ufeff" + POOL.lstrip() + "---\n" + POD, 1),
    "empty documents": (f"---\n---\n{POOL}\n---\n\n---\n{POD}\n---\n", 1),
    "exponents and small units": (POOL + "---\n" + pod("{requests: {cpu: 1e0, memory: 128974848000m}}"), 1),
    "a pod that has ended": (POOL + "---\n" + POD + "status: {phase: Succeeded}\n", 0),
    "a pod behind a gate": (POOL + "---\n" + pod(spec="  schedulingGates: [{name: later}]"), 0),
    "containers for debugging": (POOL + "---\n" + pod(spec="  ephemeralContainers: [{name: dbg, image: x}]"), 1),
    "lists in lists": (
        json.dumps({"kind": "List", "apiVersion": "v1", "items": [{"kind": "List", "apiVersion": "v1", "items": []}]})
        + "\n",
        0,
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_odd_but_honest_input_is_planned(name: str) -> None:
    """Editors and dumps write many things that mean no harm."""
    text, placed = ACCEPTED[name]
    code, out, _ = run(text)
    assert code == 0
    assert sum(len(node["pods"]) for node in json.loads(out)["nodes"]) == placed


def test_more_than_the_largest_number_is_a_pod_too_large_not_a_crash() -> None:
    """Somebody will write the bytes of all disks of the company as cpu."""
    code, out, _ = run(POOL, pod("{requests: {cpu: 10000000000000000000000000, memory: 1e300}}"))
    assert code == 2
    assert "no instance type has enough resources" in json.loads(out)["unschedulable"][0]["reason"]


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    """Snapshots are large; nobody should have to unpack them."""
    from click.testing import CliRunner

    from pykarpenter.cli.main import cli

    file = tmp_path / "snapshot.yaml.gz"
    file.write_bytes(gzip.compress(f"{POOL}---\n{POD}".encode()))
    result = CliRunner().invoke(cli, ["plan", "-f", str(file), "-o", "json"], standalone_mode=False)
    assert result.return_value == 0
    file.write_bytes(gzip.compress(b"x")[:-6])
    result = CliRunner().invoke(cli, ["plan", "-f", str(file)], standalone_mode=False)
    assert result.return_value == 1
    assert "cannot be read" in result.stderr
