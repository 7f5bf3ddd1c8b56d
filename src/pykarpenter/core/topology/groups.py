"""Topology groups: the rules that pods share about where their peers are, and how many peers each domain holds.

Pods whose rules are equal in every part share one group. Domains of `kubernetes.io/hostname` are machines and are
counted by position; domains of other keys are counted by value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from pykarpenter.api import labels
from pykarpenter.api.pods import Toleration
from pykarpenter.core.interning import Ints
from pykarpenter.core.requirements import Requirement
from pykarpenter.core.topology.selectors import Selector


class GroupKind(StrEnum):
    SPREAD = "spread"
    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"
    # Where pods with a required anti-affinity term are: the pods that the term selects must stay away.
    INVERSE = "inverse anti-affinity"


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Which machines a spread constraint counts: alternatives of requirement ids, and tolerations when taints count."""

    alternatives: tuple[int, ...] = ()
    tolerations: tuple[Toleration, ...] | None = None

    @property
    def passes_all(self) -> bool:
        return not self.alternatives and self.tolerations is None


@dataclass(frozen=True, slots=True)
class GroupRule:
    """The identity of a group."""

    kind: GroupKind
    key: str
    namespaces: frozenset[str]
    selector: Selector
    max_skew: int = 0
    min_domains: int | None = None
    node_filter: NodeFilter = NodeFilter()
    # An absent selector selects no new pod but counts every existing one.
    selector_absent: bool = False

    def selects(self, namespace: str, pod_labels: dict[str, str]) -> bool:
        return namespace in self.namespaces and self.selector.matches(pod_labels)

    def describe(self) -> str:
        """The rule in a few words, for reasons."""
        chosen = ", ".join(_expression(e.key, e.operator, sorted(e.values)) for e in self.selector.expressions)
        about = f"pods with {chosen}" if chosen else ("no pods" if self.selector.nothing else "all pods")
        skew = f", maxSkew {self.max_skew}" if self.kind is GroupKind.SPREAD else ""
        return f"{self.kind.value} over {self.key} of {about}{skew}"


def _expression(key: str, operator: str, values: list[str]) -> str:
    if operator == "In" and len(values) == 1:
        return f"{key}={values[0]}"
    return f"{key} {operator} {values}" if values else f"{key} {operator}"


@dataclass(slots=True, eq=False)
class Group:
    """A rule and the peers counted so far."""

    rule: GroupRule
    counts: dict[str, int] = field(default_factory=dict)
    node_counts: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    claim_counts: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    host_total: int = 0

    @property
    def is_host(self) -> bool:
        return self.rule.key == labels.HOSTNAME

    def add(self, domain: str, pods: int) -> None:
        self.counts[domain] = self.counts.get(domain, 0) + pods

    def copy(self) -> Group:
        """A group that can be counted further without touching this one."""
        return replace(
            self, counts=dict(self.counts), node_counts=self.node_counts.copy(), claim_counts=self.claim_counts.copy()
        )

    def grow(self, claims: int) -> None:
        """Make room for that many claims."""
        missing = claims - len(self.claim_counts)
        if missing > 0:
            more = np.zeros(max(missing, len(self.claim_counts)), dtype=np.int64)
            self.claim_counts = np.concatenate([self.claim_counts, more])


def eligible_domains(
    group: Group, pod_allows: Requirement, selects_itself: bool, known: list[str]
) -> tuple[dict[str, int], str]:
    """Domains that the rule admits now, with how many pods of the class each may take before asking again.

    `known` are the group's domains for this pod, sorted. The text explains an empty answer.
    """
    kind = group.rule.kind
    allowed = [domain for domain in known if pod_allows.allows(domain)]
    if not allowed:
        return {}, f"no domain of {group.rule.key} is known that the pod allows"
    counts = group.counts
    if kind is GroupKind.SPREAD:
        return _spread(group, allowed, selects_itself)
    if kind is GroupKind.AFFINITY:
        populated = [domain for domain in allowed if counts.get(domain, 0) > 0]
        if populated:
            return dict.fromkeys(populated, _MANY), ""
        if selects_itself:
            return dict.fromkeys(allowed, 1), ""
        return {}, f"no domain holds a pod that the term selects ({_counted(counts, allowed)})"
    free = [domain for domain in allowed if counts.get(domain, 0) == 0]
    each = 1 if selects_itself else _MANY
    if not free:
        return {}, f"every domain holds or may hold a pod that must be kept apart ({_counted(counts, allowed)})"
    return dict.fromkeys(free, each), ""


_MANY = 2**31


def _spread(group: Group, allowed: list[str], selects_itself: bool) -> tuple[dict[str, int], str]:
    counts, rule = group.counts, group.rule
    lowest = min(counts.get(domain, 0) for domain in allowed)
    if rule.min_domains is not None and len(allowed) < rule.min_domains:
        lowest = 0
    room = {domain: rule.max_skew + lowest - counts.get(domain, 0) for domain in allowed}
    if selects_itself:
        fitting = {domain: each for domain, each in room.items() if each > 0}
    else:
        fitting = {domain: _MANY for domain, each in room.items() if each >= 0}
    if fitting:
        return fitting, ""
    return {}, f"every domain would exceed maxSkew {rule.max_skew} ({_counted(counts, allowed)})"


def _counted(counts: Mapping[str, int], allowed: list[str]) -> str:
    """The domains that were looked at, for a refusal; many are cut off."""
    seen = ", ".join(f"{domain}={counts.get(domain, 0)}" for domain in allowed[:10])
    more = f" and {len(allowed) - 10} more" if len(allowed) > 10 else ""
    return f"pods per domain: {seen}{more}"
