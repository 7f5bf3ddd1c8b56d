"""What an API server would say about the objects of an input, before anything is planned with them.

Pools, claims, overlays and buffers are held against their CRDs, rules included; what is refused there is refused here.
Fields that no kind has are dropped by an API server without a word to the reader: here they are told, and `--strict`
makes them errors. Objects that have been through an API server already (they have a UID) are taken as they are.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from pykarpenter.api.crds import DEFAULT_PROVIDER, crds
from pykarpenter.api.kinds import Kind
from pykarpenter.api.manifests import Document
from pykarpenter.api.validation import Problem
from pykarpenter.cli.validation.fields import ABSENT, value_at
from pykarpenter.cli.validation.references import check_kind, identify
from pykarpenter.cli.validation.schemas import ObjectSchema
from pykarpenter.sim.schema import kubernetes
from pykarpenter.state.manifests import READ_KINDS

# Objects of these groups exist in one version only, on every Kubernetes there is a reason to plan for.
_SETTLED_GROUPS = ("", "apps", "batch", "policy")
_CHECKED = ("NodePool", "NodeClaim", "NodeOverlay", "CapacityBuffer")


class InputChecks:
    """Looks at documents as they pass; `warnings` gathers what is no error."""

    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self.warnings: list[str] = []
        self._crds = {(crd["spec"]["group"], crd["spec"]["names"]["kind"]): crd for crd in crds(DEFAULT_PROVIDER)}
        self._served = {key: str(crd["spec"]["versions"][0]["name"]) for key, crd in self._crds.items()}
        self._schemas: dict[tuple[str, str], ObjectSchema] = {}

    def passing(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The same documents; raises ManifestError at the first that an API server would refuse."""
        for document in documents:
            if not _is_recorded(document):
                self._look_at(document)
            yield document

    def _look_at(self, document: Document) -> None:
        key = (document.group, document.kind)
        for problem in check_kind(identify(document.data), self._served) if document.group else ():
            raise _error(document, problem)
        if key in self._crds and document.kind in _CHECKED:
            self._served_version(document, key)
            self._custom(document, key)
        elif (kind := _READ.get(key)) is not None:
            self._built_in(document, kind)

    def _served_version(self, document: Document, key: tuple[str, str]) -> None:
        served = f"{key[0]}/{self._served[key]}"
        if document.data.get("apiVersion") != served:
            raise document.error("apiVersion", document.data.get("apiVersion"), f"is not served; use {served}")

    def _custom(self, document: Document, key: tuple[str, str]) -> None:
        schema = self._schemas.get(key)
        if schema is None:
            schema = self._schemas[key] = ObjectSchema(self._crds[key])
        # An API server does not read the status that comes with a manifest.
        body = {key: value for key, value in document.data.items() if key != "status"}
        for problem in schema.unknown(body):
            self._unknown(document, problem)
        for problem in schema.refused(body):
            raise _error(document, problem)

    def _built_in(self, document: Document, kind: Kind[object]) -> None:
        _, _, version = str(document.data.get("apiVersion", "")).rpartition("/")
        if kind.group in _SETTLED_GROUPS and version != kind.version:
            written = str(document.data.get("apiVersion", ""))
            raise document.error("apiVersion", written, f"is not served for {kind.kind}; use {kind.api_version}")
        schema = kubernetes.root_schema(kind.group, version, kind.kind)
        if schema is None:
            return
        for path in kubernetes.unknown_fields(schema, document.data):
            name = path.rpartition(".")[2]
            close = difflib.get_close_matches(name, _members(schema, path), n=1)
            hint = f"did you mean {close[0]}?" if close else "remove it"
            problem = Problem(path, value_at(dict(document.data), path), f"is not a field of this kind; {hint}")
            self._unknown(document, problem)

    def _unknown(self, document: Document, problem: Problem) -> None:
        error = _error(document, problem)
        if self._strict:
            raise error
        self.warnings.append(f"{error}; it is ignored")


_READ = {(kind.group, kind.kind): kind for kind in READ_KINDS}


def _error(document: Document, problem: Problem) -> Exception:
    value = None if problem.value is ABSENT else problem.value
    return document.error(problem.path, value, problem.message)


def _is_recorded(document: Document) -> bool:
    meta = document.data.get("metadata")
    return isinstance(meta, dict) and bool(meta.get("uid")) and bool(meta.get("resourceVersion"))


def _members(schema: kubernetes.Schema, path: str) -> list[str]:
    """The fields that the object has at the place where an unknown one was written."""
    current: kubernetes.Schema | None = schema
    for part in path.split(".")[:-1]:
        name, _, index = part.partition("[")
        current = kubernetes.member(current, name) if current is not None else None
        for _ in range(index.count("]")):
            current = kubernetes.items(current)
    return sorted((kubernetes.resolve(current).get("properties") or {}) if current is not None else ())
