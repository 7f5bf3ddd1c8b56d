"""Print docs/explain.md: what `pykarpenter explain` says in ten situations, from the transcript that tests hold."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STORY = ROOT / "tests" / "transcripts" / "explain-ten-situations.txt"
TITLES = (
    "A pod is protected",
    "A PodDisruptionBudget allows nothing",
    "The node is protected",
    "Pods are on their way to the node",
    "The node is still starting",
    "The pool's budget is zero",
    "The node is settling",
    "Consolidation is turned off",
    "Only empty nodes may go",
    "The node has the right size",
)
HEAD = """# Why does this node stay?

`pykarpenter explain node NAME`, `explain pod NAMESPACE/NAME` and `explain nodepool NAME` decide anew and print why,
from the live cluster or a file (`-f`) that `pykarpenter snapshot` wrote. Nothing is changed. `-o json` gives the same
as values. The words in brackets are the reasons that events, log lines and metrics share.

An answer exits 0. What is not there, a cluster that does not answer and a file that cannot be read exit 1 with the
name and the remedy. Nodes of others, claims without a node, nodes that are going and nodes that do not say yet what
they are get an answer too.

A snapshot holds no environment values, arguments, commands or probes, and of annotations, also in templates, only
those that a decision reads. Secrets and ConfigMaps are never asked for.

The line after `stays:` is the reason to act on; below it each method says what it found. A node that could go while
another is taken first says `waits its turn`, one that goes next `next pass`. A pool that is not Ready, and so launches
no replacements, says why. Ten situations:
"""


def page() -> str:
    blocks = [block.split("----\n", 1)[1] for block in STORY.read_text().split("\n\n") if "----\n" in block]
    parts = [f"## {title}\n\n```\n{answer.rstrip()}\n```\n" for title, answer in zip(TITLES, blocks, strict=True)]
    return "\n".join([HEAD, *parts])


if __name__ == "__main__":
    sys.stdout.write(page())
