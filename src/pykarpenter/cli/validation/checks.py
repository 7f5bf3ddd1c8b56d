"""All problems of a set of manifests: one pass over every object, nothing is asked of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from pykarpenter.api import kinds, labels
from pykarpenter.api.crds import crds
from pykarpenter.api.extras import CapacityBuffer, NodeOverlay
from pykarpenter.api.labels import LabelRules
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.api.timestamps import parse_timestamp
from pykarpenter.api.validation import (
    ERROR,
    Problem,
    validate_node_claim,
    validate_node_overlay,
    validate_node_pool,
)
from pykarpenter.api.workload_problems import has_pods, workload_problems
from pykarpenter.cli.manifests import Document, Unreadable
from pykarpenter.cli.validation.fields import ABSENT, overlaps, without
from pykarpenter.cli.validation.references import (
    Identity,
    check_class_reference,
    check_kind,
    check_name,
    identify,
    is_ours,
)
from pykarpenter.cli.validation.schemas import ObjectSchema
from pykarpenter.cloud.catalog import Catalog, read_catalog
from pykarpenter.core.pool_advice import budget_advice, lifetime_advice, limit_advice, supply_advice

T = TypeVar("T")

# Windows of budgets are looked for from here on: a leap year, and the same answer today and tomorrow.
_FROM = parse_timestamp("2028-01-01T00:00:00Z")
_SCALABLE = {("", kind) for kind in ("Deployment", "StatefulSet", "ReplicaSet")} | {
    ("apps", kind) for kind in ("Deployment", "StatefulSet", "ReplicaSet")
}
_KWOK = (kinds.KWOK_NODE_CLASS.group, kinds.KWOK_NODE_CLASS.kind)


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and the object that has it."""

    source: str
    document: int
    item: int | None
    object: str
    problem: Problem

    @property
    def where(self) -> str:
        place = f"{self.source}[{self.document}]"
        return place if self.item is None else f"{place}.items[{self.item}]"


class Validator:
    """Checks manifests for one provider; `catalog` stands for the types of every pool when it is given."""

    def __init__(self, provider: str, catalog: Catalog | None = None) -> None:
        self._catalog = catalog
        self._schemas: dict[tuple[str, str], ObjectSchema] = {}
        self._served: dict[tuple[str, str], str] = {}
        for crd in crds(provider):
            key = (crd["spec"]["group"], crd["spec"]["names"]["kind"])
            self._schemas[key] = ObjectSchema(crd)
            self._served[key] = crd["spec"]["versions"][0]["name"]
        self._classes: dict[tuple[str, str], list[str]] = {}

    def validate(self, documents: Sequence[Document], unreadable: Iterable[Unreadable] = ()) -> list[Finding]:
        """Every problem, in the order of the files."""
        found = [Finding(u.source, u.index, None, "", Problem("", ABSENT, u.problem)) for u in unreadable]
        identities = [identify(doc.body) if isinstance(doc.body, dict) else None for doc in documents]
        self._classes = _classes(identities)
        seen: dict[Identity, str] = {}
        for document, identity in zip(documents, identities, strict=True):
            label = identity.label if identity is not None else ""
            for problem in self._problems(document, identity, seen):
                found.append(Finding(document.source, document.index, document.item, label, problem))
        return found

    def looks_at(self, document: Document) -> bool:
        """Whether the object is of a kind that is checked beyond having one."""
        if not isinstance(document.body, dict):
            return True
        found = identify(document.body)
        return (found.group, found.kind) in self._schemas or has_pods(found.group, found.kind) or is_ours(found)

    def _problems(self, document: Document, identity: Identity | None, seen: dict[Identity, str]) -> Iterator[Problem]:
        if identity is None:
            yield Problem("", document.body, "is no Kubernetes object; write apiVersion, kind and metadata")
            return
        yield from check_kind(identity, self._served)
        yield from workload_problems(identity.group, identity.kind, document.body)
        if (schema := self._schemas.get((identity.group, identity.kind))) is None:
            return
        if self._served[identity.group, identity.kind] != identity.version:
            return
        yield from check_name(document.body)
        if identity in seen:
            message = f"is written twice; the other is in {seen[identity]}"
            yield Problem("metadata.name", identity.name, message)
        seen.setdefault(identity, document.where)
        shaped, refused = schema.check(document.body)
        yield from refused
        yield from self._beyond_schema(identity, shaped, refused)

    def _beyond_schema(self, identity: Identity, shaped: dict[str, Any], refused: list[Problem]) -> Iterator[Problem]:
        shaped = _readable(shaped, refused)
        checks: dict[str, Callable[[], Iterable[Problem]]] = {
            "NodePool": lambda: self._node_pool(_decoded(shaped, NodePool), refused),
            "NodeClaim": lambda: self._node_claim(_decoded(shaped, NodeClaim)),
            "NodeOverlay": lambda: _node_overlay(_decoded(shaped, NodeOverlay)),
            "CapacityBuffer": lambda: _capacity_buffer(_decoded(shaped, CapacityBuffer)),
        }
        check = checks.get(identity.kind)
        if check is None:
            return
        for problem in check():
            # What the schema refused already is not told a second time in other words.
            if not any(_tells(known, problem) for known in refused):
                yield problem

    def _supply(self, group: str, kind: str) -> tuple[Catalog | None, LabelRules]:
        catalog = self._catalog or (read_catalog("kwok") if (group, kind) == _KWOK else None)
        return catalog, labels.DEFAULT_RULES if catalog is None else catalog.label_rules

    def _node_pool(self, pool: NodePool | None, refused: list[Problem]) -> Iterator[Problem]:
        if pool is None:
            return
        ref = pool.spec.template.spec.node_class_ref
        catalog, rules = self._supply(ref.group, ref.kind)
        problems = validate_node_pool(pool, rules)
        yield from problems
        yield from check_class_reference(ref, "spec.template.spec.nodeClassRef", self._classes)
        yield from budget_advice(pool, _FROM)
        yield from lifetime_advice(pool)
        yield from limit_advice(pool)
        # A pool that cannot be read cannot be matched with types.
        broken = [*refused, *(problem for problem in problems if problem.severity == ERROR)]
        if catalog is not None and not broken:
            yield from supply_advice(pool, catalog.types, rules)

    def _node_claim(self, claim: NodeClaim | None) -> Iterator[Problem]:
        if claim is None:
            return
        ref = claim.spec.node_class_ref
        _, rules = self._supply(ref.group, ref.kind)
        yield from validate_node_claim(claim, rules)
        yield from check_class_reference(ref, "spec.nodeClassRef", self._classes)


