"""Summaries with quantiles over the last ten minutes, which the Prometheus library for Python does not have."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from prometheus_client.core import Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from pykarpenter.runtime.clock import Clock

QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)
# What other client libraries keep by default; the count bounds memory.
WINDOW_S = 600.0
MAX_OBSERVATIONS = 1000


class SummarySeries:
    """One label set: count and sum for ever, quantiles of what the window holds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._recent: deque[tuple[float, float]] = deque(maxlen=MAX_OBSERVATIONS)
        self.count = 0
        self.sum = 0.0

    def observe(self, value: float) -> None:
        with self._lock:
            self.count += 1
            self.sum += value
            self._recent.append((self._clock.monotonic(), value))

    def quantiles(self) -> list[tuple[float, float]]:
        """The value at each quantile by nearest rank; NaN while the window is empty."""
        since = self._clock.monotonic() - WINDOW_S
        with self._lock:
            values = sorted(value for at, value in self._recent if at >= since)
        if not values:
            return [(quantile, float("nan")) for quantile in QUANTILES]
        last = len(values) - 1
        return [(quantile, values[round(quantile * last)]) for quantile in QUANTILES]


class QuantileSummary(Collector):
    """A family of summaries."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...], clock: Clock) -> None:
        self._name = name
        self._text = text
        self._label_names = labels
        self._clock = clock
        self._metrics: dict[tuple[str, ...], SummarySeries] = {}

    def labels(self, *values: str) -> SummarySeries:
        series = self._metrics.get(values)
        if series is None:
            series = self._metrics.setdefault(values, SummarySeries(self._clock))
        return series

    def observe(self, value: float) -> None:
        self.labels().observe(value)

    def remove(self, *values: str) -> None:
        self._metrics.pop(values, None)

    def collect(self) -> Iterable[Metric]:
        family = SummaryMetricFamily(self._name, self._text, labels=self._label_names)
        for values, series in list(self._metrics.items()):
            labels = dict(zip(self._label_names, values, strict=True))
            for quantile, value in series.quantiles():
                family.add_sample(self._name, {**labels, "quantile": f"{quantile:g}"}, value)
            family.add_sample(f"{self._name}_count", labels, series.count)
            family.add_sample(f"{self._name}_sum", labels, series.sum)
        return [family]

    def describe(self) -> Iterable[Metric]:
        return [SummaryMetricFamily(self._name, self._text, labels=self._label_names)]
