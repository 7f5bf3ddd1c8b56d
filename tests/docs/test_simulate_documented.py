"""docs/simulate.md names every fault a scenario may use."""

from __future__ import annotations

from pathlib import Path

from pykarpenter.sim.faults.stories import FAULTS

PAGE = Path(__file__).parents[2] / "docs/simulate.md"


def test_every_fault_of_a_scenario_is_documented():
    text = PAGE.read_text()
    assert [fault.action for fault in FAULTS.values() if f"`{fault.action}`" not in text] == []
