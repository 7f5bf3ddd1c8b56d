"""Reading manifests: files, folders or standard input, YAML or JSON, many documents, `kind: List` taken apart.

Scalars are read as kubectl reads them (timestamps stay text), and a key that is written twice is an error instead of
a silent choice. What cannot be read is reported with its place; the other files are read on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from pykarpenter.cli.inputs import is_blank

STDIN = "-"
_SUFFIXES = (".yaml", ".yml", ".json")
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Document:
    """One object, and where it was written: file, document (from 1) and, in a List, item (from 0)."""

    source: str
    index: int
    body: Any
    item: int | None = None

    @property
    def where(self) -> str:
        place = f"{self.source}[{self.index}]"
        return place if self.item is None else f"{place}.items[{self.item}]"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file, or a document of one, that is no YAML or JSON."""

    source: str
    index: int
    problem: str


class _Loader(_Base):  # type: ignore[misc]
    """YAML as Kubernetes reads it."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in _Base.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {name!r} is written twice", key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep)


def read_manifests(paths: Iterable[str]) -> tuple[list[Document], list[Unreadable]]:
    """Every object of the files, in their order, and everything that could not be read."""
    documents: list[Document] = []
    unreadable: list[Unreadable] = []
    for path in paths:
        blank, told = True, len(unreadable)
        for source, text in _texts(path, unreadable):
            blank = blank and is_blank(text)
            documents.extend(_objects(source, text, unreadable))
        if blank and len(unreadable) == told:
            name = "<stdin>" if path == STDIN else path
            unreadable.append(Unreadable(name, 1, "is empty; give at least one object with apiVersion and kind"))
    return documents, unreadable


def _texts(path: str, unreadable: list[Unreadable]) -> Iterator[tuple[str, str]]:
    if path == STDIN:
        yield "<stdin>", sys.stdin.read()
        return
    folder = Path(path)
    files = sorted(found for found in folder.rglob("*") if found.suffix in _SUFFIXES) if folder.is_dir() else [folder]
    for file in files:
        try:
            yield str(file), file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            unreadable.append(Unreadable(str(file), 1, f"cannot be read: {error}"))


def _objects(source: str, text: str, unreadable: list[Unreadable]) -> Iterator[Document]:
    index = 0
    try:
        for index, body in enumerate(yaml.load_all(text, Loader=_Loader), start=1):
            if body is None:
                continue
            if isinstance(body, dict) and body.get("kind") == "List" and isinstance(body.get("items"), list):
                for item, part in enumerate(body["items"]):
                    yield Document(source, index, part, item)
            else:
                yield Document(source, index, body)
    except yaml.YAMLError as error:
        unreadable.append(Unreadable(source, index + 1, _described(error)))


def _described(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark is not None else str(problem)
