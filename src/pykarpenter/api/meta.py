"""Metadata that every Kubernetes object shares, and the base of all wire types.

Wire types are subsets: they hold what decisions read and drop the rest. Such an object must never be PUT back;
writes are patches. Structs are frozen so that snapshots can share them between threads.
"""

from __future__ import annotations

from typing import dataclass_transform

import msgspec


@dataclass_transform(field_specifiers=(msgspec.field,), kw_only_default=True, frozen_default=True)
class WireMeta(msgspec.StructMeta):
    """Tells type checkers what every wire type inherits: keyword-only fields, frozen."""


class Wire(msgspec.Struct, metaclass=WireMeta, rename="camel", omit_defaults=True, frozen=True, gc=False, kw_only=True):
    """Base of every wire type: camelCase on the wire, absent fields take their defaults."""


class OwnerReference(Wire):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Wire):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class Condition(Wire):
    """A metav1-style condition; core Pod and Node conditions fit it too."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class LabelSelectorRequirement(Wire):
    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Wire):
    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []


class LocalObjectReference(Wire):
    name: str = ""


class Object(Wire):
    """An object of any kind: identity and metadata only."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def key(self) -> str:
        """`namespace/name`, or the bare name of a cluster-scoped object."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name

    @property
    def is_deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None


def find_condition(conditions: list[Condition], condition_type: str) -> Condition | None:
    """The condition of that type, or None when it was never written."""
    for condition in conditions:
        if condition.type == condition_type:
            return condition
    return None


def condition_status(conditions: list[Condition], condition_type: str) -> str:
    """`True`, `False` or `Unknown`; a missing condition is Unknown."""
    found = find_condition(conditions, condition_type)
    return found.status if found is not None else "Unknown"


class ConfigMap(Object):
    data: dict[str, str] = {}
