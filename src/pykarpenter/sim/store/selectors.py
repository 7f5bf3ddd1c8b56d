"""Label and field selectors: parse their text once, then match raw objects."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from pykarpenter.kube.errors import ApiError
from pykarpenter.sim.store.entries import Json, lookup
from pykarpenter.sim.store.refusals import bad_request
from pykarpenter.sim.store.resources import BUILTIN

_NAME = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_./]*)?[A-Za-z0-9]")
_SET_BASED = re.compile(r"\s*(?P<key>[^\s!=,()]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)\s*")
_EQUALITY = re.compile(r"\s*(?P<key>[^\s!=,()<>]+)\s*(?P<op>==|=|!=|>|<)\s*(?P<value>[^\s,()=!<>]*)\s*")
_EXISTENCE = re.compile(r"\s*(?P<not>!?)\s*(?P<key>[^\s!=,()<>]+)\s*")


@dataclass(frozen=True, slots=True)
class Term:
    """One requirement on one key."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def allows(self, found: str | None) -> bool:
        match self.operator:
            case "in":
                return found is not None and found in self.values
            case "notin":
                return found is None or found not in self.values
            case "exists":
                return found is not None
            case "absent":
                return found is None
        try:
            number, bound = int(found or ""), int(self.values[0])
        except ValueError:
            return False
        return number > bound if self.operator == "gt" else number < bound


def _split_terms(text: str) -> list[str]:
    """Splits at commas outside parentheses."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _parse_term(text: str) -> Term:
    if found := _SET_BASED.fullmatch(text):
        values = tuple(value.strip() for value in found["values"].split(","))
        return Term(found["key"], found["op"], values)
    if found := _EQUALITY.fullmatch(text):
        operator = {"=": "in", "==": "in", "!=": "notin", ">": "gt", "<": "lt"}[found["op"]]
        return Term(found["key"], operator, (found["value"],))
    if found := _EXISTENCE.fullmatch(text):
        return Term(found["key"], "absent" if found["not"] else "exists")
    raise bad_request(f'unable to parse requirement: found "{text.strip()}", expected a label selector term')


@lru_cache(maxsize=1024)
def parse_label_selector(text: str) -> tuple[Term, ...]:
    """The terms of a label selector, all of which must hold; raises BadRequest."""
    if not text.strip():
        return ()
    terms = tuple(_parse_term(part) for part in _split_terms(text))
    for term in terms:
        if not _NAME.fullmatch(term.key):
            rule = "name part must consist of alphanumeric characters, '-', '_' or '.'"
            raise bad_request(f'unable to parse requirement: <nil>: Invalid value: "{term.key}": {rule}')
    return terms


def labels_match(terms: tuple[Term, ...], labels: dict[str, str]) -> bool:
    return all(term.allows(labels.get(term.key)) for term in terms)


# Fields that each kind can be selected by, beyond metadata.name and metadata.namespace.
_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "jobs": ("status.successful",),
    "replicasets": ("status.replicas",),
    "replicationcontrollers": ("status.replicas",),
    "services": ("spec.clusterIP", "spec.type"),
    "resourceslices": ("spec.nodeName", "spec.driver"),
}


_BUILTIN_PLURALS = frozenset(resource.plural for resource in BUILTIN)


@cache
def _field_reader(path: str) -> Callable[[Json], str]:
    parts = tuple(path.split("."))

    def read(obj: Json) -> str:
        value: Any = lookup(obj, parts)
        if value is None:
            # Booleans print as Go does; every other missing field selects as empty text.
            return "false" if parts[-1] in ("unschedulable", "hostNetwork") else ""
        return str(value).lower() if isinstance(value, bool) else str(value)

    if path == "source":
        return lambda obj: str(lookup(obj, ("source", "component")) or obj.get("reportingComponent") or "")
    return read


@dataclass(frozen=True, slots=True)
class FieldTerm:
    path: str
    negated: bool
    value: str
    read: Callable[[Json], str]


def parse_field_selector(plural: str, selectable: tuple[str, ...], text: str) -> tuple[FieldTerm, ...]:
    """The terms of a field selector; an unsupported field is a BadRequest as on an API server.

    Readers are kept by field. Whole selectors are not: they name nodes and pods, and those come and go.
    """
    if not text.strip():
        return ()
    allowed = ("metadata.name", "metadata.namespace", *_FIELDS.get(plural, ()), *selectable)
    terms = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*([A-Za-z0-9_.\-/]+)\s*(==|=|!=)\s*([^,=!]*)", part)
        if found is None:
            raise _bad_field(f"invalid selector: '{text}'; can't understand '{part}'")
        path, operator, value = found.groups()
        if path not in allowed:
            raise _bad_field(_unsupported(plural, path))
        terms.append(FieldTerm(path, operator == "!=", value.strip(), _field_reader(path)))
    return tuple(terms)


def _unsupported(plural: str, path: str) -> str:
    """Built-in kinds without fields of their own to select by answer in other words."""
    if plural in _FIELDS or plural not in _BUILTIN_PLURALS:
        return f"field label not supported: {path}"
    return f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _bad_field(message: str) -> ApiError:
    return bad_request(message)


def fields_match(terms: tuple[FieldTerm, ...], obj: Json) -> bool:
    return all((term.read(obj) == term.value) != term.negated for term in terms)


@dataclass(frozen=True, slots=True)
class Filter:
    """A namespace, a label selector and a field selector together."""

    namespace: str
    labels: tuple[Term, ...]
    fields: tuple[FieldTerm, ...]

    @property
    def takes_all(self) -> bool:
        return not (self.namespace or self.labels or self.fields)

    def matches(self, obj: Json) -> bool:
        meta = obj["metadata"]
        if self.namespace and meta.get("namespace") != self.namespace:
            return False
        if self.labels and not labels_match(self.labels, meta.get("labels") or {}):
            return False
        return not self.fields or fields_match(self.fields, obj)

    def required_field(self, path: str) -> str | None:
        """The value a field must have, when the selector pins it."""
        for term in self.fields:
            if term.path == path and not term.negated:
                return term.value
        return None


def selector_matches(selector: Json | None, labels: dict[str, str]) -> bool:
    """A LabelSelector object (matchLabels, matchExpressions); an empty one takes all, None takes nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
    return all(
        Term(term["key"], operators[term["operator"]], tuple(term.get("values") or ())).allows(labels.get(term["key"]))
        for term in selector.get("matchExpressions") or ()
    )
