"""Dynamic resources on a real Kubernetes: its scheduler allocates the devices that simulated drivers publish."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .cluster import Cluster, ProgramRunner, wait_until
from .test_one_real_path import CLAIMS, NODES, pool, wait_running
from .workloads import deployment

pytestmark = pytest.mark.usefixtures("crds")

DRIVER = "gpu.example.com"
MODEL = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].model.startsWith("a1")'
MEMORY = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
VERSION = f'device.attributes["{DRIVER}"].firmware.isGreaterThan(semver("1.2.0"))'


def catalogue(folder: Path) -> str:
    """A small type without devices, one with small devices and one with large ones."""

    def entry(name: str, cpu: str, price: float, model: str, memory: str, count: int) -> dict[str, Any]:
        places = [("karpenter.sh/capacity-type", "on-demand"), ("topology.kubernetes.io/zone", "test-zone-a")]
        wanted = [{"key": key, "operator": "In", "values": [value]} for key, value in places]
        attributes = {"model": {"string": model}, "firmware": {"version": "1.10.0"}}
        devices = [
            {"name": f"gpu-{i}", "attributes": attributes, "capacity": {"memory": {"value": memory}}}
            for i in range(count)
        ]
        return {
            "name": name,
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": {"cpu": cpu, "memory": "64Gi", "pods": "110"},
            "offerings": [{"Price": price, "Requirements": wanted}],
            "dynamicResources": [{"driver": DRIVER, "devices": devices}] if devices else [],
        }

    path = folder / "types.json"
    types = [
        entry("plain", "16", 0.1, "", "", 0),
        entry("small", "16", 0.5, "t4", "16Gi", 4),
        entry("large", "16", 2.0, "a100", "40Gi", 2),
    ]
    path.write_text(json.dumps(types))
    return str(path)


def claim_objects(namespace: str) -> list[dict[str, Any]]:
    selectors = [{"cel": {"expression": text}} for text in (MEMORY, VERSION)]
    request = {"name": "gpu", "exactly": {"deviceClassName": "large-gpu", "count": 1, "selectors": selectors}}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "large-gpu"},
            "spec": {"selectors": [{"cel": {"expression": MODEL}}]},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one-gpu", "namespace": namespace},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        },
    ]


def gpu_deployment(namespace: str, replicas: int) -> dict[str, Any]:
    made = deployment(namespace, "train", replicas, cpu="1")
    spec = made["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    spec["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return made


def test_pods_with_a_claim_template_get_machines_whose_devices_the_scheduler_allocates(
    cluster: Cluster, namespace: str, programs: ProgramRunner, tmp_path: Path
) -> None:
    """Three pods with a device each need two machines with two devices; every claim ends allocated on its node."""
    flags = ("--ignore-dra-requests=false", f"--instance-types-file-path={catalogue(tmp_path)}")
    program = programs.start("run", "--provider", "kwok", *flags)
    program.wait_ready()
    cluster.apply(*pool(), *claim_objects(namespace), gpu_deployment(namespace, 3))
    pods = wait_running(cluster, namespace, 3)

    nodes = {node["metadata"]["name"]: node for node in cluster.admin.items(NODES)}
    assert len(nodes) == 2
    assert {node["metadata"]["labels"]["node.kubernetes.io/instance-type"] for node in nodes.values()} == {"large"}
    claims = cluster.admin.items(CLAIMS)
    assert {item["metadata"]["annotations"]["karpenter.sh/requested-dra-drivers"] for item in claims} == {DRIVER}
    initialized = [c for item in claims for c in item["status"]["conditions"] if c["type"] == "Initialized"]
    assert [found["status"] for found in initialized] == ["True", "True"]

    on_node = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
    taken = set()
    for item in cluster.admin.items(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"):
        (user,) = item["status"]["reservedFor"]
        (result,) = item["status"]["allocation"]["devices"]["results"]
        assert result["driver"] == DRIVER and result["pool"] == on_node[user["name"]]
        taken.add((result["pool"], result["device"]))
    assert len(taken) == 3

    cluster.kubectl("scale", "deployment", "train", "--replicas=4", "-n", namespace)
    wait_running(cluster, namespace, 4)
    assert len(cluster.admin.items(NODES)) == 2, "the fourth device was there already"


def test_a_claim_that_is_not_supported_is_refused_with_the_reason(
    cluster: Cluster, namespace: str, programs: ProgramRunner, tmp_path: Path
) -> None:
    """And it holds up nobody else."""
    flags = ("--ignore-dra-requests=false", f"--instance-types-file-path={catalogue(tmp_path)}")
    programs.start("run", "--provider", "kwok", *flags).wait_ready()
    objects = claim_objects(namespace)
    devices = objects[1]["spec"]["spec"]["devices"]
    devices["requests"].append({**devices["requests"][0], "name": "other"})
    devices["constraints"] = [{"distinctAttribute": f"{DRIVER}/model", "requests": ["gpu", "other"]}]
    cluster.apply(*pool(), *objects, gpu_deployment(namespace, 1), deployment(namespace, "web", 1, cpu="1"))

    def refusals() -> list[str]:
        events = cluster.admin.items(f"/api/v1/namespaces/{namespace}/events")
        return [e["message"] for e in events if "distinctAttribute is not supported" in e.get("message", "")]

    wait_until(refusals, what="the pod's event says what is not supported")
    wait_until(
        lambda: any(
            pod["status"].get("phase") == "Running"
            for pod in cluster.admin.items(f"/api/v1/namespaces/{namespace}/pods")
        ),
        60,
        what="the other pod runs",
    )
