"""What the CRDs say about an object: unknown fields, patterns, enums, bounds and CEL rules, in words with a remedy.

The engine is the embedded cluster's, so that a manifest that passes here passes an API server. Other than there, one
wrong field does not keep the rules from being tried on the rest.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Iterator
from typing import Any

from pykarpenter.api import patterns
from pykarpenter.api.validation import Problem
from pykarpenter.cli.validation.fields import ABSENT, known_fields, value_at
from pykarpenter.sim.schema.custom import CustomSchema
from pykarpenter.sim.schema.facets import violations
from pykarpenter.sim.schema.field_errors import NO_PATH, FieldError, quoted

_REMEDIES = {
    patterns.QUALIFIED_NAME: "is not a valid name; use letters, digits, '-', '_' and '.', a DNS name before any '/'",
    patterns.LABEL_VALUE: "is not a valid label value; use letters, digits, '-', '_' and '.'",
    patterns.GROUP: "is not an API group; write it without '/' and version",
    patterns.DURATION: "is no duration; write 30s, 10m or 1h30m (there is no unit for days)",
    patterns.DURATION_OR_NEVER: "is no duration; write 30s, 10m, 720h or Never (there is no unit for days)",
    patterns.BUDGET_NODES: "is neither a number of nodes nor 0% to 100%; write 5 or 20%",
    patterns.BUDGET_SCHEDULE: "is no schedule; write five cron fields or a word such as @daily",
    patterns.BUDGET_DURATION: "is no duration of hours and minutes; write 8h, 30m or 1h30m",
    patterns.PRICE: "is no price; write a number such as 0.25",
    patterns.PRICE_ADJUSTMENT: "is no adjustment; write +0.05, -0.05, +10% or -10%",
    patterns.QUANTITY: "is no quantity; write 4, 500m, 16Gi or 1e3",
}

_WRONG_TYPE = re.compile(r'must be of type (\S+): "(\S+)"$')


def can_check_rules() -> bool:
    """Whether the CEL engine is installed; it comes with the extra `embedded`."""
    return importlib.util.find_spec("cel_expr_python") is not None


class ObjectSchema:
    """The schema of one kind."""

    def __init__(self, crd: dict[str, Any]) -> None:
        names = crd["spec"]["names"]
        self._schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        self._custom = CustomSchema(names["singular"], names["listKind"], self._schema)

    def check(self, body: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
        """The object with its defaults, and everything that an API server or kubectl would refuse."""
        shaped, unknown = self._custom.shape(body, None)
        problems = [self._unknown(path, body) for path in unknown]
        return shaped, [*problems, *self._refused(shaped)]

    def unknown(self, body: dict[str, Any]) -> list[Problem]:
        """The fields that an API server would drop."""
        return [self._unknown(path, body) for path in self._custom.shape(body, None)[1]]

    def refused(self, body: dict[str, Any]) -> list[Problem]:
        """What an API server would refuse, once unknown fields are dropped."""
        return self._refused(self._custom.shape(body, None)[0])

    def _refused(self, shaped: dict[str, Any]) -> list[Problem]:
        found = [*violations(self._schema, shaped, None), *self._rule_violations(shaped)]
        # What has no path repeats in other words an error that has one.
        placed = [error for error in found if error.path != NO_PATH]
        return [_problem(error, shaped) for error in placed or found]

    def _rule_violations(self, shaped: dict[str, Any]) -> Iterator[FieldError]:
        if not can_check_rules():
            return
        for error in self._custom.rules.violations(shaped, None, ""):
            # A rule that trips over a value of the wrong shape says nothing that the shape's error does not.
            if "evaluating rule" not in error.message:
                yield error

    def _unknown(self, path: str, body: dict[str, Any]) -> Problem:
        name = path.rpartition(".")[2]
        close = difflib.get_close_matches(name, known_fields(self._schema, path), n=1)
        hint = f"did you mean {close[0]}?" if close else "remove it"
        return Problem(path, value_at(body, path), f"is not a field of this kind; {hint}")


def _problem(error: FieldError, shaped: dict[str, Any]) -> Problem:
    value = value_at(shaped, error.path)
    return Problem(error.path, value, _remedy(error, value))


def _remedy(error: FieldError, value: Any) -> str:
    text = error.message
    if error.reason == "FieldValueRequired":
        return "is required; add it"
    if value is not ABSENT:
        text = text.replace(f"Invalid value: {quoted(value)}: ", "").replace(
            f"Unsupported value: {quoted(value)}: ", ""
        )
    text = text.removeprefix("Invalid value: ").removeprefix(f"{error.path} in body ")
    if wrong_type := _WRONG_TYPE.search(text):
        return f"must be of type {wrong_type.group(1)}, not {wrong_type.group(2)}"
    if text == "should be at least 1 chars long":
        return "may not be empty"
    if text.startswith("should match '"):
        pattern = text.removeprefix("should match '").removesuffix("'")
        return _REMEDIES.get(pattern, text)
    return text.replace("supported values: ", "is not supported; use one of ")
