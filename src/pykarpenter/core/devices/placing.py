"""Node selectors of devices and allocations: which machines they admit, and how they narrow one being planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pykarpenter.api.labels import LabelRules
from pykarpenter.api.pods import NodeSelector
from pykarpenter.core.requirements import Requirements, from_expressions, from_labels

_NAME_FIELD = "metadata.name"


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One alternative: names of nodes, when it lists them, and requirements on labels."""

    names: frozenset[str] | None
    requirements: Requirements

    def admits(self, name: str, labels: Requirements) -> bool:
        """Whether a node of that name and with these labels is one of them."""
        if self.names is not None and name not in self.names:
            return False
        return labels.compatible(self.requirements)


ANYWHERE: tuple[Term, ...] = (Term(None, Requirements()),)


def terms_of(selector: NodeSelector, rules: LabelRules) -> tuple[Term, ...]:
    """The alternatives of a node selector; raises ValueError for what cannot be read."""
    found = []
    for term in selector.node_selector_terms:
        names: frozenset[str] | None = None
        for item in term.match_fields:
            if item.key != _NAME_FIELD or item.operator != "In":
                raise ValueError(f"node selector field {item.key!r} {item.operator}: only {_NAME_FIELD} In is known")
            names = frozenset(item.values) if names is None else names & frozenset(item.values)
        found.append(Term(names, from_expressions(term.match_expressions, rules)))
    return tuple(found)


def labels_of(labels: Mapping[str, str], rules: LabelRules) -> Requirements:
    return from_labels(labels, rules)
