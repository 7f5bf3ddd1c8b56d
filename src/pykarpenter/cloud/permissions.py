"""What a part of the program asks of a cluster's RBAC, as data; charts and tests are made from it.

A permission is cluster-wide unless it names a namespace. Everything beyond what the calls in the code need is a
surplus, and a test fails on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# The namespace that the program itself runs in, whatever its name is.
OWN_NAMESPACE = "."


@dataclass(frozen=True, slots=True)
class Permission:
    """Verbs on one resource (`pods`, `pods/eviction`), perhaps only on some names or in one namespace."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    namespace: str = ""


READ = ("get", "list", "watch")
WATCH = ("list", "watch")


def definitions(*names: str) -> Permission:
    """Reading the definitions of our own kinds (`nodepools.karpenter.sh`), at the start."""
    return Permission("apiextensions.k8s.io", "customresourcedefinitions", ("get",), names=names)


# One verb on one resource in one place: what a request needs.
Right = tuple[str, str, str, str]


def rights(permissions: Iterable[Permission]) -> Iterator[Right]:
    """Every (namespace, group, resource, verb) that the permissions give."""
    for item in permissions:
        for verb in item.verbs:
            yield (item.namespace, item.group, item.resource, verb)
