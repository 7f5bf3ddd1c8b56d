"""What one pod asks for at one level of relaxation: requirements, and the ladder of what can be given up."""

from __future__ import annotations

import msgspec

from pykarpenter.api.labels import LabelRules
from pykarpenter.api.pods import Affinity, NodeAffinity, Pod, PodAffinity, Toleration
from pykarpenter.core.requirements import Requirements, from_expressions, from_labels

PREFER_TOLERATION = Toleration(operator="Exists", effect="PreferNoSchedule")


def strict_requirements(pod: Pod, rules: LabelRules) -> Requirements:
    """nodeSelector and the first required node-affinity term."""
    result = from_labels(pod.spec.node_selector, rules)
    affinity = _node_affinity(pod)
    if affinity is not None and affinity.required is not None and affinity.required.node_selector_terms:
        first = affinity.required.node_selector_terms[0]
        result = result.merged(from_expressions(first.match_expressions, rules).values())
    return result


def full_requirements(pod: Pod, rules: LabelRules) -> Requirements:
    """The strict ones and the heaviest preferred term, as if it were required."""
    result = strict_requirements(pod, rules)
    affinity = _node_affinity(pod)
    if affinity is not None and affinity.preferred:
        heaviest = max(affinity.preferred, key=lambda term: term.weight)
        result = result.merged(from_expressions(heaviest.preference.match_expressions, rules).values())
    return result


def _node_affinity(pod: Pod) -> NodeAffinity | None:
    return pod.spec.affinity.node_affinity if pod.spec.affinity else None


def without_preferences(pod: Pod) -> Pod:
    """The pod as the policy Ignore sees it."""
    affinity = pod.spec.affinity
    if affinity is not None:
        affinity = msgspec.structs.replace(
            affinity,
            node_affinity=_drop(affinity.node_affinity),
            pod_affinity=_drop(affinity.pod_affinity),
            pod_anti_affinity=_drop(affinity.pod_anti_affinity),
        )
    spread = [c for c in pod.spec.topology_spread_constraints if c.when_unsatisfiable == "DoNotSchedule"]
    return _with_spec(pod, affinity=affinity, topology_spread_constraints=spread)


def _drop(part):
    return None if part is None else msgspec.structs.replace(part, preferred=[])


def relax(pod: Pod, pools_prefer_no_schedule: bool) -> Pod | None:
    """The pod with the first applicable thing given up, or None when nothing is left."""
    affinity = pod.spec.affinity or Affinity()
    node = affinity.node_affinity
    if node is not None and node.required is not None and len(node.required.node_selector_terms) > 1:
        terms = msgspec.structs.replace(node.required, node_selector_terms=node.required.node_selector_terms[1:])
        return _with_affinity(pod, node_affinity=msgspec.structs.replace(node, required=terms))
    for name in ("pod_affinity", "pod_anti_affinity"):
        part: PodAffinity | None = getattr(affinity, name)
        if part is not None and part.preferred:
            return _with_affinity(pod, **{name: _without_heaviest(part)})
    if node is not None and node.preferred:
        return _with_affinity(pod, node_affinity=_without_heaviest(node))
    spread = list(pod.spec.topology_spread_constraints)
    for index, constraint in enumerate(spread):
        if constraint.when_unsatisfiable == "ScheduleAnyway":
            spread[index] = spread[-1]
            return _with_spec(pod, topology_spread_constraints=spread[:-1])
    if pools_prefer_no_schedule and PREFER_TOLERATION not in pod.spec.tolerations:
        return _with_spec(pod, tolerations=[*pod.spec.tolerations, PREFER_TOLERATION])
    return None


def _without_heaviest(part):
    heaviest = max(range(len(part.preferred)), key=lambda i: (part.preferred[i].weight, -i))
    kept = [term for i, term in enumerate(part.preferred) if i != heaviest]
    return msgspec.structs.replace(part, preferred=kept)


def _with_affinity(pod: Pod, **parts: object) -> Pod:
    return _with_spec(pod, affinity=msgspec.structs.replace(pod.spec.affinity or Affinity(), **parts))


def _with_spec(pod: Pod, **parts: object) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **parts))
