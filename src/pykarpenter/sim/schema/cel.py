"""CEL rules on one value: compiled once, evaluated with `self` and, on updates, `oldSelf`.

The engine comes with the `embedded` extra and is loaded with the first rule.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

# Kubernetes serves these CEL libraries by default; the rest of its own functions are added below.
_LIBRARIES = ("strings", "optional", "sets", "math", "lists", "encoders", "bindings", "two-var-comprehensions")


class RuleError(Exception):
    """A rule that cannot be compiled or evaluated."""


def _find(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    return found.group(0) if found else ""


def _find_all(text: str, pattern: str) -> list[str]:
    return [found.group(0) for found in re.finditer(pattern, text)]


@cache
def _environment() -> Any:
    from cel_expr_python import cel

    kinds = cel.Type
    functions = [
        cel.FunctionDecl(
            "find", [cel.Overload("string_find_string", kinds.STRING, [kinds.STRING, kinds.STRING], True, _find)]
        ),
        cel.FunctionDecl(
            "findAll",
            [
                cel.Overload(
                    "string_find_all_string",
                    kinds.List(kinds.STRING),
                    [kinds.STRING, kinds.STRING],
                    True,
                    _find_all,
                )
            ],
        ),
    ]
    listed = "\n".join(f"- name: {name}" for name in _LIBRARIES)
    config = cel.NewEnvConfigFromYaml(f"name: kubernetes\nextensions:\n{listed}\n")
    variables = {"self": kinds.DYN, "oldSelf": kinds.DYN, "previous": kinds.DYN}
    return cel.NewEnv(config=config, variables=variables, functions=functions)


class Program:
    """One compiled expression."""

    def __init__(self, expression: str) -> None:
        try:
            self._compiled = _environment().compile(expression)
        except RuntimeError as error:
            raise RuleError(str(error)) from error

    def value(self, data: dict[str, Any]) -> Any:
        """The expression's value; raises RuleError when it has none."""
        from cel_expr_python import cel

        try:
            result = self._compiled.eval(data=data)
        except RuntimeError as error:
            raise RuleError(str(error)) from error
        if result.type() == cel.Type.ERROR:
            raise RuleError(_reason(str(result.plain_value())))
        return result.plain_value()


def _reason(text: str) -> str:
    """The engine's words as cel-go says them, where the two differ often."""
    if found := re.search(r'Key not found in map : "?([^"]*)"?', text):
        return f"no such key: {found[1]}"
    return text


class Rule:
    """One `x-kubernetes-validations` entry."""

    def __init__(self, entry: dict[str, Any]) -> None:
        text = entry["rule"].strip()
        self.is_transition = re.search(r"\boldSelf\b", text) is not None
        self.optional_old_self = bool(entry.get("optionalOldSelf"))
        self.reason = entry.get("reason") or "FieldValueInvalid"
        self.field_path = str(entry.get("fieldPath") or "").lstrip(".")
        self.message = str(entry.get("message") or "").strip() or f"failed rule: {text}"
        self.error_label = str(entry.get("message") or "").strip() or text
        if self.optional_old_self:
            # `previous` is a list of at most one old value, because oldSelf is an optional here.
            text = f"[size(previous) > 0 ? optional.of(previous[0]) : optional.none()].all(oldSelf, {text})"
        self._program = Program(text)
        expression = entry.get("messageExpression")
        self._message_program = Program(expression) if expression else None

    def holds(self, value: Any, old: Any) -> bool:
        """Whether the rule holds; a transition rule holds as long as there is nothing to compare with."""
        if self.is_transition and old is None and not self.optional_old_self:
            return True
        return bool(self._program.value(_data(value, old)))

    def message_for(self, value: Any, old: Any) -> str:
        if self._message_program is None:
            return self.message
        try:
            return str(self._message_program.value(_data(value, old)))
        except RuleError:
            return self.message


def _data(value: Any, old: Any) -> dict[str, Any]:
    return {"self": value, "oldSelf": old, "previous": [] if old is None else [old]}
