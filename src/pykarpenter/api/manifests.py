"""Manifests as people write them: YAML or JSON text to documents, and documents to wire types.

Every problem is one line that names the source, the document, the field, the value and the remedy. Nothing here reads
files or knows what the objects are for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import yaml

from pykarpenter.api.kinds import Kind

T = TypeVar("T")


class ManifestError(ValueError):
    """A document that cannot be used; the text is the whole line for the user."""


@dataclass(frozen=True, slots=True)
class Document:
    """One object of an input, nulls dropped; `within` leads to it inside its document, such as `items[3].`."""

    source: str
    index: int
    data: Mapping[str, Any]
    within: str = ""

    @property
    def kind(self) -> str:
        return str(self.data.get("kind", ""))

    @property
    def group(self) -> str:
        version = str(self.data.get("apiVersion", ""))
        return version.rpartition("/")[0]

    @property
    def name(self) -> str:
        meta = self.data.get("metadata")
        return str(meta.get("name", "")) if isinstance(meta, dict) else ""

    def error(self, field: str, value: object, remedy: str) -> ManifestError:
        place = f"{self.source}: document {self.index}"
        return ManifestError(f"{place}: {self.within}{field}: {_shown(value)}: {remedy}")


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


class _Loader(yaml.CSafeLoader):
    """Kubernetes' reading of YAML: dates stay text, 12:30 is no number, and a key is written once."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen and key.value != "<<":
                problem = f"the key {key.value!r} is written twice; remove one"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            if isinstance(key.value, str):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


# Plain scalars as Kubernetes reads them: no dates, no sexagesimal numbers.
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*|0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+)")
_FLOAT = re.compile(
    r"[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|\.[0-9][0-9_]*([eE][-+]?[0-9]+)?)|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
    ]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(f"^(?:{_INTEGER.pattern})$"), list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(f"^(?:{_FLOAT.pattern})$"), list("-+.0123456789"))


def read_documents(text: str, source: str) -> Iterator[Document]:
    """The objects of a text, Lists taken apart; raises ManifestError."""
    index = 0
    for raw in _parsed(text, source):
        if raw is None:
            continue
        index += 1
        if not isinstance(raw, dict):
            place = f"{source}: document {index}"
            raise ManifestError(f"{place}: {_shown(raw)}: expected an object with apiVersion and kind")
        try:
            data = _plain(raw)
        except _TooLarge as error:
            raise ManifestError(f"{source}: document {index}: {error}") from error
        yield from _unlisted(Document(source, index, data))


def _parsed(text: str, source: str) -> Iterator[Any]:
    if text.lstrip()[:1] in ("{", "["):
        try:
            decoded = json.loads(text)
        except (json.JSONDecodeError, RecursionError):
            # Flow-style YAML starts with a brace too.
            decoded = None
        if decoded is not None:
            yield from decoded if isinstance(decoded, list) else [decoded]
            return
    count = 0
    documents = yaml.load_all(text, Loader=_Loader)
    while True:
        try:
            raw = next(documents)
        except StopIteration:
            return
        except RecursionError as error:
            raise ManifestError(f"{source}: document {count + 1}: is nested too deeply; no object is") from error
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f" line {mark.line + 1}" if mark is not None else ""
            problem = getattr(error, "problem", None) or str(error).splitlines()[0]
            raise ManifestError(f"{source}: document {count + 1}:{line}: not YAML: {problem}") from error
        count += raw is not None
        yield raw


def _unlisted(document: Document) -> Iterator[Document]:
    if document.kind.endswith("List") and isinstance(document.data.get("items"), list):
        for number, item in enumerate(document.data["items"]):
            if not isinstance(item, dict):
                raise document.error(f"items[{number}]", item, "expected objects with apiVersion and kind")
            kind = item.get("kind") or document.kind.removesuffix("List")
            version = item.get("apiVersion") or document.data.get("apiVersion", "")
            data = {**item, "kind": kind, "apiVersion": version}
            within = f"{document.within}items[{number}]."
            yield from _unlisted(Document(document.source, document.index, data, within))
        return
    if not document.kind:
        raise document.error("kind", None, "every object needs apiVersion and kind")
    yield document


class _TooLarge(ValueError):
    """A document that no API server would take in."""


# Deeper than any object, and more values than a cluster of 100,000 pods has.
_DEPTH = 100
_VALUES = 100_000_000
_INT64 = 2**63


def _plain(raw: Any) -> Any:
    """The document without nulls; anchors that are repeated without end are refused, not followed."""
    size = _size(raw, {}, 0)
    if size > _VALUES:
        raise _TooLarge(f"has {size} values once its anchors are followed; write it out, at most {_VALUES}")
    return _without_nulls(raw)


def _size(value: Any, known: dict[int, int], depth: int) -> int:
    if not isinstance(value, dict | list):
        return 1
    if depth > _DEPTH:
        raise _TooLarge(f"is nested more than {_DEPTH} levels deep; no object is")
    found = known.get(id(value))
    if found is None:
        parts = value.values() if isinstance(value, dict) else value
        found = known[id(value)] = 1 + sum(_size(part, known, depth + 1) for part in parts)
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    # A quantity may have more digits than an integer of 64 bits.
    return str(value) if isinstance(value, int) and not -_INT64 <= value < _INT64 else value


_AT = re.compile(r"^(?P<problem>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)


def decode(document: Document, kind: Kind[T]) -> T:
    """The wire type of a document; raises ManifestError."""
    if not document.name and not _generated_name(document):
        raise document.error("metadata.name", None, f"every {kind.kind} needs a name")
    try:
        return msgspec.convert(document.data, kind.type)
    except msgspec.ValidationError as error:
        match = _AT.match(str(error))
        path = ((match.group("path") if match else None) or "$").removeprefix("$").removeprefix(".") or "."
        problem = (match.group("problem") if match else str(error)).replace("`", "")
        raise document.error(path, _at(document.data, path), problem) from error


def _generated_name(document: Document) -> str:
    meta = document.data.get("metadata")
    return str(meta.get("generateName", "")) if isinstance(meta, dict) else ""


def _at(data: Any, path: str) -> object:
    """The value at a path such as `spec.containers[0].name`; None when the path says nothing exact."""
    current = data
    for part in re.findall(r"[^.\[\]]+", path):
        if isinstance(current, dict):
            current = current.get(part)
        elif isinstance(current, list) and part.isdigit() and int(part) < len(current):
            current = current[int(part)]
        else:
            return None
    return current
