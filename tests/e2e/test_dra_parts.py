"""Parts of devices on a real Kubernetes: partitions that draw on counters, and alternatives in list order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .cluster import Cluster, ProgramRunner
from .test_dra import DRIVER, gpu_deployment
from .test_one_real_path import NODES, pool, wait_running

pytestmark = pytest.mark.usefixtures("crds")


def catalogue(folder: Path) -> str:
    """A card of 40Gi that can be used whole or in parts of 20Gi, of which three are listed."""
    places = [("karpenter.sh/capacity-type", "on-demand"), ("topology.kubernetes.io/zone", "test-zone-a")]

    def part(name: str, size: str, memory: str) -> dict[str, Any]:
        used = [{"counterSet": "card", "counters": {"memory": {"value": memory}}}]
        return {"name": name, "attributes": {"size": {"string": size}}, "consumesCounters": used}

    parts = [part("whole", "whole", "40Gi"), *(part(f"half-{i}", "half", "20Gi") for i in range(3))]
    counters = [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]
    entry = {
        "name": "card",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "16", "memory": "64Gi", "pods": "110"},
        "offerings": [{"Price": 1.0, "Requirements": [{"key": k, "operator": "In", "values": [v]} for k, v in places]}],
        "dynamicResources": [{"driver": DRIVER, "devices": parts}, {"driver": DRIVER, "sharedCounters": counters}],
    }
    path = folder / "types.json"
    path.write_text(json.dumps([entry]))
    return str(path)


def test_partitions_fill_a_card_as_the_scheduler_does(
    cluster: Cluster, namespace: str, programs: ProgramRunner, tmp_path: Path
) -> None:
    """Three halves need two cards: the counters of one hold only two of the three parts it lists."""
    flags = ("--ignore-dra-requests=false", f"--instance-types-file-path={catalogue(tmp_path)}")
    programs.start("run", "--provider", "kwok", *flags).wait_ready()

    def alternative(name: str, size: str) -> dict[str, Any]:
        chosen = f'device.attributes["{DRIVER}"].size == "{size}"'
        return {"name": name, "deviceClassName": "card", "selectors": [{"cel": {"expression": chosen}}]}

    request = {"name": "gpu", "firstAvailable": [alternative("third", "third"), alternative("half", "half")]}
    cluster.apply(
        *pool(),
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "card"}, "spec": {}},
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one-gpu", "namespace": namespace},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        },
        gpu_deployment(namespace, 3),
    )
    wait_running(cluster, namespace, 3)
    assert len(cluster.admin.items(NODES)) == 2
    claims = cluster.admin.items(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")
    results = [found for item in claims for found in item["status"]["allocation"]["devices"]["results"]]
    assert {found["request"] for found in results} == {"gpu/half"}
