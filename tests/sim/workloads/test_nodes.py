"""Node lifecycle in the embedded cluster: silence, taints, cordons, and pods of nodes that are gone."""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.kube.contract import Selection
from pykarpenter.providers.kwok.kubelet import KubeletOptions
from pykarpenter.sim.cluster import ClusterOptions
from tests.sim.worlds import in_cluster, node, pods, running, settle, template, workload

# Kubelets of nodes that are labelled alive; others fall silent.
ALIVE = ClusterOptions(kubelet=KubeletOptions(nodes=Selection(label_selector="alive=yes")))


def _alive(name: str, **fields):
    body = node(name, **fields)
    body["metadata"]["labels"]["alive"] = "yes"
    return body


def test_silent_node_loses_its_pods_after_five_minutes():
    """Default tolerations keep pods on an unreachable node for 300 s; then they move."""

    async def story(cluster):
        for_five_minutes = {
            "key": "node.kubernetes.io/unreachable",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        web = workload("Deployment", "web", 2, template=template("web", tolerations=[for_five_minutes]))
        await cluster.install([_alive("a", cpu="2"), web])
        await settle()
        await cluster.install([_alive("b")])
        await cluster.api.patch(kinds.NODE, "a", {"metadata": {"labels": {"alive": None}}})
        await settle(120)
        silent = await cluster.api.get(kinds.NODE, "a")
        early = {pod.spec.node_name for pod in await pods(cluster, "web")}
        await settle(400)
        late = {pod.spec.node_name for pod in await running(cluster, "web")}
        return silent, early, late

    silent, early, late = in_cluster(story, ALIVE)
    assert {(t.key, t.effect) for t in silent.spec.taints} == {
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
    }
    assert early == {"a"}
    assert late == {"b"}


def test_cordon_becomes_a_taint_and_goes_with_it():
    async def story(cluster):
        await cluster.install([node("a")])
        await settle()
        await cluster.api.patch(kinds.NODE, "a", {"spec": {"unschedulable": True}})
        await settle()
        cordoned = (await cluster.api.get(kinds.NODE, "a")).spec.taints
        await cluster.api.patch(kinds.NODE, "a", {"spec": {"unschedulable": None}})
        await settle()
        return cordoned, (await cluster.api.get(kinds.NODE, "a")).spec.taints

    cordoned, after = in_cluster(story)
    assert [(t.key, t.effect) for t in cordoned] == [("node.kubernetes.io/unschedulable", "NoSchedule")]
    assert after == []


def test_no_execute_taint_moves_pods_at_once():
    async def story(cluster):
        await cluster.install([node("a"), workload("Deployment", "web", 2)])
        await settle()
        await cluster.install([node("b")])
        taint = {"spec": {"taints": [{"key": "broken", "effect": "NoExecute"}]}}
        await cluster.api.patch(kinds.NODE, "a", taint)
        await settle(60)
        return {pod.spec.node_name for pod in await running(cluster, "web")}

    assert in_cluster(story) == {"b"}


def test_pods_of_a_deleted_node_are_collected_and_replaced():
    async def story(cluster):
        await cluster.install([node("a"), workload("Deployment", "web", 2)])
        await settle()
        await cluster.install([node("b")])
        await cluster.api.delete(kinds.NODE, "a")
        await settle(120)
        return [pod.spec.node_name for pod in await pods(cluster, "web")]

    assert in_cluster(story) == ["b", "b"]


def test_important_pod_pushes_a_lesser_one_away():
    """PriorityClass, preemption and the nominated node, end to end."""

    async def story(cluster):
        important = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "vip"},
            "value": 1000,
        }
        await cluster.install([important, node("a", cpu="1"), workload("Deployment", "web", 2)])
        await settle()
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "vip", "labels": {"app": "vip"}},
            "spec": {
                "priorityClassName": "vip",
                "priority": 1000,
                "containers": [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "1"}}}],
            },
        }
        await cluster.install([pod])
        await settle(90)
        return await pods(cluster)

    found = in_cluster(story)
    assert [pod.name for pod in found if pod.status.phase == "Running"] == ["vip"]
    assert sum(not pod.spec.node_name for pod in found) == 2
