"""What one pod spec asks for, rung by rung of its relaxation ladder.

A rung is what a pod insists on after some of its preferences were given up; the first keeps them all. Everything
here follows from the spec, the pod's labels and the settings alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pykarpenter.api.labels import LabelRules
from pykarpenter.api.pods import (
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PreferredSchedulingTerm,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from pykarpenter.core.requirements import Requirements, from_expressions, from_labels

_NO_AFFINITY = PodAffinity()
TOLERATE_PREFERENCES = Toleration(operator="Exists", effect="PreferNoSchedule")


@dataclass(frozen=True, slots=True)
class Wishes:
    """One rung: the terms still insisted on, in the order of the spec."""

    node_selector: tuple[tuple[str, str], ...]
    required_terms: tuple[NodeSelectorTerm, ...]
    preferred_terms: tuple[PreferredSchedulingTerm, ...]
    affinity: tuple[PodAffinityTerm, ...]
    preferred_affinity: tuple[WeightedPodAffinityTerm, ...]
    anti_affinity: tuple[PodAffinityTerm, ...]
    preferred_anti_affinity: tuple[WeightedPodAffinityTerm, ...]
    spread: tuple[TopologySpreadConstraint, ...]
    tolerations: tuple[Toleration, ...]

    def strict(self, rules: LabelRules) -> Requirements:
        """The node selector and the first required term."""
        found = from_labels(dict(self.node_selector), rules)
        return found.merged(_term(self.required_terms[0], rules).values()) if self.required_terms else found

    def full(self, rules: LabelRules) -> Requirements:
        """The strict requirements and the heaviest preferred term, as if it were required."""
        strict = self.strict(rules)
        heaviest = heaviest_of(self.preferred_terms)
        return strict if heaviest is None else strict.merged(_term(heaviest.preference, rules).values())


def _term(term: NodeSelectorTerm, rules: LabelRules) -> Requirements:
    try:
        return from_expressions(term.match_expressions, rules)
    except ValueError:
        # Only preferences get here: required terms were validated. A wish without a meaning is no wish.
        return Requirements()


def wishes_of(spec: PodSpec) -> Wishes:
    """The first rung: everything the spec asks for."""
    affinity = spec.affinity
    node = affinity.node_affinity if affinity is not None else None
    near = (affinity.pod_affinity if affinity is not None else None) or _NO_AFFINITY
    apart = (affinity.pod_anti_affinity if affinity is not None else None) or _NO_AFFINITY
    return Wishes(
        node_selector=tuple(sorted(spec.node_selector.items())),
        required_terms=tuple(node.required.node_selector_terms) if node is not None and node.required else (),
        preferred_terms=tuple(node.preferred) if node is not None else (),
        affinity=tuple(near.required),
        preferred_affinity=tuple(near.preferred),
        anti_affinity=tuple(apart.required),
        preferred_anti_affinity=tuple(apart.preferred),
        spread=tuple(spec.topology_spread_constraints),
        tolerations=tuple(spec.tolerations),
    )


def heaviest_of(terms: tuple[PreferredSchedulingTerm, ...]) -> PreferredSchedulingTerm | None:
    """The term with the largest weight; the first of equals."""
    return max(terms, key=lambda term: term.weight, default=None)


def without_preferences(wishes: Wishes) -> Wishes:
    """What counts when preferences are ignored."""
    return replace(
        wishes,
        preferred_terms=(),
        preferred_affinity=(),
        preferred_anti_affinity=(),
        spread=tuple(c for c in wishes.spread if c.when_unsatisfiable != "ScheduleAnyway"),
    )


def ladder(wishes: Wishes, tolerate_preferences: bool) -> Iterator[tuple[Wishes, str]]:
    """The rungs in order, each with what was given up to reach it; lazily, as few pods climb far."""
    current: tuple[Wishes, str] | None = (wishes, "")
    while current is not None:
        yield current
        current = _relaxed(current[0], tolerate_preferences)


def _relaxed(wishes: Wishes, tolerate_preferences: bool) -> tuple[Wishes, str] | None:
    if len(wishes.required_terms) > 1:
        return replace(wishes, required_terms=wishes.required_terms[1:]), "required node affinity term"
    if wishes.preferred_affinity:
        left = _without_heaviest(wishes.preferred_affinity)
        return replace(wishes, preferred_affinity=left), "preferred pod affinity"
    if wishes.preferred_anti_affinity:
        left = _without_heaviest(wishes.preferred_anti_affinity)
        return replace(wishes, preferred_anti_affinity=left), "preferred pod anti-affinity"
    if wishes.preferred_terms:
        heaviest = heaviest_of(wishes.preferred_terms)
        index = next(i for i, term in enumerate(wishes.preferred_terms) if term is heaviest)
        kept = wishes.preferred_terms[:index] + wishes.preferred_terms[index + 1 :]
        return replace(wishes, preferred_terms=kept), "preferred node affinity"
    for index, constraint in enumerate(wishes.spread):
        if constraint.when_unsatisfiable == "ScheduleAnyway":
            listed = list(wishes.spread)
            last = listed.pop()
            if index < len(listed):
                listed[index] = last
            return replace(wishes, spread=tuple(listed)), "ScheduleAnyway topology spread"
    if tolerate_preferences and TOLERATE_PREFERENCES not in wishes.tolerations:
        return replace(wishes, tolerations=(*wishes.tolerations, TOLERATE_PREFERENCES)), "PreferNoSchedule taints"
    return None


def _without_heaviest(terms: tuple[WeightedPodAffinityTerm, ...]) -> tuple[WeightedPodAffinityTerm, ...]:
    index = max(range(len(terms)), key=lambda i: (terms[i].weight, -i))
    return terms[:index] + terms[index + 1 :]


def selector_keys(wishes: Wishes) -> set[str]:
    """Label keys that any selector of the spec reads; pods that differ in others are alike."""
    keys: set[str] = set()
    terms = [*wishes.affinity, *wishes.anti_affinity]
    terms += [t.pod_affinity_term for t in (*wishes.preferred_affinity, *wishes.preferred_anti_affinity)]
    for term in terms:
        keys.update(term.match_label_keys, term.mismatch_label_keys, _keys_of(term))
    for constraint in wishes.spread:
        keys.update(constraint.match_label_keys, _keys_of(constraint))
    return keys


def _keys_of(item: PodAffinityTerm | TopologySpreadConstraint) -> set[str]:
    selector = item.label_selector
    if selector is None:
        return set()
    return {*selector.match_labels, *(e.key for e in selector.match_expressions)}


def projected(labels: Mapping[str, str], keys: tuple[str, ...]) -> tuple[str | None, ...]:
    return tuple([labels.get(key) for key in keys])
