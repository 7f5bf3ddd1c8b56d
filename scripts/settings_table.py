"""Write the tables of docs/settings.md from the settings in the code; `--check` only compares."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from pykarpenter.cloud.plugin import Setting
from pykarpenter.runtime.feature_gates import GATES
from pykarpenter.runtime.plugins import load_plugin, provider_names
from pykarpenter.runtime.settings import KARPENTER_SETTINGS, OWN_SETTINGS

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
HEAD = """# Settings

Every setting is a flag of `pykarpenter run` and an environment variable; the flag wins. The names and defaults of the
first table are Karpenter's, so the environment block of a Karpenter Deployment works unchanged.

- A value that cannot be read refuses the start, exit code 1, with all problems at once. (Karpenter falls back to the
  default in silence.)
- An empty variable counts as unset. Unknown feature gates, variables that look like a misspelt setting, and those that
  only Karpenter's AWS provider knows (`CLUSTER_NAME`, `INTERRUPTION_QUEUE`, …) give one warning each kind.
- `pykarpenter run` needs to know the provider: `--provider`, or the variable `PYKARPENTER_PROVIDER`.
- Booleans are `true` or `false` (also `1`, `0`, `t`, `f`); durations are Go's (`10s`, `1m30s`).

This file is written by `scripts/settings_table.py` from the code; a test keeps them equal.
"""


def table(settings: Iterable[Setting]) -> str:
    rows = ["| Flag | Variable | Default | What it does |", "|---|---|---|---|"]
    for item in settings:
        default = f"`{item.default}`" if item.default and item.flag != "feature-gates" else "empty"
        if item.flag == "feature-gates":
            default = "see below"
        rows.append(f"| `--{item.flag}` | `{item.env}` | {default} | {item.help} |")
    return "\n".join(rows)


def render() -> str:
    parts = [HEAD, "## Karpenter's settings\n", table(KARPENTER_SETTINGS), "\n## Our own settings\n"]
    parts.append(table(OWN_SETTINGS))
    for name in provider_names():
        own = load_plugin(name).settings
        if own:
            parts.extend([f"\n## Settings of provider `{name}`\n", table(own)])
    parts.append("\n## Feature gates\n")
    parts.append("| Gate | Default | Stage |\n|---|---|---|")
    parts.extend(f"| `{gate.name}` | {str(gate.default).lower()} | {gate.stage} |" for gate in GATES)
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    text = render()
    if "--check" in sys.argv:
        sys.exit(0 if DOCUMENT.read_text() == text else f"{DOCUMENT.name} is out of date: run {Path(__file__).name}")
    DOCUMENT.write_text(text)
