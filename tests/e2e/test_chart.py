"""The chart on a real API server: it applies, applies again without a change, and what it renders starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chart.rendering import container, environment, objects, render

from .cluster import Cluster, ProgramRunner, wait_until
from .cluster.ports import free_ports
from .test_rbac import pool_and_class, refused
from .workloads import pause_pod


@pytest.fixture
def values(cluster: Cluster, namespace: str) -> Iterator[dict[str, Any]]:
    """Values with names and ports of this test alone; cluster-wide roles are removed after it."""
    metrics, probes = free_ports(2)
    controller = {"metrics": {"port": metrics}, "healthProbe": {"port": probes}}
    yield {"fullnameOverride": namespace, "serviceAccount": {"name": "karpenter"}, "controller": controller}
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", namespace, "--ignore-not-found")
    cluster.kubectl("delete", "role,rolebinding", namespace, "-n", "kube-node-lease", "--ignore-not-found")


def stored(cluster: Cluster, rendered: str) -> list[dict[str, Any]]:
    """Everything the chart made, as the API server has it, without what controllers report about it."""
    found = json.loads(cluster.kubectl("get", "-f", "-", "-o", "json", input=rendered))["items"]
    for obj in found:
        obj.pop("status", None)
        for changing in ("resourceVersion", "managedFields"):
            obj["metadata"].pop(changing, None)
        obj["metadata"].get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
    return list(found)


def test_chart_applies_twice_and_starts_the_controller(
    cluster: Cluster, crds: None, namespace: str, programs: ProgramRunner, values: dict[str, Any]
) -> None:
    """What is never applied to a real API server is only believed to be right."""
    rendered = render(values, namespace=namespace, crds=True)
    first = cluster.kubectl("apply", "-f", "-", input=rendered)
    assert "deployment.apps" in first and "customresourcedefinition" in first
    before = stored(cluster, rendered)
    second = cluster.kubectl("apply", "-f", "-", input=rendered).splitlines()
    # kubectl sends a budget's selector each time, as its merge strategy asks; the object stays as it is.
    assert {line.split("/")[0] for line in second if not line.endswith(" unchanged")} <= {"poddisruptionbudget.policy"}
    assert stored(cluster, rendered) == before

    found = objects(values, namespace=namespace)
    kubeconfig = cluster.kubeconfig_for_service_account(namespace, "karpenter")
    program = programs.start(*container(found)["args"], kubeconfig=kubeconfig, env=environment(found))
    program.wait_ready()
    # A plain pod is enough: the chart's own pods wait for a node that nobody manages.
    cluster.apply(*pool_and_class(), pause_pod(namespace, "one", cpu="1"))
    pod = f"/api/v1/namespaces/{namespace}/pods/one"
    wait_until(lambda: cluster.admin.get(pod)["status"].get("phase") == "Running", 60, what="the pod runs")
    assert "karpenter_build_info" in program.metrics()
    assert program.terminate() == 0
    assert refused(cluster, namespace) == []
    own = cluster.admin.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector="app.kubernetes.io/name=karpenter")
    assert [pod["spec"].get("nodeName") for pod in own] == [None, None], "the controller stays off nodes it manages"
