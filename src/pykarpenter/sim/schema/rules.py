"""Where a schema's CEL rules apply: walks a value along its schema and tries each rule at its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykarpenter.sim.schema.cel import Rule, RuleError
from pykarpenter.sim.schema.field_errors import (
    NO_PATH,
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    invalid_whole,
    required,
)
from pykarpenter.sim.schema.structural import Schema


class RuleTree:
    """The rules of a schema and of what lies below it."""

    def __init__(self, schema: Schema) -> None:
        self._type = schema.get("type", "")
        self._rules: list[Rule] = []
        self._broken: list[str] = []
        for entry in schema.get("x-kubernetes-validations") or ():
            try:
                self._rules.append(Rule(entry))
            except RuleError as error:
                self._broken.append(f"rule compile error: {error}")
        properties = {key: RuleTree(below) for key, below in (schema.get("properties") or {}).items()}
        self._properties = {key: tree for key, tree in properties.items() if not tree.is_empty}
        extra, items = schema.get("additionalProperties"), schema.get("items")
        self._extra = _unless_empty(RuleTree(extra)) if isinstance(extra, dict) else None
        self._items = _unless_empty(RuleTree(items)) if isinstance(items, dict) else None
        self._map_keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        self._atomic = schema.get("x-kubernetes-map-type") == "atomic"
        self._parts = [tree for part in schema.get("allOf") or () if not (tree := RuleTree(part)).is_empty]

        self.has_transitions: bool = any(rule.is_transition for rule in self._rules) or any(
            tree.has_transitions for tree in self._below()
        )

    def _below(self) -> list[RuleTree]:
        open_ended = [tree for tree in (self._extra, self._items) if tree is not None]
        return [*self._properties.values(), *self._parts, *open_ended]

    @property
    def is_empty(self) -> bool:
        return not (self._rules or self._broken or self._properties or self._extra or self._items or self._parts)

    @property
    def rule_count(self) -> int:
        return len(self._rules) + sum(tree.rule_count for tree in self._below())

    def violations(self, value: Any, old: Any, path: str) -> Iterator[FieldError]:
        """Every rule that does not hold. An unchanged value is asked only about transitions (ratcheting)."""
        if value is None:
            return
        unchanged = value is old or (old is not None and value == old)
        for message in self._broken:
            yield invalid_whole(path or NO_PATH, message)
        for rule in self._rules:
            if rule.is_transition or not unchanged:
                error = self._try(rule, value, old, path)
                if error is not None:
                    yield error
        for part in self._parts:
            yield from part.violations(value, old, path)
        if isinstance(value, dict):
            yield from self._below_object(value, old if isinstance(old, dict) and not self._atomic else {}, path)
        elif isinstance(value, list) and self._items is not None:
            yield from self._below_list(self._items, value, old if isinstance(old, list) else [], path)

    def _try(self, rule: Rule, value: Any, old: Any, path: str) -> FieldError | None:
        where = ".".join(part for part in (path, rule.field_path) if part) or NO_PATH
        try:
            if rule.holds(value, old):
                return None
        except RuleError as error:
            return invalid_value(where, self._type, f"{error} evaluating rule: {rule.error_label}")
        message = rule.message_for(value, old)
        if rule.reason == "FieldValueForbidden":
            return forbidden_field(where, message)
        if rule.reason == "FieldValueRequired":
            return required(where, message)
        if rule.reason == "FieldValueDuplicate":
            return duplicate(where, value)
        if self._type in ("object", "array"):
            return invalid_whole(where, message)
        return invalid_value(where, value, message)

    def _below_object(self, value: Schema, old: Schema, path: str) -> Iterator[FieldError]:
        for key, item in value.items():
            if (tree := self._properties.get(key)) is not None:
                yield from tree.violations(item, old.get(key), f"{path}.{key}" if path else key)
            elif self._extra is not None:
                yield from self._extra.violations(item, old.get(key), f"{path}[{key}]")

    def _below_list(self, items: RuleTree, value: list[Any], old: list[Any], path: str) -> Iterator[FieldError]:
        # Only items with keys can be told apart; others have no old self.
        by_key = {self._key(item): item for item in old} if self._map_keys else {}
        for index, item in enumerate(value):
            was = by_key.get(self._key(item)) if self._map_keys else None
            if was is None and index < len(old) and item == old[index] and not items.has_transitions:
                continue
            yield from items.violations(item, was, f"{path}[{index}]")

    def _key(self, item: Any) -> tuple[Any, ...]:
        return tuple(repr(item.get(key)) for key in self._map_keys) if isinstance(item, dict) else (repr(item),)


def _unless_empty(tree: RuleTree) -> RuleTree | None:
    return None if tree.is_empty else tree
