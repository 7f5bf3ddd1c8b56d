"""The part of Kubernetes' JSONPath that printer columns use: members, indexes, `[*]` and `[?(@.x=="y")]`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

_Step = Callable[[Iterable[Any]], Iterable[Any]]
_TOKEN = re.compile(
    r"""
      \.?\[\?\(\s*@(?P<filter>(?:\.[\w\-/]+|\\\.)+)\s*(?P<operator>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[\w.\-]+)\s*\)\]
    | \.?\[(?P<index>\*|-?\d+)\]
    | \.?\['(?P<quoted>[^']*)'\]
    | \.(?P<member>(?:\\.|[^.\[\]\\])+)
    """,
    re.VERBOSE,
)


def _member(name: str) -> _Step:
    return lambda values: [value[name] for value in values if isinstance(value, dict) and name in value]


def _index(text: str) -> _Step:
    if text == "*":
        return lambda values: [
            item
            for value in values
            for item in (value if isinstance(value, list) else value.values() if isinstance(value, dict) else ())
        ]
    position = int(text)
    return lambda values: [
        value[position] for value in values if isinstance(value, list) and -len(value) <= position < len(value)
    ]


def _filter(path: str, operator: str, literal: str) -> _Step:
    steps = _steps(path)
    wanted = literal[1:-1] if literal[0] in "\"'" else json.loads(literal)

    def keep(item: Any) -> bool:
        found = _walk(steps, item)
        return bool(found) and (found[0] == wanted) == (operator == "==")

    return lambda values: [item for value in values if isinstance(value, list) for item in value if keep(item)]


@lru_cache(maxsize=256)
def _steps(path: str) -> tuple[_Step, ...]:
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[_Step] = []
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(f"JSONPath {path!r}: cannot read {text[position:]!r}")
        if token["filter"]:
            steps.append(_filter(token["filter"], token["operator"], token["value"]))
        elif token["index"]:
            steps.append(_index(token["index"]))
        else:
            name = token["quoted"] if token["quoted"] is not None else re.sub(r"\\(.)", r"\1", token["member"])
            steps.append(_member(name))
        position = token.end()
    return tuple(steps)


def _walk(steps: tuple[_Step, ...], obj: Any) -> list[Any]:
    values: Iterable[Any] = [obj]
    for step in steps:
        values = step(values)
    return list(values)


def find(path: str, obj: Any) -> list[Any]:
    """Everything a path leads to; raises ValueError for a path that cannot be read."""
    return _walk(_steps(path), obj)
