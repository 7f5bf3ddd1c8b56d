"""DaemonSets, Jobs and PodDisruptionBudgets keep their promises in the embedded cluster."""

from __future__ import annotations

import pytest

from pykarpenter.api import kinds
from pykarpenter.kube.errors import TooManyRequests
from pykarpenter.sim.workloads.jobs import INDEX
from tests.sim.worlds import in_cluster, job, node, pods, raw, running, settle, workload


def test_daemon_pod_appears_on_every_node_also_later_ones():
    async def story(cluster):
        await cluster.install([node("a"), workload("DaemonSet", "agent")])
        await settle()
        await cluster.install([node("b")])
        await settle()
        status = (await raw(cluster, kinds.DAEMON_SET, "agent")).status
        return sorted(pod.spec.node_name for pod in await running(cluster, "agent")), status

    nodes, status = in_cluster(story)
    assert nodes == ["a", "b"]
    assert (status["desiredNumberScheduled"], status["numberReady"]) == (2, 2)


def test_daemon_set_respects_node_selector_and_taints():
    async def story(cluster):
        tainted = node("tainted")
        tainted["spec"] = {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]}
        await cluster.install([node("a"), tainted, workload("DaemonSet", "agent")])
        await settle()
        return [pod.spec.node_name for pod in await running(cluster, "agent")]

    assert in_cluster(story) == ["a"]


def test_job_runs_to_completion_within_its_parallelism():
    async def story(cluster):
        await cluster.install([node("a"), job("sums", completions=5, parallelism=2)])
        most = 0
        for _ in range(200):
            await settle(0.5)
            most = max(most, len(await running(cluster, "sums")))
        return most, (await raw(cluster, kinds.JOB, "sums")).status

    most, status = in_cluster(story)
    assert most == 2
    assert status["succeeded"] == 5
    assert [c["type"] for c in status["conditions"]] == ["Complete"]


def test_finished_job_goes_after_its_time_to_live():
    async def story(cluster):
        await cluster.install([node("a"), job("sums", ttlSecondsAfterFinished=30)])
        await settle(300)
        return await pods(cluster, "sums"), (await cluster.api.list_page(kinds.JOB)).items

    assert in_cluster(story) == ([], [])


def test_s6_budget_refuses_the_second_eviction_until_the_first_is_replaced():
    async def story(cluster):
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }
        await cluster.install([node("a"), workload("Deployment", "web", 3), budget])
        await settle()
        first, second, _ = await running(cluster, "web")
        await cluster.api.evict(first.name, "default")
        with pytest.raises(TooManyRequests):
            await cluster.api.evict(second.name, "default")
        await settle(60)
        await cluster.api.evict(second.name, "default")
        return (await raw(cluster, kinds.PDB, "web")).status

    assert in_cluster(story)["expectedPods"] == 3


def test_an_indexed_job_gives_each_number_to_one_pod_until_it_succeeds():
    """A number whose pod was taken away is tried again; numbers that are done stay done."""

    async def story(cluster):
        numbers = job("numbers", "30s", completions=4, parallelism=2, completionMode="Indexed")
        await cluster.install([node("a"), numbers])
        await settle(5)
        first = await pods(cluster)
        indexes = sorted(pod.metadata.annotations[INDEX] for pod in first)
        await cluster.api.delete(kinds.POD, first[0].name, "default")
        await settle(200)
        done = await raw(cluster, kinds.JOB, "numbers")
        return indexes, [pod.name.rpartition("-")[0] for pod in first], done.status

    indexes, names, status = in_cluster(story)
    assert indexes == ["0", "1"] and names == ["numbers-0", "numbers-1"]
    assert (status["succeeded"], status["failed"], status["completedIndexes"]) == (4, 1, "0-3")
    assert status["conditions"][0]["type"] == "Complete"
