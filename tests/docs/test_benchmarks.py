"""The benchmarks can be run and judge as they say."""

import importlib

import pytest
from benchmarks.__main__ import BENCHMARKS, failed, table
from benchmarks.rows import Row


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_every_registered_benchmark_exists(name):
    """`make bench` runs them all; a broken entry should show before that."""
    assert callable(importlib.import_module(BENCHMARKS[name]).run)


def test_targets_are_upper_or_lower_bounds_on_the_reference_machine():
    """A slow machine must not fail what the code does not cause; memory has no such excuse."""
    slow = 0.5
    assert Row("cpu", 40.0, "µs", 25.0).passes(slow) is True
    assert Row("cpu", 40.0, "µs", 25.0).passes(1.0) is False
    assert Row("memory", 2100.0, "bytes", 2000.0, cpu_bound=False).passes(slow) is False
    assert Row("rate", 6000.0, "1/s", 10_000.0, higher_is_better=True).passes(slow) is True
    assert Row("no target", 1.0, "s").passes(1.0) is None


def test_a_missed_target_or_a_broken_benchmark_fails_the_run():
    """CI goes by the exit code."""
    row = {"name": "x", "value": 1.0, "scaled": 1.0, "unit": "s", "target": 0.5, "higher_is_better": False, "note": ""}
    good = {"benchmark": "b", "machine_speed": 1.0, "rows": [{**row, "passes": True}]}
    bad = {"benchmark": "b", "machine_speed": 1.0, "rows": [{**row, "passes": False}]}
    assert not failed([good])
    assert failed([good, bad])
    assert failed([{"benchmark": "b", "error": ["boom"], "rows": []}])
    assert "MISS" in table([bad])
