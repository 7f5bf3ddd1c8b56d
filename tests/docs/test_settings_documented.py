"""docs/settings.md and the code name the same settings."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_settings_page_equals_the_settings_in_the_code() -> None:
    """A setting that is not documented does not exist for an operator."""
    spec = importlib.util.spec_from_file_location("settings_table", ROOT / "scripts" / "settings_table.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (ROOT / "docs" / "settings.md").read_text() == script.render(), "run scripts/settings_table.py"
