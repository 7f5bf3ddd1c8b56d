"""The frame of a CustomResourceDefinition: names, scope, subresources and printer columns around a schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pykarpenter.api.crds.schema import Schema, struct, text
from pykarpenter.api.kinds import Kind


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; priority 1 shows only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0

    def manifest(self) -> dict[str, Any]:
        column: dict[str, Any] = {"jsonPath": self.path, "name": self.name, "type": self.type}
        if self.priority:
            column["priority"] = self.priority
        return column


READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status')
AGE = Column("Age", ".metadata.creationTimestamp", "date")


def definition(
    kind: Kind[Any],
    *,
    description: str,
    spec: Schema,
    status: Schema,
    spec_required: bool = True,
    categories: Sequence[str] = ("karpenter",),
    short_names: Sequence[str] = (),
    columns: Sequence[Column] = (),
    scale: dict[str, str] | None = None,
) -> dict[str, Any]:
    """One CRD manifest with a single, stored version."""
    root = struct(
        description,
        {
            "apiVersion": text("Group and version of this object's schema."),
            "kind": text("The kind of this object."),
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        required=("spec",) if spec_required else (),
    )
    names: dict[str, Any] = {
        "categories": list(categories),
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    if short_names:
        names["shortNames"] = list(short_names)
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root},
        "subresources": {"status": {}} | ({"scale": dict(scale)} if scale else {}),
    }
    if columns:
        version["additionalPrinterColumns"] = [column.manifest() for column in columns]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }
