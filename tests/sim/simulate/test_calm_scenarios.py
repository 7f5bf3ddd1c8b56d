"""Days in the life of a fleet: cheaper and calmer than Karpenter's search, and silent under steady load."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.sim.simulate.test_simulate import run

EXAMPLES = Path(__file__).parents[3] / "examples/simulate"
HOUR = 3600.0


@pytest.mark.slow
def test_steady_load_with_life_in_it_moves_nothing_that_does_not_pay_back():
    """Jobs come and go, services restart: three hours of it here, a day when the example is simulated in full."""
    # Not the whole third hour: with its last second a Job begins, whose pods may have to wait for a machine.
    result = run(str(EXAMPLES / "steady.yaml"), "--until", "179m", "--json", "-s", "consolidation-search=best")
    assert result.return_value == 0, result.output
    found = json.loads(result.stdout)
    start = found["moves"][0]["at"] - found["moves"][0]["at"] % HOUR if found["moves"] else 0.0
    late = [move for move in found["moves"] if move["at"] > start + HOUR]
    assert all(move["paid_back_at"] - move["at"] <= 24 * HOUR for move in late)
    assert found["violations"] == []
    assert found["pods_waiting"] == 0


@pytest.mark.slow
def test_an_evening_beside_karpenter_is_cheaper_and_disturbs_less(tmp_path):
    """The falling half of the day, in which machines are given back."""
    week = (EXAMPLES / "week.yaml").read_text().replace("replicas: 10", "replicas: 40")
    for name, peak in (("web", "14h"), ("api", "11h"), ("cache", "20h")):
        assert peak in week, name
        week = week.replace(f"peak: {peak}", "peak: 1m")
    file = tmp_path / "evening.yaml"
    file.write_text(week)
    out = tmp_path / "out"
    result = run(str(file), "--until", "6h", "--beside", "karpenter", "-o", str(out), "-s", "consolidation-search=best")
    assert result.return_value == 0, result.output
    assert "Karpenter's way" in result.output
    ours = json.loads((out / "summary.json").read_text())
    theirs = ours["beside"]
    assert ours["cost"] <= theirs["cost"]
    assert ours["evictions"] <= theirs["evictions"]
    ElementTree.fromstring((out / "compared.svg").read_text())


@pytest.mark.parametrize(
    ("given", "told"),
    [("min-saving", "give name=value"), ("min-saving=lots", "min-saving"), ("no-such=1", "unknown flag")],
)
def test_bad_settings_are_named(given, told):
    result = run(str(EXAMPLES / "steady.yaml"), "-s", given)
    assert result.return_value == 1
    assert told in result.output