def _tells(known: Problem, problem: Problem) -> bool:
    """Whether a refusal of the schema says what this problem says; one about a map names the keys that it is about."""
    key = problem.path.removeprefix(f"{known.path}.")
    if known.path.endswith(".labels") and key != problem.path:
        return key in known.message
    return overlaps(problem.path, known.path)


def _classes(identities: Iterable[Identity | None]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for identity in identities:
        if identity is not None and identity.kind.endswith("NodeClass") and identity.name:
            found.setdefault((identity.group, identity.kind), []).append(identity.name)
    return found


def _readable(shaped: dict[str, Any], refused: Iterable[Problem]) -> dict[str, Any]:
    """The object without the fields of a wrong type, which have been told, so that the others can be judged."""
    wrong = [problem.path for problem in refused if problem.message.startswith("must be of type")]
    return without(shaped, wrong)


def _decoded(shaped: dict[str, Any], wanted: type[T]) -> T | None:
    """The object as controllers see it; None when its shape is wrong, which the schema has told."""
    try:
        return msgspec.convert(shaped, wanted)
    except msgspec.ValidationError:
        return None


def _node_overlay(overlay: NodeOverlay | None) -> Iterator[Problem]:
    if overlay is not None:
        yield from validate_node_overlay(overlay)


def _capacity_buffer(buffer: CapacityBuffer | None) -> Iterator[Problem]:
    if buffer is None:
        return
    spec = buffer.spec
    if spec.pod_template_ref is None and spec.scalable_ref is None:
        yield Problem("spec", ABSENT, "names no pods to keep room for; add podTemplateRef or scalableRef")
    ref = spec.scalable_ref
    if ref is not None and (ref.api_group, ref.kind) not in _SCALABLE:
        known = "Deployment, StatefulSet or ReplicaSet of apps"
        yield Problem(
            "spec.scalableRef.kind", ref.kind, f"of group {ref.api_group!r} cannot be followed; use a {known}"
        )
    if spec.percentage is not None and ref is None:
        yield Problem("spec.percentage", spec.percentage, "has no workload to be a part of; add scalableRef")
