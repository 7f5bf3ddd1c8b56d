"""Write docs/metrics.md from the catalogue in the code; `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from pykarpenter.runtime import metric_catalog as catalog
from pykarpenter.runtime.metric_catalog import Metric

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
HEAD = """# Metrics

Served in the Prometheus text format at `/metrics` of the metrics port. Names, labels and units are Karpenter's, so its
dashboards and alerts work unchanged; what starts with `pykarpenter_` is our own. A label that does not apply is empty.
Families marked "and more" also carry the labels of nodes (node name, phase, managed, one per well-known label in snake
case), or of the object's class and pool.

This file is written by `scripts/metrics_table.py` from the code; a test keeps them equal.
"""
GROUPS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    ("NodeClaims", catalog.NODECLAIMS),
    ("Nodes", catalog.NODES),
    ("NodePools", catalog.NODEPOOLS),
    ("Pods", catalog.PODS),
    ("Scheduler", catalog.SCHEDULER),
    ("Voluntary disruption", catalog.DISRUPTION),
    ("Cluster state and cloud provider", catalog.STATE_AND_CLOUD),
    ("Conditions, per kind (nodeclaim, nodepool, node, capacitybuffer)", catalog.status_metrics("<kind>")),
    ("Conditions of nodeclaims, nodepools and capacitybuffers, old names", catalog.deprecated_status_metrics()),
    ("Controllers, queues, client, leadership", catalog.FRAMEWORK),
    ("Our own", catalog.OWN),
)


def row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    if metric.open_labels:
        labels = f"{labels}, and more" if labels else "those of nodes"
    return f"| `{metric.name}` | {metric.kind} | {labels or '-'} | {metric.help} |"


def render() -> str:
    parts = [HEAD]
    for title, metrics in GROUPS:
        rows = "\n".join(row(metric) for metric in metrics)
        parts.append(f"\n## {title}\n\n| Name | Kind | Labels | Meaning |\n|---|---|---|---|\n{rows}\n")
    return "".join(parts)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(
            0 if DOCUMENT.read_text() == render() else "docs/metrics.md is out of date: run scripts/metrics_table.py"
        )
    DOCUMENT.write_text(render())
