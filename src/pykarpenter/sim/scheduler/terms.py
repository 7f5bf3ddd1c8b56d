"""Label-selector terms of spread and affinity, and how many pods on each node they match.

Each distinct term is counted once for all pods that use it, and kept up to date as pods come and go: a scheduling
decision reads arrays and never walks over pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from pykarpenter.api.meta import LabelSelector, LabelSelectorRequirement
from pykarpenter.api.pods import Pod, PodAffinityTerm
from pykarpenter.core.selectors import selector_matches
from pykarpenter.sim.scheduler.node_table import Ints

LabelKey = tuple[str, tuple[tuple[str, str], ...]]


def label_key(pod: Pod) -> LabelKey:
    """Namespace and labels of a pod, as one hashable value."""
    return pod.metadata.namespace, tuple(sorted(pod.metadata.labels.items()))


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """Which pods count: in these namespaces, or in those whose labels match, with labels that match every selector."""

    key: bytes
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    selectors: tuple[LabelSelector | None, ...]
    # Spread counts pods that stay; affinity also those on their way out.
    staying_only: bool = False

    def matches(self, key: LabelKey, namespace_labels: Mapping[str, str]) -> bool:
        namespace, pairs = key
        if namespace not in self.namespaces and not selector_matches(self.namespace_selector, namespace_labels):
            return False
        labels = dict(pairs)
        return all(selector_matches(selector, labels) for selector in self.selectors)


def make_term(
    namespaces: Iterable[str],
    selectors: Iterable[LabelSelector | None],
    namespace_selector: LabelSelector | None = None,
    *,
    staying_only: bool = False,
) -> Term:
    names = frozenset(namespaces)
    listed = tuple(selectors)
    key = msgspec.json.encode((sorted(names), namespace_selector, listed, staying_only), order="deterministic")
    return Term(key, names, namespace_selector, listed, staying_only)


def with_label_keys(
    selector: LabelSelector | None, labels: Mapping[str, str], same: Iterable[str], other: Iterable[str] = ()
) -> LabelSelector | None:
    """The selector with `matchLabelKeys` (and `mismatchLabelKeys`) of the pod written into it."""
    if selector is None:
        return None
    added = [
        *(LabelSelectorRequirement(key=key, operator="In", values=[labels[key]]) for key in same if key in labels),
        *(LabelSelectorRequirement(key=key, operator="NotIn", values=[labels[key]]) for key in other if key in labels),
    ]
    if not added:
        return selector
    return msgspec.structs.replace(selector, match_expressions=[*selector.match_expressions, *added])


def affinity_term(pod: Pod, term: PodAffinityTerm) -> Term:
    selector = with_label_keys(
        term.label_selector, pod.metadata.labels, term.match_label_keys, term.mismatch_label_keys
    )
    namespaces = term.namespaces
    if not namespaces and term.namespace_selector is None:
        namespaces = [pod.metadata.namespace]
    return make_term(namespaces, [selector], term.namespace_selector)


class PodCounts:
    """How many pods a term matches on each slot."""

    def __init__(self, term: Term, capacity: int) -> None:
        self.term = term
        self._counts: Ints = np.zeros(max(64, capacity), dtype=np.int64)

    def add(self, slot: int, amount: int) -> None:
        if slot >= len(self._counts):
            self._counts = np.pad(self._counts, (0, max(slot + 1 - len(self._counts), len(self._counts))))
        self._counts[slot] += amount

    def any(self) -> bool:
        return bool(self._counts.any())

    def view(self, size: int) -> Ints:
        if size > len(self._counts):
            self._counts = np.pad(self._counts, (0, max(size - len(self._counts), len(self._counts))))
        return self._counts[:size]


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A term that pods on nodes hold against (or for) pods that come: how many holders each slot has.

    `weight` is None for required anti-affinity; else what the term adds to a score (negative for preferred
    anti-affinity, 1 for required affinity).
    """

    term: Term
    topology_key: str
    weight: int | None
    counts: PodCounts


@dataclass(frozen=True, slots=True, eq=False)
class HeldTerm:
    """One affinity term of one pod, before it is counted."""

    term: Term
    topology_key: str
    weight: int | None

    @property
    def key(self) -> tuple[bytes, str, int | None]:
        return self.term.key, self.topology_key, self.weight


def held_terms(pod: Pod) -> list[HeldTerm]:
    """What a pod, once placed, means for pods that come after it."""
    affinity = pod.spec.affinity
    if affinity is None:
        return []
    result: list[HeldTerm] = []
    if affinity.pod_anti_affinity is not None:
        for term in affinity.pod_anti_affinity.required:
            result.append(HeldTerm(affinity_term(pod, term), term.topology_key, None))
        for weighted in affinity.pod_anti_affinity.preferred:
            inner = weighted.pod_affinity_term
            result.append(HeldTerm(affinity_term(pod, inner), inner.topology_key, -weighted.weight))
    if affinity.pod_affinity is not None:
        for term in affinity.pod_affinity.required:
            result.append(HeldTerm(affinity_term(pod, term), term.topology_key, 1))
        for weighted in affinity.pod_affinity.preferred:
            inner = weighted.pod_affinity_term
            result.append(HeldTerm(affinity_term(pod, inner), inner.topology_key, weighted.weight))
    return result
