"""Prices in `plan`: the effort by its short name, the gap, and catalogues whose prices say little or nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_plan import POOL, run

PODS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 30
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, resources: {requests: {cpu: 900m, memory: 1Gi}}}]
"""


def catalogue(folder: Path, prices: list[Any]) -> str:
    """Types of 2, 4, 8… vCPU, one for each price; None leaves the price out."""
    entries = []
    for number, price in enumerate(prices):
        cpu = 2 ** (number + 1)
        places = [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]},
        ]
        offering = {"Requirements": places} if price is None else {"Requirements": places, "Price": price}
        resources = {"cpu": str(cpu), "memory": f"{4 * cpu}Gi", "pods": "110"}
        entry = {"name": f"t{cpu}", "architecture": "amd64", "operatingSystems": ["linux"], "resources": resources}
        entries.append({**entry, "offerings": [offering]})
    path = folder / "types.json"
    path.write_text(json.dumps(entries))
    return str(path)


@pytest.mark.parametrize("effort", ["off", "normal", "thorough"])
@pytest.mark.parametrize(
    "prices", [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.2], [0.1, 0.2, 0.4], [float("nan"), 0.2], [None, 0.2], [None, None]]
)
def test_whatever_the_prices_say_every_pod_gets_a_place(tmp_path: Path, prices: list[Any], effort: str) -> None:
    """A catalogue with gaps must not cost anybody a machine."""
    status, out, _ = run(POOL, PODS, args=("-o", "json", "--effort", effort, "--catalog", catalogue(tmp_path, prices)))
    answer = json.loads(out)
    assert status == 0
    assert sum(len(node["pods"]) for node in answer["nodes"]) == 30
    if answer["pricePerHour"] is not None and answer["lowerBound"] is not None:
        assert answer["lowerBound"] <= answer["pricePerHour"] + 1e-9


def test_a_plan_says_its_price_its_bound_and_the_gap_between_them(tmp_path: Path) -> None:
    """The user sees how far from the best the fleet can be at most."""
    _, out, _ = run(POOL, PODS, args=("--effort", "thorough", "--catalog", catalogue(tmp_path, [0.1, 0.2, 0.4])))
    assert "lower bound " in out
    assert ", gap " in out


@pytest.mark.parametrize("effort", ["all", "", "NORMAL", "3"])
def test_an_effort_that_there_is_not_is_refused_with_those_there_are(effort: str) -> None:
    """A typing error must not silently change how plans are made."""
    status, _, error = run(POOL, PODS, args=("--effort", effort))
    assert status == 1
    assert f"--packing-effort: expected one of off, normal, thorough, got '{effort}'" in error
