"""Label selectors in a canonical form, so that equal selectors share one topology group.

A selector that Kubernetes would not accept selects nothing; it never raises, so one odd pod cannot hold up a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pykarpenter.api.meta import LabelSelector

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


@dataclass(frozen=True, slots=True)
class Expression:
    """One condition on one label."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator == "In":
            return value is not None and value in self.values
        if self.operator == "NotIn":
            return value is None or value not in self.values
        return (value is not None) == (self.operator == "Exists")


@dataclass(frozen=True, slots=True)
class Selector:
    """A conjunction of expressions, sorted; `nothing` matches no labels at all."""

    expressions: tuple[Expression, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.nothing:
            return False
        return all(expression.matches(labels) for expression in self.expressions)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(expression.key for expression in self.expressions)

    def narrowed(self, more: Iterable[Expression]) -> Selector:
        extra = tuple(more)
        if not extra or self.nothing:
            return self
        return Selector(_sorted({*self.expressions, *extra}))


NOTHING = Selector(nothing=True)


def compile_selector(selector: LabelSelector | None) -> Selector:
    """The canonical form; None and malformed selectors match nothing, an empty one matches everything."""
    if selector is None:
        return NOTHING
    items = {Expression(key, "In", frozenset({value})) for key, value in selector.match_labels.items()}
    for wanted in selector.match_expressions:
        takes_values = wanted.operator in ("In", "NotIn")
        if wanted.operator not in _OPERATORS or takes_values != bool(wanted.values):
            return NOTHING
        items.add(Expression(wanted.key, wanted.operator, frozenset(wanted.values)))
    return Selector(_sorted(items))


def match_label_keys(labels: Mapping[str, str], keys: Iterable[str], mismatch: Iterable[str] = ()) -> list[Expression]:
    """What `matchLabelKeys` and `mismatchLabelKeys` add: the pod's own value of each key it has."""
    found = [Expression(key, "In", frozenset({labels[key]})) for key in keys if key in labels]
    return found + [Expression(key, "NotIn", frozenset({labels[key]})) for key in mismatch if key in labels]


def _sorted(items: Iterable[Expression]) -> tuple[Expression, ...]:
    return tuple(sorted(items, key=lambda item: (item.key, item.operator, sorted(item.values))))
