"""`plan` with resource claims: the documented example, from files alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pykarpenter.cli.main import cli

DOCUMENT = Path(__file__).parents[2] / "docs" / "dynamic-resources.md"


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def run(folder: Path, manifests: str, *flags: str) -> tuple[int, dict[str, Any]]:
    types = folder / "types.json"
    types.write_text(block("json"))
    args = ["plan", "-f", "-", "-o", "json", "--catalog", str(types), *flags]
    result = CliRunner().invoke(cli, args, input=manifests, standalone_mode=False)
    assert result.exception is None, result.exception
    return result.return_value, json.loads(result.stdout)


@pytest.mark.promise("SCH-17.40")
def test_the_documented_example_plans_two_machines_for_three_devices(tmp_path: Path) -> None:
    status, plan = run(tmp_path, block("yaml"), "--ignore-dra-requests=false")
    assert status == 0
    assert sorted(len(claim["pods"]) for claim in plan["nodes"]) == [1, 2]
    assert "gpu-large" in json.dumps(plan["nodes"])


def test_the_same_pods_are_refused_by_default(tmp_path: Path) -> None:
    status, plan = run(tmp_path, block("yaml"))
    assert status == 2 and not plan["nodes"]
    assert "set IGNORE_DRA_REQUESTS=false" in json.dumps(plan)


def test_slices_and_claims_in_the_input_count(tmp_path: Path) -> None:
    """A claim by name, and a node whose driver has published a device for it."""
    more = """
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {kubernetes.io/os: linux}}
status: {capacity: {cpu: 8, memory: 32Gi, pods: 110}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1-gpu}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, capacity: {memory: {value: 80Gi}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: mine}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  resourceClaims: [{name: gpu, resourceClaimName: mine}]
  containers: [{name: main, resources: {requests: {cpu: 2}}}]
"""
    status, plan = run(tmp_path, block("yaml") + more, "--ignore-dra-requests=false")
    assert status == 0
    assert plan["existing"][0]["node"] == "n1" and plan["existing"][0]["pods"] == ["default/user"]
