"""Metrics carry Karpenter's names and labels, whatever a controller forgets to say."""

import asyncio
import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pykarpenter.runtime.controller import Controller, Loop
from pykarpenter.runtime.metric_catalog import CATALOG, COUNTER, GAUGE, Metric
from pykarpenter.runtime.metrics import MetricsRegistry
from pykarpenter.runtime.observer import observing
from pykarpenter.runtime.queue import WorkQueue
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock


class Still:
    at = 0.0

    def now(self):
        return self.at

    def monotonic(self):
        return self.at


def test_counters_gauges_and_histograms_appear_under_their_names():
    """Dashboards made for Karpenter query these series."""
    metrics = MetricsRegistry(Still())
    pool = {"nodepool": "general", "zone": "a"}
    metrics.count("karpenter_nodes_created_total", pool)
    metrics.count("karpenter_nodes_created_total", pool, 2)
    metrics.gauge("karpenter_nodepools_limit", {"nodepool": "general", "resource_type": "cpu"}, 100)
    metrics.observe("karpenter_nodeclaims_termination_duration_seconds", {"nodepool": "general"}, 3)
    assert metrics.value("karpenter_nodes_created_total", pool) == 3
    assert metrics.value("karpenter_nodepools_limit", {"nodepool": "general", "resource_type": "cpu"}) == 100
    bucket = {"nodepool": "general", "le": "4.0"}
    assert metrics.value("karpenter_nodeclaims_termination_duration_seconds_bucket", bucket) == 1


def test_a_label_that_was_not_given_is_empty():
    """A query by another label must not lose the series."""
    metrics = MetricsRegistry(Still())
    metrics.count("karpenter_nodeclaims_disrupted_total", {"reason": "expired", "nodepool": "general"})
    labels = {
        "reason": "expired",
        "nodepool": "general",
        "capacity_type": "",
        "consolidation_policy": "",
        "termination_mode": "",
    }
    assert metrics.value("karpenter_nodeclaims_disrupted_total", labels) == 1


@pytest.mark.promise("API-8.4")
def test_summaries_have_quantiles_of_the_last_ten_minutes():
    """Karpenter's summaries show 0, .5, .9, .99 and 1."""
    clock = Still()
    metrics = MetricsRegistry(clock)
    for second in range(101):
        metrics.observe("karpenter_pods_startup_duration_seconds", {}, second)
    name = "karpenter_pods_startup_duration_seconds"
    shown = {quantile: metrics.value(name, {"quantile": quantile}) for quantile in ("0", "0.5", "0.9", "0.99", "1")}
    assert shown == {"0": 0, "0.5": 50, "0.9": 90, "0.99": 99, "1": 100}
    assert metrics.value("karpenter_pods_startup_duration_seconds_count") == 101
    clock.at = 601
    assert math.isnan(metrics.value("karpenter_pods_startup_duration_seconds", {"quantile": "1"}))
    assert metrics.value("karpenter_pods_startup_duration_seconds_sum") == 5050


def test_series_of_gone_objects_can_be_dropped():
    """Ten thousand nodes a day would otherwise stay for ever (F38)."""
    metrics = MetricsRegistry(Still())
    for node in ("a", "b"):
        for resource in ("cpu", "memory"):
            metrics.gauge("karpenter_nodes_allocatable", {"resource_type": resource, "node_name": node}, 1)
    metrics.forget("karpenter_nodes_allocatable", {"node_name": "a"})
    assert b'node_name="a"' not in metrics.expose()
    assert metrics.value("karpenter_nodes_allocatable", {"resource_type": "cpu", "node_name": "b"}) == 1
    metrics.forget("karpenter_scheduler_ignored_pods_count", {"node_name": "a"})


def test_an_unknown_name_does_not_stop_a_controller():
    """A forgotten table row is a documentation defect, not an outage."""
    metrics = MetricsRegistry(Still())
    metrics.count("karpenter_brand_new_total", {"a": "b"})
    assert metrics.value("karpenter_brand_new_total", {"a": "b"}) == 1


def test_a_provider_can_add_families_and_collectors():
    """The seam for domain and provider metrics."""
    metrics = MetricsRegistry(Still())
    metrics.define(Metric("karpenter_cloudprovider_batcher_batch_size", GAUGE, ("batcher",), "Batch size"))
    metrics.gauge("karpenter_cloudprovider_batcher_batch_size", {"batcher": "x"}, 3)
    assert metrics.value("karpenter_cloudprovider_batcher_batch_size", {"batcher": "x"}) == 3
    with pytest.raises(ValueError, match="already in use"):
        metrics.define(Metric("karpenter_cloudprovider_batcher_batch_size", GAUGE, (), ""))


