"""One version of a custom kind: what a CustomResourceDefinition says about it, and how its objects are checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pykarpenter.sim.schema.facets import violations
from pykarpenter.sim.schema.field_errors import BLOCKING, NO_PATH, FieldError, invalid_value
from pykarpenter.sim.schema.rules import RuleTree
from pykarpenter.sim.schema.structural import Schema, shaped

_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)


@dataclass(slots=True, eq=False)
class CustomSchema:
    """Names and schema of a custom kind."""

    singular: str
    list_kind: str
    schema: Schema = field(default_factory=dict)
    selectable_fields: tuple[str, ...] = ()
    _rules: RuleTree | None = None

    @property
    def rules(self) -> RuleTree:
        if self._rules is None:
            self._rules = RuleTree(self.schema)
        return self._rules

    def shape(self, obj: Schema, old: Schema | None) -> tuple[Schema, list[str]]:
        """The object with defaults and without unknown fields, and the paths of those."""
        unknown: list[str] = []
        result: Any = shaped(self.schema, obj, old, "", unknown)
        return result, unknown

    def errors(self, obj: Schema, old: Schema | None) -> list[FieldError]:
        """Everything the schema and its rules refuse, as an API server lists it."""
        errors = list(violations(self.schema, obj, old))
        if self.rules.is_empty:
            return errors
        if any(error.reason in BLOCKING for error in errors):
            return [*errors, invalid_value(NO_PATH, None, _UNCHECKED)]
        return [*errors, *self.rules.violations(obj, old, "")]
