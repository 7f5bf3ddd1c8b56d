"""Spread, affinity, anti-affinity and their mirrors, counted from scratch at every question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pykarpenter.api import labels
from pykarpenter.api.meta import LabelSelector, LabelSelectorRequirement
from pykarpenter.api.pods import Pod, PodAffinityTerm, Toleration, TopologySpreadConstraint
from pykarpenter.core.requirements import Requirement, Requirements, from_expressions, from_labels
from pykarpenter.core.taints import first_untolerated
from tests.reference.machine import taints_that_count
from tests.reference.selection import selector_matches


@dataclass(frozen=True)
class Group:
    """One rule of one pod (or the mirror of another pod's anti-affinity)."""

    kind: str
    key: str
    namespaces: frozenset[str]
    selector: LabelSelector | None
    max_skew: int = 1
    min_domains: int | None = None
    honor_affinity: bool = False
    honor_taints: bool = False
    terms: tuple[Requirements, ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    def selects(self, pod: Pod) -> bool:
        return pod.namespace in self.namespaces and selector_matches(self.selector, pod.metadata.labels)

    def passes_filter(self, requirements: Requirements, taints) -> bool:
        if self.honor_affinity and self.terms and not any(requirements.compatible(t) for t in self.terms):
            return False
        return not (self.honor_taints and first_untolerated(taints, self.tolerations) is not None)


def with_label_keys(
    selector: LabelSelector | None, keys: list[str], pod: Pod, operator: str = "In"
) -> LabelSelector | None:
    extra = [
        LabelSelectorRequirement(key=key, operator=operator, values=[pod.metadata.labels[key]])
        for key in keys
        if key in pod.metadata.labels
    ]
    if selector is None or not extra:
        return selector
    return LabelSelector(match_labels=selector.match_labels, match_expressions=[*selector.match_expressions, *extra])


def spread_group(pod: Pod, constraint: TopologySpreadConstraint, rules: labels.LabelRules) -> Group:
    selector_part = from_labels(pod.spec.node_selector, rules)
    terms = [selector_part]
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is not None and affinity.required is not None and affinity.required.node_selector_terms:
        terms = [
            selector_part.merged(from_expressions(t.match_expressions, rules).values())
            for t in affinity.required.node_selector_terms
        ]
    return Group(
        kind="spread",
        key=rules.normalise(constraint.topology_key),
        namespaces=frozenset({pod.namespace}),
        selector=with_label_keys(constraint.label_selector, constraint.match_label_keys, pod),
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains,
        honor_affinity=(constraint.node_affinity_policy or "Honor") == "Honor",
        honor_taints=constraint.node_taints_policy == "Honor",
        terms=tuple(terms),
        tolerations=tuple(pod.spec.tolerations),
    )


def affinity_group(pod: Pod, term: PodAffinityTerm, kind: str, world) -> Group:
    selector = with_label_keys(term.label_selector, term.match_label_keys, pod)
    selector = with_label_keys(selector, term.mismatch_label_keys, pod, "NotIn")
    namespaces = set(term.namespaces)
    if term.namespace_selector is not None:
        for name, namespace in world.snapshot.namespaces.items():
            if selector_matches(term.namespace_selector, namespace.metadata.labels):
                namespaces.add(name)
    if not term.namespaces and term.namespace_selector is None:
        namespaces = {pod.namespace}
    return Group(
        kind=kind,
        key=world.rules.normalise(term.topology_key),
        namespaces=frozenset(namespaces),
        selector=selector,
        tolerations=tuple(pod.spec.tolerations),
    )


def owned_groups(pod: Pod, world, preferences: bool) -> list[Group]:
    """The rules a pod brings itself; preferences count as rules until they are relaxed."""
    groups = [
        spread_group(pod, c, world.rules)
        for c in pod.spec.topology_spread_constraints
        if preferences or c.when_unsatisfiable == "DoNotSchedule"
    ]
    affinity = pod.spec.affinity
    for part, kind in (
        (affinity.pod_affinity if affinity else None, "affinity"),
        (affinity.pod_anti_affinity if affinity else None, "anti"),
    ):
        if part is None:
            continue
        terms = list(part.required)
        if preferences:
            terms += [w.pod_affinity_term for w in part.preferred]
        groups += [affinity_group(pod, term, kind, world) for term in terms]
    return groups


def required_anti_terms(pod: Pod) -> list[PodAffinityTerm]:
    affinity = pod.spec.affinity
    return list(affinity.pod_anti_affinity.required) if affinity and affinity.pod_anti_affinity else []


def domain_counts(group: Group, world) -> dict[str, int]:
    """Selected pods per domain: bound ones on nodes that pass the filter, and everything placed so far."""
    counts: dict[str, int] = {}
    for pod, view in world.bound:
        selected = group.selects(pod) if group.selector is not None else pod.namespace in group.namespaces
        if not selected or view.node is None:
            continue
        values = dict(view.labels)
        values.setdefault(labels.HOSTNAME, view.name)
        domain = values.get(group.key)
        if domain is None or not group.passes_filter(from_labels(values, world.rules), taints_that_count(view)):
            continue
        counts[domain] = counts.get(domain, 0) + 1
    for pod, target in world.placed:
        if not group.selects(pod) or not group.passes_filter(target.requirements, target.taints):
            continue
        for domain in _target_domains(target, group, world):
            counts[domain] = counts.get(domain, 0) + 1
    return counts


def _target_domains(target, group: Group, world) -> list[str]:
    requirement = target.requirements.get(group.key)
    if requirement is None:
        return [] if target.is_existing or group.kind != "anti" else sorted(world.universe(group.key, None))
    if not requirement.complement:
        values = sorted(requirement.values)
        return values if group.kind == "anti" or len(values) == 1 else []
    if group.kind != "anti":
        return []
    return sorted(d for d in world.universe(group.key, None) if requirement.allows(d))


def blocked_by_mirrors(pod: Pod, key_filter: str, world) -> set[str]:
    """Domains of a key where a pod with required anti-affinity against this pod is or could be."""
    blocked: set[str] = set()
    for owner, view in world.guards:
        for term in required_anti_terms(owner):
            group = affinity_group(owner, term, "anti", world)
            if group.key != key_filter or not group.selects(pod) or view.node is None:
                continue
            values = dict(view.labels)
            values.setdefault(labels.HOSTNAME, view.name)
            if group.key in values:
                blocked.add(values[group.key])
    for owner, target in world.placed:
        for term in required_anti_terms(owner):
            group = affinity_group(owner, term, "anti", world)
            if group.key == key_filter and group.selects(pod):
                blocked.update(_target_domains(target, group, world))
    return blocked


def mirror_keys(pod: Pod, world) -> list[str]:
    keys: set[str] = set()
    for owner, _ in [*world.guards, *world.placed]:
        for term in required_anti_terms(owner):
            group = affinity_group(owner, term, "anti", world)
            if group.selects(pod):
                keys.add(group.key)
    return sorted(keys)


def allowed_domains(group: Group, pod: Pod, strict: Requirements, target: Requirements, world) -> set[str]:
    """The domains a target may take for this rule; empty means the pod cannot go there."""
    counts = domain_counts(group, world)
    pod_domains = strict.get_or_exists(group.key)
    node_domains = target.get_or_exists(group.key)
    restrict = pod if group.kind != "spread" or group.honor_taints else None
    universe = set(world.universe(group.key, restrict, group)) | set(counts)
    if not node_domains.complement and group.key == labels.HOSTNAME:
        universe |= set(node_domains.values)
    self_selects = group.selects(pod)
    if group.kind == "spread":
        return _spread(group, universe, counts, pod_domains, node_domains, self_selects, world.pick_domain)
    if group.kind == "affinity":
        return _affinity(group, universe, counts, pod_domains, node_domains, self_selects, world.pick_domain)
    return {d for d in universe if counts.get(d, 0) == 0 and pod_domains.allows(d) and node_domains.allows(d)}


def _spread(
    group: Group,
    universe: set[str],
    counts: dict[str, int],
    pod_domains: Requirement,
    node_domains: Requirement,
    self_selects: bool,
    pick: Callable[[list[str]], str],
) -> set[str]:
    extra = 1 if self_selects else 0
    if group.key == labels.HOSTNAME:
        return {d for d in universe if node_domains.allows(d) and counts.get(d, 0) + extra <= group.max_skew}
    reachable = [d for d in universe if pod_domains.allows(d)]
    lowest = min((counts.get(d, 0) for d in reachable), default=0)
    if group.min_domains is not None and len(reachable) < group.min_domains:
        lowest = 0
    eligible = [d for d in reachable if node_domains.allows(d) and counts.get(d, 0) + extra - lowest <= group.max_skew]
    fewest = min((counts.get(d, 0) for d in eligible), default=0)
    return {pick([d for d in eligible if counts.get(d, 0) == fewest])} if eligible else set()


def _affinity(
    group: Group,
    universe: set[str],
    counts: dict[str, int],
    pod_domains: Requirement,
    node_domains: Requirement,
    self_selects: bool,
    pick: Callable[[list[str]], str],
) -> set[str]:
    both = {d for d in universe if pod_domains.allows(d) and node_domains.allows(d)}
    populated = {d for d in both if counts.get(d, 0) > 0}
    if populated:
        return populated
    anywhere = [d for d, n in counts.items() if n > 0 and pod_domains.allows(d)]
    if self_selects and not anywhere and both:
        return {pick(sorted(both))}
    return set()