def test_build_info_says_what_runs():
    """`goversion` carries the Python version, as documented."""
    families = {f.name: f for f in text_string_to_metric_families(MetricsRegistry(Still()).expose().decode())}
    (sample,) = families["karpenter_build_info"].samples
    assert sample.labels["goversion"].startswith("python-3.")
    assert "process_resident_memory_bytes" in families


@pytest.mark.promise("API-8.5")
def test_controllers_and_queues_report_themselves():
    """Alerts on reconcile errors and queue depth are the same as for any controller."""
    metrics = MetricsRegistry(Still())

    async def reconcile(key):
        if key == "bad":
            raise ValueError(key)

    async def step():
        return 100.0

    async def main():
        with observing(metrics):
            controller = Controller("nodeclaim.lifecycle", reconcile, clock=running_clock(), workers=7)
            loop = Loop("provisioner", step, clock=running_clock())
        tasks = [asyncio.create_task(controller.run()), asyncio.create_task(loop.run())]
        for key in ("a", "b", "bad"):
            controller.enqueue(key)
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()

    run_virtual(main())
    mine = {"controller": "nodeclaim.lifecycle"}
    assert metrics.value("controller_runtime_reconcile_total", {**mine, "result": "success"}) == 2
    assert metrics.value("controller_runtime_reconcile_errors_total", mine) == 1
    assert metrics.value("controller_runtime_reconcile_panics_total", mine) == 1
    assert metrics.value("controller_runtime_max_concurrent_reconciles", mine) == 7
    assert metrics.value("workqueue_adds_total", {**mine, "name": "nodeclaim.lifecycle"}) == 3
    assert metrics.value("workqueue_retries_total", {**mine, "name": "nodeclaim.lifecycle"}) == 1
    assert metrics.value("workqueue_depth", {**mine, "name": "nodeclaim.lifecycle"}) == 0
    provisioner = {"controller": "provisioner", "result": "requeue_after"}
    assert metrics.value("controller_runtime_reconcile_total", provisioner) == 1


def test_work_that_never_ends_shows_while_it_runs():
    """A stuck reconcile has no duration yet; only asking at scrape time reveals it."""
    metrics = MetricsRegistry(Still())

    async def main():
        queue = WorkQueue(clock=running_clock(), name="stuck", observer=metrics)
        queue.add("a")
        await queue.get()
        await asyncio.sleep(90)
        labels = {"controller": "stuck", "name": "stuck"}
        assert metrics.value("workqueue_longest_running_processor_seconds", labels) == 90

    run_virtual(main())


@pytest.mark.promise("API-8.6")
def test_the_client_and_the_lease_report_themselves():
    """client_go and leader_election families, with their labels."""
    metrics = MetricsRegistry(Still())
    metrics.request("PATCH", "karpenter.sh/v1/NodeClaim", "status", "200", 0.02)
    metrics.request("LIST", "v1/Pod", "", "<error>", 0.02)
    metrics.leading("karpenter-leader-election", True)
    metrics.fenced("delete", "NodeClaim")
    assert metrics.value("client_go_request_total", {"code": "<error>", "method": "GET"}) == 1
    labels = {"verb": "PATCH", "group": "karpenter.sh", "version": "v1", "kind": "NodeClaim", "subresource": "status"}
    assert metrics.value("client_go_request_duration_seconds_count", labels) == 1
    core = {"verb": "LIST", "group": "", "version": "v1", "kind": "Pod", "subresource": ""}
    assert metrics.value("client_go_request_duration_seconds_count", core) == 1
    assert metrics.value("leader_election_master_status", {"name": "karpenter-leader-election"}) == 1
    assert metrics.value("pykarpenter_fenced_writes_total", {"verb": "delete", "kind": "NodeClaim"}) == 1


def test_counters_are_named_as_counters():
    """The exposition appends `_total`; a counter without it would change its name."""
    for metric in CATALOG.values():
        assert (metric.kind == COUNTER) == metric.name.endswith(
            "_total"
        ) or metric.name == "karpenter_nodepools_cost_total"
