"""Kinds, versions, names and references between the objects of the given files."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pykarpenter.api.nodepool import NodeClassReference
from pykarpenter.api.validation import WARNING, Problem
from pykarpenter.cli.validation.fields import ABSENT

# Groups of which every kind is known to us, and kinds that older versions had.
_OWN_GROUPS = ("karpenter.sh", "karpenter.kwok.sh")
_REPLACED = {"Provisioner": "NodePool", "Machine": "NodeClaim"}
# The class that each provider's group has.
_CLASS_KINDS = {
    "karpenter.kwok.sh": ("KWOKNodeClass",),
    "karpenter.k8s.aws": ("EC2NodeClass",),
    "eks.amazonaws.com": ("NodeClass",),
    "karpenter.azure.com": ("AKSNodeClass",),
    "karpenter.k8s.gcp": ("GCENodeClass",),
    "karpenter.k8s.alibabacloud": ("ECSNodeClass",),
    "karpenter.cluster.x-k8s.io": ("ClusterAPINodeClass",),
}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Identity:
    """What an object says it is."""

    group: str
    version: str
    kind: str
    namespace: str
    name: str

    @property
    def label(self) -> str:
        return f"{self.kind or '?'}/{self.name or '?'}"


def identify(body: Mapping[str, Any]) -> Identity:
    group, _, version = str(body.get("apiVersion") or "").rpartition("/")
    meta = body.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    name = str(meta.get("name") or meta.get("generateName") or "")
    return Identity(group, version, str(body.get("kind") or ""), str(meta.get("namespace") or ""), name)


def is_ours(found: Identity) -> bool:
    """Whether the object claims to be of a group of which we know every kind, or to be nothing at all."""
    return found.group in _OWN_GROUPS or not found.kind or not found.version


def check_kind(found: Identity, served: Mapping[tuple[str, str], str]) -> Iterator[Problem]:
    """Whether a group of ours has this kind in this version; `served` maps group and kind to the version."""
    if not found.kind:
        yield Problem("kind", ABSENT, "is required; add it")
    if not found.version:
        yield Problem("apiVersion", ABSENT, "is required; add it")
    if not found.kind or not found.version or found.group not in _OWN_GROUPS:
        return
    version = served.get((found.group, found.kind))
    written = f"{found.group}/{found.version}"
    if version is None:
        kinds = [kind for group, kind in served if group == found.group]
        instead = _REPLACED.get(found.kind) or next(iter(difflib.get_close_matches(found.kind, kinds, n=1)), "")
        hint = f"use {instead}" if instead else f"the group has {', '.join(sorted(kinds))}"
        yield Problem("kind", found.kind, f"is no kind of {found.group}; {hint}")
    elif version != found.version:
        yield Problem("apiVersion", written, f"is not served; use {found.group}/{version}")


def check_name(body: Mapping[str, Any]) -> Iterator[Problem]:
    meta = body.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    if isinstance(meta, dict) and meta.get("generateName") and not name:
        return
    if not name:
        yield Problem("metadata.name", ABSENT, "is required; add it")
    elif not isinstance(name, str) or len(name) > 253 or not _NAME.fullmatch(name):
        yield Problem("metadata.name", name, "is no name for an object; use lower-case letters, digits, '-' and '.'")


def check_class_reference(
    ref: NodeClassReference, path: str, classes: Mapping[tuple[str, str], list[str]]
) -> Iterator[Problem]:
    """Whether the class can exist, and is among the given files when any class of its kind is."""
    kinds = _CLASS_KINDS.get(ref.group)
    if kinds is not None and ref.kind and ref.kind not in kinds:
        yield Problem(f"{path}.kind", ref.kind, f"is no class of {ref.group}; use {', '.join(kinds)}")
        return
    names = classes.get((ref.group, ref.kind))
    if names and ref.name and ref.name not in names:
        if close := difflib.get_close_matches(ref.name, names, n=1):
            yield Problem(f"{path}.name", ref.name, f"is no {ref.kind} of the given files; did you mean {close[0]}?")
        else:
            message = (
                f"is no {ref.kind} of the given files, which have {', '.join(sorted(names))}; it must exist already"
            )
            yield Problem(f"{path}.name", ref.name, message, WARNING)
