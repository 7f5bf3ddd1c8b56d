"""Deployments, ReplicaSets and StatefulSets keep their promises in the embedded cluster."""

from __future__ import annotations

from collections import Counter

import pytest

from pykarpenter.api import kinds
from pykarpenter.kube.contract import list_all
from pykarpenter.sim.workloads import revisions
from pykarpenter.sim.workloads.deployments import REVISION
from tests.sim.worlds import in_cluster, node, pods, raw, running, settle, template, workload


def test_deployment_runs_as_many_pods_as_asked():
    async def story(cluster):
        await cluster.install([node("a"), node("b"), workload("Deployment", "web", 5)])
        await settle()
        deployment = await raw(cluster, kinds.DEPLOYMENT, "web")
        return await running(cluster, "web"), deployment.status

    found, status = in_cluster(story)
    assert len(found) == 5
    assert (status["readyReplicas"], status["updatedReplicas"]) == (5, 5)
    assert {c["type"]: c["status"] for c in status["conditions"]} == {"Available": "True", "Progressing": "True"}


def test_scale_down_removes_cheap_pods_first():
    """pod-deletion-cost decides among pods that are otherwise equal."""

    async def story(cluster):
        await cluster.install([node("a"), workload("Deployment", "web", 4)])
        await settle()
        kept = (await running(cluster, "web"))[0]
        cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "100"}}}
        await cluster.api.patch(kinds.POD, kept.name, cost, "default")
        await cluster.api.patch(kinds.DEPLOYMENT, "web", {"spec": {"replicas": 1}}, "default")
        await settle(60)
        return kept.name, [pod.name for pod in await pods(cluster, "web")]

    kept, left = in_cluster(story)
    assert left == [kept]


def test_rollout_replaces_every_pod_and_stays_available():
    """Never fewer than 75% of the replicas are ready while a new template rolls out."""

    async def story(cluster):
        await cluster.install([node("a", cpu="16"), workload("Deployment", "web", 8)])
        await settle()
        before = {pod.name for pod in await running(cluster, "web")}
        new = template("web") | {"metadata": {"labels": {"app": "web", "v": "2"}}}
        await cluster.api.patch(kinds.DEPLOYMENT, "web", {"spec": {"template": new}}, "default")
        fewest = 8
        for _ in range(300):
            await settle(0.2)
            fewest = min(fewest, len(await running(cluster, "web")))
        return before, {pod.name for pod in await pods(cluster, "web")}, fewest

    before, after, fewest = in_cluster(story)
    assert len(after) == 8
    assert not before & after
    assert fewest >= 6


def test_evicted_pod_is_replaced():
    async def story(cluster):
        await cluster.install([node("a"), workload("Deployment", "web", 2)])
        await settle()
        victim = (await running(cluster, "web"))[0]
        await cluster.api.evict(victim.name, "default")
        await settle(60)
        return victim.name, [pod.name for pod in await running(cluster, "web")]

    victim, left = in_cluster(story)
    assert len(left) == 2
    assert victim not in left


def test_stateful_pods_start_in_order_and_keep_their_claims():
    async def story(cluster):
        storage = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "fast"},
            "provisioner": "disk.sim",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        claim = {
            "metadata": {"name": "data"},
            "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"]},
        }
        db = workload("StatefulSet", "db", 3, serviceName="db", volumeClaimTemplates=[claim])
        await cluster.install([storage, node("a", zone="a"), node("b", zone="b"), db])
        order = []
        for _ in range(300):
            await settle(0.2)
            order.extend(p.name for p in await running(cluster, "db") if p.name not in order)
        placed = {pod.name: pod.spec.node_name for pod in await running(cluster, "db")}
        victim = "db-1"
        await cluster.api.delete(kinds.POD, victim, "default")
        await settle(60)
        again = {pod.name: pod.spec.node_name for pod in await running(cluster, "db")}
        claims = {
            c.name: c.spec.volume_name
            for c in [await cluster.api.get(kinds.PVC, f"data-db-{i}", "default") for i in range(3)]
        }
        attachments = (await cluster.api.list_page(kinds.VOLUME_ATTACHMENT)).items
        return order, placed, again, claims, attachments

    order, placed, again, claims, attachments = in_cluster(story)
    assert order == ["db-0", "db-1", "db-2"]
    assert all(claims.values())
    assert again["db-1"] == placed["db-1"], "its volume lives in one zone, so the pod comes back there"
    assert len(attachments) == 3


def test_pods_of_one_set_spread_over_nodes():
    async def story(cluster):
        await cluster.install([node("a"), node("b"), node("c"), workload("Deployment", "web", 6)])
        await settle()
        return Counter(pod.spec.node_name for pod in await running(cluster, "web"))

    assert in_cluster(story) == {"a": 2, "b": 2, "c": 2}


def _image(version: int) -> dict:
    return {"spec": {"template": {"metadata": {"labels": {"app": "web", "v": str(version)}}}}}


def test_a_deployments_template_that_comes_back_is_the_newest_revision_again():
    """`kubectl rollout undo` reads the numbers on ReplicaSets and the annotations of the Deployment."""

    async def story(cluster):
        await cluster.install([node("a"), workload("Deployment", "web", 2)])
        await settle()
        for version in (2, 3, 2):
            await cluster.api.patch(kinds.DEPLOYMENT, "web", _image(version), "default")
            await settle(60)
        sets = await list_all(cluster.api, kinds.REPLICA_SET)
        deployment = await raw(cluster, kinds.DEPLOYMENT, "web")
        numbers = {item.metadata.labels.get("v", "1"): item.metadata.annotations[REVISION] for item in sets}
        return numbers, deployment.metadata.annotations[REVISION]

    assert in_cluster(story) == ({"1": "1", "2": "4", "3": "3"}, "4")


def test_a_paused_deployment_follows_its_size_but_not_its_template():
    async def story(cluster):
        await cluster.install([node("a"), workload("Deployment", "web", 2)])
        await settle()
        await cluster.api.patch(kinds.DEPLOYMENT, "web", {"spec": {"paused": True}}, "default")
        await cluster.api.patch(kinds.DEPLOYMENT, "web", _image(2), "default")
        await cluster.api.patch(kinds.DEPLOYMENT, "web", {"spec": {"replicas": 3}}, "default")
        await settle(60)
        paused = [pod.metadata.labels.get("v", "1") for pod in await running(cluster, "web")]
        await cluster.api.patch(kinds.DEPLOYMENT, "web", {"spec": {"paused": None}}, "default")
        await settle(60)
        return paused, [pod.metadata.labels.get("v", "1") for pod in await running(cluster, "web")]

    assert in_cluster(story) == (["1"] * 3, ["2"] * 3)


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_templates_of_sets_are_kept_as_numbered_revisions(kind):
    """Each is a patch that puts the template back; one that comes back is the newest again."""

    async def story(cluster):
        await cluster.install([node("a"), workload(kind, "web", 1)])
        await settle()
        plural = kinds.STATEFUL_SET if kind == "StatefulSet" else kinds.DAEMON_SET
        for version in (2, 3, 2):
            await cluster.api.patch(plural, "web", _image(version), "default")
            await settle(60)
        kept = await list_all(cluster.api, revisions.REVISION)
        return {
            item.data["spec"]["template"]["metadata"]["labels"].get("v", "1"): item.revision
            for item in kept
            if item.data["spec"]["template"]["$patch"] == "replace"
        }

    assert in_cluster(story) == {"1": 1, "2": 4, "3": 3}
