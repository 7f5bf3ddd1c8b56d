"""The page that follows one disruption names functions that exist, and the page of explain is what it says."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEP = re.compile(r"^\d+\. `([\w/]+)\.py` `([\w.]+)`", re.MULTILINE)
PAGE = ROOT / "docs" / "internals" / "path-of-a-disruption.md"


def test_every_step_of_the_path_exists():
    """A newcomer follows the list instead of searching; it must not lead nowhere."""
    steps = STEP.findall(PAGE.read_text())
    assert len(steps) >= 5
    for module, name in steps:
        found = importlib.import_module("pykarpenter." + module.replace("/", "."))
        for part in name.split("."):
            found = getattr(found, part)


def test_explain_page_shows_what_the_program_says():
    """`python scripts/explain_page.py > docs/explain.md` after a change."""
    spec = importlib.util.spec_from_file_location("explain_page", ROOT / "scripts" / "explain_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "explain.md").read_text() == module.page()
