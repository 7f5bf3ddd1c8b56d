"""The algebra of label requirements: value sets, complements, integer bounds and minimum values.

Plain and obvious on purpose: this is the meaning that the fast engine's bitsets are tested against.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pykarpenter.api import labels
from pykarpenter.api.pods import NodeSelectorRequirement

# Go's `int` on the platforms Karpenter runs on; `Gt` of it can match nothing.
MAX_INT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one key may be: a set of values or its complement, within optional inclusive integer bounds."""

    key: str
    values: frozenset[str] = frozenset()
    complement: bool = False
    gte: int | None = None
    lte: int | None = None
    min_values: int | None = None

    def allows(self, value: str) -> bool:
        if (value in self.values) == self.complement:
            return False
        return within(value, self.gte, self.lte)

    @property
    def operator(self) -> str:
        if self.complement:
            return "NotIn" if self.values else "Exists"
        return "In" if self.values else "DoesNotExist"

    @property
    def is_negative(self) -> bool:
        """NotIn and DoesNotExist: satisfied by a node that lacks the key."""
        return self.operator in ("NotIn", "DoesNotExist")

    def sorted_values(self) -> list[str]:
        return sorted(self.values)

    def intersection(self, other: Requirement) -> Requirement:
        gte = _tighter(self.gte, other.gte, max)
        lte = _tighter(self.lte, other.lte, min)
        min_values = _tighter(self.min_values, other.min_values, max)
        if gte is not None and lte is not None and gte > lte:
            return Requirement(self.key, min_values=min_values)
        if self.complement and other.complement:
            excluded = frozenset(v for v in self.values | other.values if within(v, gte, lte))
            return Requirement(self.key, excluded, True, gte, lte, min_values)
        if self.complement:
            values = other.values - self.values
        elif other.complement:
            values = self.values - other.values
        else:
            values = self.values & other.values
        return Requirement(self.key, frozenset(v for v in values if within(v, gte, lte)), min_values=min_values)

    def intersects(self, other: Requirement) -> bool:
        """Whether the intersection is non-empty; two complements meet unless their bounds cross."""
        result = self.intersection(other)
        return result.complement or bool(result.values)


def within(value: str, gte: int | None, lte: int | None) -> bool:
    """Whether a value lies in the bounds; with bounds, text that is no integer never does."""
    if gte is None and lte is None:
        return True
    number = _integer(value)
    if number is None:
        return False
    return (gte is None or number >= gte) and (lte is None or number <= lte)


def _integer(value: str) -> int | None:
    body = value[1:] if value[:1] in ("-", "+") else value
    if not (body.isascii() and body.isdigit()):
        return None
    return int(value)


def _tighter(left: int | None, right: int | None, choose: object) -> int | None:
    if left is None:
        return right
    if right is None:
        return left
    return max(left, right) if choose is max else min(left, right)


def requirement(
    key: str,
    operator: str,
    values: Iterable[str] = (),
    min_values: int | None = None,
    rules: labels.LabelRules = labels.DEFAULT_RULES,
) -> Requirement:
    """Build a requirement from an operator; raises ValueError for an operator or bound that has no meaning."""
    key = rules.normalise(key)
    listed = list(values)
    if operator == "In":
        return Requirement(key, frozenset(listed), min_values=min_values)
    if operator == "NotIn":
        return Requirement(key, frozenset(listed), True, min_values=min_values)
    if operator == "Exists":
        return Requirement(key, complement=True, min_values=min_values)
    if operator == "DoesNotExist":
        return Requirement(key, min_values=min_values)
    if operator not in ("Gt", "Lt", "Gte", "Lte"):
        raise ValueError(f"unknown operator {operator!r} for key {key!r}")
    bound = _integer(listed[0]) if len(listed) == 1 else None
    if bound is None:
        raise ValueError(f"operator {operator} for key {key!r} needs exactly one integer, got {listed!r}")
    if operator == "Gt" and bound >= MAX_INT:
        return Requirement(key, min_values=min_values)
    gte = {"Gt": bound + 1, "Gte": bound}.get(operator)
    lte = {"Lt": bound - 1, "Lte": bound}.get(operator)
    return Requirement(key, complement=True, gte=gte, lte=lte, min_values=min_values)


class Requirements(Mapping[str, Requirement]):
    """An immutable set of requirements, one for each key; reading an absent key through `get_or_exists` is Exists."""

    __slots__ = ("_by_key",)

    def __init__(self, items: Iterable[Requirement] = ()) -> None:
        by_key: dict[str, Requirement] = {}
        for item in items:
            present = by_key.get(item.key)
            by_key[item.key] = item if present is None else present.intersection(item)
        self._by_key = by_key

    def __getitem__(self, key: str) -> Requirement:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def get_or_exists(self, key: str) -> Requirement:
        found = self._by_key.get(key)
        return found if found is not None else Requirement(key, complement=True)

    def merged(self, other: Iterable[Requirement]) -> Requirements:
        return Requirements([*self._by_key.values(), *other])

    def without(self, *keys: str) -> Requirements:
        return Requirements(item for key, item in self._by_key.items() if key not in keys)

    def items_sorted(self) -> list[Requirement]:
        return [self._by_key[key] for key in sorted(self._by_key)]

    def conflict(self, other: Requirements) -> str | None:
        """The first key on which the two cannot meet; two negatives are accepted even when empty."""
        small, large = (self, other) if len(self) <= len(other) else (other, self)
        for key in small:
            if key not in large._by_key:
                continue
            mine, theirs = self._by_key[key], other._by_key[key]
            if mine.intersects(theirs):
                continue
            if mine.is_negative and theirs.is_negative:
                continue
            return key
        return None

    def intersects(self, other: Requirements) -> bool:
        return self.conflict(other) is None

    def incompatibility(self, other: Requirements, allowed_undefined: frozenset[str] = frozenset()) -> str | None:
        """Why a host with these requirements cannot take `other`: the first offending key, or None."""
        for key, wanted in other._by_key.items():
            if key in self._by_key or key in allowed_undefined or wanted.is_negative:
                continue
            return key
        return self.conflict(other)

    def compatible(self, other: Requirements, allowed_undefined: frozenset[str] = frozenset()) -> bool:
        return self.incompatibility(other, allowed_undefined) is None


def from_labels(values: Mapping[str, str], rules: labels.LabelRules = labels.DEFAULT_RULES) -> Requirements:
    return Requirements(requirement(key, "In", [value], rules=rules) for key, value in values.items())


def from_expressions(
    expressions: Iterable[NodeSelectorRequirement], rules: labels.LabelRules = labels.DEFAULT_RULES
) -> Requirements:
    return Requirements(requirement(e.key, e.operator, e.values, e.min_values, rules) for e in expressions)


def to_expressions(items: Requirements) -> list[NodeSelectorRequirement]:
    """The wire form: bounds as Gte/Lte entries, values sorted, keys sorted, minValues kept."""
    result: list[NodeSelectorRequirement] = []
    for item in items.items_sorted():
        bounds = [("Gte", item.gte), ("Lte", item.lte)]
        bounded = [
            NodeSelectorRequirement(key=item.key, operator=op, values=[str(bound)], min_values=item.min_values)
            for op, bound in bounds
            if bound is not None
        ]
        result.extend(
            bounded
            or [
                NodeSelectorRequirement(
                    key=item.key,
                    operator=item.operator,
                    values=item.sorted_values(),
                    min_values=item.min_values,
                )
            ]
        )
    return result
