"""Two clusters' answers as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .sides import Finding

HEAD = """# One API, two clusters

Controllers are tested on the embedded cluster and run on real ones. These are the answers of both to the same
questions (`tests/conformance`), as the last `make e2e` found them with Kubernetes 1.36; that run writes this file.

| Behaviour | Embedded and real agree |
|---|---|
"""


@dataclass(frozen=True)
class Row:
    """The answers of both clusters to one question."""

    embedded: Finding
    real: Finding

    @property
    def same(self) -> bool:
        return self.embedded == self.real

    @property
    def as_expected(self) -> bool:
        return self.real.answer == self.real.expected


def table(rows: Mapping[str, Sequence[Row]], head: str = HEAD) -> str:
    """The whole document: a summary, then a table for each behaviour or scenario."""
    text = [head]
    for name, found in rows.items():
        text.append(f"| {name} | {sum(row.same for row in found)} of {len(found)} answers |\n")
    for name, found in rows.items():
        text.append(f"\n## {name}\n\n| Question | Embedded | Real | Same |\n|---|---|---|---|\n")
        for row in found:
            cells = (row.embedded.question, row.embedded.answer, row.real.answer, "yes" if row.same else "**no**")
            text.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n")
    return "".join(text)
