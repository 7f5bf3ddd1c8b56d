"""`pykarpenter validate`: every problem of manifests at once, and no alarm about good ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pykarpenter.api.crds import crds
from pykarpenter.cli.main import cli
from pykarpenter.cli.manifests import Document
from pykarpenter.cli.validation.checks import Validator
from tests.crds.cases import all_cases, edited

HERE = Path(__file__).parent
BROKEN = sorted((HERE / "broken").glob("*.yaml"))
ORDINARY = [*sorted((HERE / "ordinary").glob("*.yaml")), HERE.parents[1] / "examples/kwok.yaml"]


def validate(*arguments, text=None):
    """Exit code and output lines."""
    result = CliRunner().invoke(cli, ["validate", *map(str, arguments)], input=text, standalone_mode=False)
    assert result.exception is None, result.exception
    return result.return_value, result.output.splitlines()


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_broken_manifest_gives_exactly_the_expected_lines(path):
    """The lines stand at the top of each file: file, document, object, field, value and remedy."""
    expected = [
        line.removeprefix("# expect: ") for line in path.read_text().splitlines() if line.startswith("# expect: ")
    ]
    code, lines = validate(path)
    assert [line.replace(f"{HERE}/broken/", "") for line in lines[:-1]] == expected
    assert code == (1 if any(": error: " in line for line in expected) else 0)


@pytest.mark.parametrize("path", ORDINARY, ids=lambda path: path.stem)
def test_ordinary_manifests_pass_without_a_false_alarm(path):
    """Several pools, classes of all clouds, budgets with schedules, exports and foreign kinds."""
    code, lines = validate("--strict", path)
    assert (code, len(lines)) == (0, 1), lines
    assert lines[0].endswith("no problems")


CASES = all_cases(crds())


@pytest.mark.promise("API-1.1.1")
def test_everything_that_an_api_server_refuses_is_found():
    """The same table that runs on a real API server: a manifest that passes here passes there."""
    validator = Validator("kwok")
    missed = []
    for case in CASES:
        if case.how == "create":
            body = edited(case.plural, case.path, case.refused)
            found = [finding.problem.path for finding in validator.validate([Document("f", 1, body)])]
            if case.field not in found:
                missed.append(f"{case}: {found}")
    assert missed == []


def test_json_carries_every_part_of_a_problem():
    """Editors and pipelines read this."""
    code, lines = validate("-o", "json", HERE / "broken" / "25-claim.yaml")
    report = json.loads("\n".join(lines))
    assert (code, report["objects"]) == (1, 2)
    assert report["problems"][0] == {
        "file": str(HERE / "broken" / "25-claim.yaml"),
        "document": 1,
        "item": 0,
        "object": "NodeClaim/standalone",
        "severity": "error",
        "path": "spec.requirements[0].values",
        "value": ["cheap"],
        "message": "has no known capacity type; use one of on-demand, reserved, spot",
    }


def test_warnings_fail_only_when_strict():
    """A frozen pool may be meant."""
    path = HERE / "broken" / "24-warnings.yaml"
    assert validate(path)[0] == 0
    assert validate("--strict", path)[0] == 1


def test_catalogue_of_another_cloud_judges_every_pool(tmp_path):
    """Without one only KWOK's types are known, and other pools are not judged."""
    offering = {
        "Price": 1,
        "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1"]},
        ],
    }
    entry = {
        "name": "big",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "64", "memory": "256Gi"},
        "offerings": [offering],
    }
    catalog = tmp_path / "types.json"
    catalog.write_text(json.dumps([entry]))
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "p"},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "example.com", "kind": "C", "name": "c"},
                    "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}],
                }
            }
        },
    }
    manifest = tmp_path / "pool.yaml"
    manifest.write_text(json.dumps(pool))
    assert validate(manifest)[0] == 0
    code, lines = validate("--catalog", catalog, manifest)
    assert code == 1
    assert "karpenter.sh/capacity-type In [spot]" in lines[0] and lines[0].endswith("they have on-demand")


def test_standard_input_and_folders_are_read(tmp_path):
    """Pipelines pipe, repositories have folders."""
    text = (HERE / "broken" / "05-duplicate-taint.yaml").read_text()
    code, lines = validate("-", text=text)
    assert code == 1 and lines[0].startswith("<stdin>[1] NodePool/web: error: ")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "pool.yml").write_text(text)
    (tmp_path / "notes.txt").write_text("not: [yaml")
    assert validate(tmp_path)[1][-1] == "1 object checked: 1 error, 0 warnings"


def test_missing_file_is_a_problem_and_the_others_are_still_checked(tmp_path):
    """One wrong path must not hide the rest."""
    code, lines = validate(tmp_path / "none.yaml", HERE / "broken" / "05-duplicate-taint.yaml")
    assert code == 1
    assert "none.yaml[1]: error: cannot be read" in lines[0]
    assert "duplicates the taint" in lines[1]


def test_bad_usage_exits_1_with_the_option():
    """No files, or a catalogue that cannot be read."""
    for arguments, word in ((["validate"], "FILES"), (["validate", "--catalog", "none.json", "x.yaml"], "none.json")):
        out = subprocess.run([sys.executable, "-m", "pykarpenter.cli", *arguments], capture_output=True, text=True)
        assert out.returncode == 1
        assert word in out.stderr


def test_timestamps_stay_text():
    """An export of a live object has times that YAML would turn into something else."""
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, creationTimestamp: 2026-01-01T00:00:00Z}\n"
    assert validate("-", text=text) == (0, ["0 objects checked, 1 of other kinds skipped: no problems"])


def test_without_the_rule_engine_the_rest_is_checked_and_it_says_so(monkeypatch):
    """The engine comes with an extra; runtime validation finds most of the same mistakes."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    arguments = ["validate", str(HERE / "broken" / "03-requirements.yaml")]
    result = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert result.return_value == 1
    assert "install pykarpenter[embedded]" in result.stderr
    assert "requirements[1].values" in result.stdout and "requirements[3].values" in result.stdout


PODS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: -1
  template:
    spec:
      topologySpreadConstraints: [{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
      containers: [{name: app, resources: {requests: {cpu: "-1", memory: 1 Gi}}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
"""


def test_workloads_are_checked_and_what_is_not_checked_is_counted(tmp_path):
    """A count of checked objects that were never looked at would be a false promise."""
    file = tmp_path / "web.yaml"
    file.write_text(PODS)
    code, lines = validate(file)
    assert code == 1
    assert [line.partition(": error: ")[2].partition(":")[0] for line in lines[:-1]] == [
        "spec.template.spec.containers[0].resources.requests.cpu",
        "spec.template.spec.containers[0].resources.requests.memory",
        "spec.template.spec.topologySpreadConstraints[0].maxSkew",
        "spec.replicas",
    ]
    assert lines[-1] == "1 object checked, 1 of other kinds skipped: 4 errors, 0 warnings"


def test_empty_input_is_an_error(tmp_path):
    """An empty file is the output of a command that failed, not a set of good manifests."""
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    for path in (tmp_path / "empty.yaml", tmp_path):
        code, lines = validate(path)
        assert (code, lines[0]) == (1, f"{path}[1]: error: is empty; give at least one object with apiVersion and kind")
