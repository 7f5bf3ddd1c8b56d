"""The diagrams in the documentation are those of the tables in the code."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def load_script() -> Any:
    spec = importlib.util.spec_from_file_location("state_diagrams", ROOT / "scripts" / "state_diagrams.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawn_state_machines_are_up_to_date() -> None:
    """A table that changed without its picture would mislead whoever reads only the picture."""
    assert load_script().main(["--check"]) == 0


def test_every_transition_is_drawn() -> None:
    """Nothing the code can do is missing from the picture."""
    script = load_script()
    drawn = script.render()
    for _, _, table, _, _ in script.MACHINES:
        for (phase, fact), step in table.items():
            assert f"{phase} --> {step.phase}: {fact}" in drawn
