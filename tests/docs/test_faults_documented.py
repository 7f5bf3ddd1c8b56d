"""INVARIANTS.md names every fault of the catalogue and the action that brings it about."""

from __future__ import annotations

import re
from pathlib import Path

from pykarpenter.sim.faults.stories import FAULTS, VARIANTS

PAGE = Path(__file__).parents[2] / "INVARIANTS.md"
# These two are not drawn: a benchmark and a month of churn.
ELSEWHERE = {"F37", "F38"}


def test_every_fault_has_a_row_and_every_row_an_action():
    rows = dict(re.findall(r"^\| (F\d+) \|.*\| (.*) \|$", PAGE.read_text(), re.MULTILINE))
    assert list(rows) == [f"F{number}" for number in range(1, 49)]
    assert set(FAULTS) == set(rows) - ELSEWHERE
    for fault in FAULTS:
        assert f"`{FAULTS[fault].action}`" in rows[fault]
    assert all(f"`{VARIANTS[fault].action}`" in rows[fault] for fault in VARIANTS)
