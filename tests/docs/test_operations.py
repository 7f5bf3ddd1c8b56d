"""The dashboard and the guide for the night ask for metrics, events and commands that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pykarpenter.cli.main import COMMANDS
from pykarpenter.runtime.metric_catalog import CATALOG, HISTOGRAM

ROOT = Path(__file__).parents[2]
METRIC = re.compile(
    r"\b((?:karpenter|pykarpenter|operator|controller_runtime|workqueue|client_go|leader_election)_[a-z_]+)"
)


def named_metrics(text: str) -> set[str]:
    found = set()
    for name in METRIC.findall(text):
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        is_part = name not in CATALOG and base in CATALOG and CATALOG[base].kind == HISTOGRAM
        found.add(base if is_part else name)
    return found


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    """An empty graph at night is worse than none."""
    text = (ROOT / "dashboards" / "pykarpenter.json").read_text()
    asked = " ".join(target["expr"] for panel in json.loads(text)["panels"] for target in panel.get("targets", []))
    assert named_metrics(asked) - set(CATALOG) == set()
    assert len(named_metrics(asked)) > 25


def test_the_guide_answers_ten_questions_with_things_that_exist() -> None:
    """Commands, metrics and events are checked against the code."""
    text = (ROOT / "docs" / "operations.md").read_text()
    assert re.findall(r"^## (\d+)\. ", text, re.MULTILINE) == [str(number) for number in range(1, 11)]
    assert named_metrics(text) - set(CATALOG) == set()
    commands = set(re.findall(r"`pykarpenter ([a-z]+)", text))
    assert commands and commands <= set(COMMANDS)
    events = set(re.findall(r"reason=(\w+)|[Ee]vents? `(\w+)`", text))
    known = (ROOT / "docs" / "compatibility.md").read_text()
    assert [name for pair in events for name in pair if name and f"| `{name}` |" not in known] == []
