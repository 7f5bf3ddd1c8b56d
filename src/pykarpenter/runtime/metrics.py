"""Counters, gauges, histograms and summaries by the names of the catalogue, kept in one Prometheus registry.

Controllers say a name and labels; the catalogue knows kind and buckets. A label that is not given is empty, so a
dashboard's query never loses a series to a missing label. A name that the catalogue does not have is kept with the
labels it came with: a forgotten table row must not stop a controller, a test finds it. Reading the registry is safe
from any thread.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pykarpenter import __version__
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.commit import build_commit
from pykarpenter.runtime.gauge_tables import GaugeTable
from pykarpenter.runtime.metric_catalog import CATALOG, COUNTER, GAUGE, HISTOGRAM, SUMMARY, Metric
from pykarpenter.runtime.summaries import QuantileSummary

# Creation timestamps double the series of every counter and are not in Karpenter's exposition.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class MetricsRegistry:
    """All metrics of one program. Satisfies `controllers.context.Metrics`, `WorkObserver` and `KubeObserver`."""

    def __init__(self, clock: Clock, *, commit: str | None = None) -> None:
        self.registry = CollectorRegistry()
        self._clock = clock
        self._families: dict[str, Any] = {}
        self._labels: dict[str, tuple[str, ...]] = {}
        # Finding a series by its labels costs more than counting in it.
        self._children: dict[str, dict[tuple[str, ...], Any]] = {}
        self._catalog: dict[str, Metric] = dict(CATALOG)
        self._tables: dict[str, GaugeTable] = {}
        self._controllers: set[str] = set()
        self._unfinished: dict[str, Callable[[], tuple[float, float]]] = {}
        self.registry.register(_UnfinishedWork(self._unfinished))
        # process_resident_memory_bytes and its kin: the slope that a soak run watches (F38).
        prometheus_client.ProcessCollector(registry=self.registry)
        self.gauge(
            "karpenter_build_info",
            {
                "version": __version__,
                "goversion": f"python-{platform.python_version()}",
                "goarch": platform.machine(),
                "commit": build_commit() if commit is None else commit,
            },
            1,
        )
        self.count("controller_runtime_conversion_webhook_panics_total", {}, 0)

    def define(self, metric: Metric) -> None:
        """Add a family, or replace a predefined one that was not used yet (a provider's labels, for example)."""
        if metric.name in self._families:
            raise ValueError(f"metric {metric.name} is already in use")
        self._catalog[metric.name] = metric

    def register(self, collector: Collector) -> None:
        """Let a collector of its own answer for some families at every scrape."""
        self.registry.register(collector)

    def use_table(self, name: str, table: GaugeTable) -> None:
        """Show a table of gauges from now on, instead of the one of that name before."""
        self._tables[name] = table

    def stream(self) -> Iterator[bytes]:
        """The text exposition, piece by piece; with many nodes it takes its time, so ask for it in a thread."""
        yield prometheus_client.generate_latest(self.registry)
        for name in sorted(self._tables):
            yield from self._tables[name].chunks()

    def expose(self) -> bytes:
        """The whole text exposition at once."""
        return b"".join(self.stream())

    def count(self, name: str, labels: Mapping[str, str], amount: float = 1.0) -> None:
        self._child(COUNTER, name, labels).inc(amount)

    def gauge(self, name: str, labels: Mapping[str, str], value: float) -> None:
        self._child(GAUGE, name, labels).set(value)

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None:
        self._child(HISTOGRAM, name, labels).observe(value)

    def forget(self, name: str, labels: Mapping[str, str]) -> None:
        """Drop every series of a family whose labels include these; for objects that are gone."""
        family = self._families.get(name)
        if family is None:
            return
        names = self._labels[name]
        if not names:
            return
        wanted = [(names.index(label), value) for label, value in labels.items() if label in names]
        for values in [key for key in list(family._metrics) if all(key[i] == value for i, value in wanted)]:
            family.remove(*values)
            self._children[name].pop(values, None)

    def value(self, name: str, labels: Mapping[str, str] | None = None) -> float | None:
        """What a series shows now, None if it does not exist; histograms and summaries by `_count` and `_sum`."""
        return self.registry.get_sample_value(name, dict(labels or {}))

    def _child(self, kind: str, name: str, labels: Mapping[str, str]) -> Any:
        family = self._families.get(name)
        if family is None:
            family = self._create(kind, name, labels)
        names = self._labels[name]
        if not names:
            return family
        key = tuple([str(labels.get(label, "")) for label in names])
        children = self._children[name]
        child = children.get(key)
        if child is None:
            child = children[key] = family.labels(*key)
        return child

    def _create(self, kind: str, name: str, labels: Mapping[str, str]) -> Any:
        metric = self._catalog.get(name) or Metric(name, kind, tuple(labels), "Not described")
        names = metric.labels
        if metric.open_labels:
            names = (*names, *sorted(label for label in labels if label not in names))
        self._labels[name] = names
        self._children[name] = {}
        self._families[name] = family = self._family(metric, names)
        return family

    def _family(self, metric: Metric, names: tuple[str, ...]) -> Any:
        if metric.kind == COUNTER:
            return Counter(metric.name, metric.help, names, registry=self.registry)
        if metric.kind == GAUGE:
            return Gauge(metric.name, metric.help, names, registry=self.registry)
        if metric.kind == HISTOGRAM:
            return Histogram(metric.name, metric.help, names, registry=self.registry, buckets=metric.buckets)
        assert metric.kind == SUMMARY, metric.kind
        summary = QuantileSummary(metric.name, metric.help, names, self._clock)
        self.registry.register(summary)
        return summary

    # What queues and controllers report (runtime.observer.WorkObserver).

    def queue_created(self, name: str, unfinished: Callable[[], tuple[float, float]]) -> None:
        self._unfinished[name] = unfinished

    def queue_depth(self, name: str, depth: int) -> None:
        self.gauge("workqueue_depth", _queue(name), depth)

    def queue_added(self, name: str) -> None:
        self.count("workqueue_adds_total", _queue(name))

    def queue_retried(self, name: str) -> None:
        self.count("workqueue_retries_total", _queue(name))

    def queue_waited(self, name: str, seconds: float) -> None:
        self.observe("workqueue_queue_duration_seconds", _queue(name), seconds)

    def work_running(self, name: str, active: int, limit: int) -> None:
        if name not in self._controllers:
            # Shown as zero from the start: nothing here gives up on a key or cuts work short, and alerts may ask.
            self._controllers.add(name)
            for family in ("terminal_reconcile_errors", "reconcile_timeouts", "reconcile_panics", "reconcile_errors"):
                self.count(f"controller_runtime_{family}_total", {"controller": name}, 0)
        self.gauge("controller_runtime_active_workers", {"controller": name}, active)
        self.gauge("controller_runtime_max_concurrent_reconciles", {"controller": name}, limit)

    def work_done(self, name: str, result: str, seconds: float) -> None:
        self.count("controller_runtime_reconcile_total", {"controller": name, "result": result})
        if result == "error":
            self.count("controller_runtime_reconcile_errors_total", {"controller": name})
        self.observe("controller_runtime_reconcile_time_seconds", {"controller": name}, seconds)
        self.observe("workqueue_work_duration_seconds", _queue(name), seconds)

    def work_panicked(self, name: str) -> None:
        self.count("controller_runtime_reconcile_panics_total", {"controller": name})

    # What the client, reflectors, recorder and elector report (kube.observer.KubeObserver).

    def request(self, verb: str, kind: str, subresource: str, code: str, seconds: float) -> None:
        method = "GET" if verb in ("LIST", "WATCH") else verb
        self.count("client_go_request_total", {"code": code, "method": method})
        path, _, short = kind.rpartition("/")
        group, _, version = path.rpartition("/")
        labels = {"verb": verb, "group": group, "version": version, "kind": short, "subresource": subresource}
        self.observe("client_go_request_duration_seconds", labels, seconds)

    def rate_limited(self, seconds: float) -> None:
        self.count("pykarpenter_rate_limited_seconds_total", {}, seconds)

    def watch_restarted(self, kind: str, reason: str) -> None:
        self.count("pykarpenter_watch_restarts_total", {"kind": kind, "reason": reason})

    def watch_lag(self, kind: str, seconds: float) -> None:
        self.gauge("pykarpenter_watch_lag_seconds", {"kind": kind}, seconds)

    def event_anomaly(self, kind: str, anomaly: str) -> None:
        self.count("pykarpenter_event_anomalies_total", {"kind": kind, "anomaly": anomaly})

    def undecodable(self, kind: str) -> None:
        self.count("pykarpenter_undecodable_objects_total", {"kind": kind})

    def fenced(self, verb: str, kind: str) -> None:
        self.count("pykarpenter_fenced_writes_total", {"verb": verb, "kind": kind})

    def leading(self, name: str, leads: bool) -> None:
        self.gauge("leader_election_master_status", {"name": name}, 1.0 if leads else 0.0)

    def leader_slowpath(self, name: str) -> None:
        self.count("leader_election_slowpath_total", {"name": name})

    def event_dropped(self, reason: str) -> None:
        self.count("pykarpenter_events_dropped_total", {"reason": reason})

    def clock_skew(self, seconds: float) -> None:
        self.gauge("pykarpenter_clock_skew_seconds", {}, seconds)


def _queue(name: str) -> dict[str, str]:
    return {"controller": name, "name": name}


class _UnfinishedWork(Collector):
    """Asks every queue at scrape time: work that never ends would otherwise never show."""

    def __init__(self, queues: dict[str, Callable[[], tuple[float, float]]]) -> None:
        self._queues = queues

    def collect(self) -> Iterable[GaugeMetricFamily]:
        families = []
        for position, name in enumerate(
            ("workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds")
        ):
            metric = CATALOG[name]
            family = GaugeMetricFamily(name, metric.help, labels=metric.labels)
            for queue, unfinished in list(self._queues.items()):
                family.add_metric([queue, queue], unfinished()[position])
            families.append(family)
        return families
