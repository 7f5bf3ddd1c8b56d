"""docs/internals/path-of-a-pending-pod.md names functions that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "internals" / "path-of-a-pending-pod.md"


def test_every_stop_of_the_path_exists() -> None:
    """A newcomer follows the page with an editor; a renamed function would lose them."""
    stops = re.findall(r"`(pykarpenter\.[\w.]+):([\w.]+)`", PAGE.read_text())
    assert len(stops) >= 12
    for module, path in stops:
        found = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        assert callable(found), f"{module}:{path}"
