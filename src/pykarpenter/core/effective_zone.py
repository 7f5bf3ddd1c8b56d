"""The one zone that a waiting pod needs: its strict zone terms, its volumes, and the zonal groups that it belongs to.

Groups are those of its own required pod (anti-)affinity and strict spread over zones, counted on the pods that run now:
where the pod may go next, not where it may end up once others have moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pykarpenter.api import labels
from pykarpenter.api.labels import LabelRules
from pykarpenter.api.pods import NodeSelectorRequirement, Pod, PodAffinityTerm, TopologySpreadConstraint
from pykarpenter.core.requirements import Requirements, from_expressions, from_labels
from pykarpenter.core.snapshot import ClusterSnapshot, VolumeObjects
from pykarpenter.core.topology.selectors import Selector, compile_selector, match_label_keys
from pykarpenter.core.volumes import VolumeLookupError, volume_demand

FLEXIBLE, NONE = "flexible", "none"


class ZonalPods:
    """How many pods of which labels run in which zone; counted when somebody asks for the first time."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._classes: dict[tuple[str, tuple[tuple[str, str], ...]], Counter[str]] | None = None
        self._counts: dict[tuple[frozenset[str], Selector], Counter[str]] = {}

    def counts(self, namespaces: frozenset[str], selector: Selector) -> Mapping[str, int]:
        """Matching pods by zone."""
        key = (namespaces, selector)
        found = self._counts.get(key)
        if found is None:
            found = self._counts[key] = Counter()
            for (namespace, values), by_zone in self._by_labels().items():
                if namespace in namespaces and selector.matches(dict(values)):
                    found.update(by_zone)
        return found

    def namespaces(self, term: PodAffinityTerm, own: str) -> frozenset[str]:
        if not term.namespaces and term.namespace_selector is None:
            return frozenset({own})
        selected = compile_selector(term.namespace_selector)
        known = self._snapshot.namespaces.items()
        return frozenset(term.namespaces) | {
            name for name, found in known if selected.matches(dict(found.metadata.labels))
        }

    def _by_labels(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], Counter[str]]:
        if self._classes is None:
            self._classes = {}
            for view in self._snapshot.nodes:
                zone = view.labels.get(labels.ZONE, "")
                for pod in view.pods if zone else ():
                    key = (pod.namespace, tuple(sorted(pod.metadata.labels.items())))
                    self._classes.setdefault(key, Counter())[zone] += 1
        return self._classes


def effective_zone(
    pod: Pod, volumes: VolumeObjects, zones: Iterable[str], rules: LabelRules, placed: ZonalPods | None = None
) -> str:
    """The zone's name when only one of `zones` is left, `none` when none is, else `flexible`."""
    grouped = placed is not None and has_zonal_terms(pod, rules)
    try:
        of_volumes = volume_demand(pod, volumes, rules).alternatives
        selected = from_labels(pod.spec.node_selector, rules)
        if labels.ZONE not in selected and not _required_terms(pod) and not of_volumes and not grouped:
            return FLEXIBLE
        own = [from_expressions(term, rules) for term in _required_terms(pod)]
    except (VolumeLookupError, ValueError):
        # Volumes that cannot be looked up and terms that cannot be read: the pod fits nowhere.
        return NONE
    terms = [selected.merged(term.values()) for term in own] or [selected]
    left = [zone for zone in zones if _allows(terms, zone) and (not of_volumes or _allows(of_volumes, zone))]
    if grouped and placed is not None:
        left = _within_groups(pod, left, rules, placed)
    if not left:
        return NONE
    return left[0] if len(left) == 1 else FLEXIBLE


def has_zonal_terms(pod: Pod, rules: LabelRules) -> bool:
    """Whether the zone that the pod needs depends on where other pods run."""
    return any(_zonal(term.topology_key, rules) for term in (*_near(pod), *_apart(pod))) or bool(_spreads(pod, rules))


def _within_groups(pod: Pod, zones: list[str], rules: LabelRules, placed: ZonalPods) -> list[str]:
    strict = zones
    for term in _near(pod):
        if _zonal(term.topology_key, rules):
            namespaces, selector = _group(term, pod, placed)
            counts = placed.counts(namespaces, selector)
            begins = pod.namespace in namespaces and selector.matches(pod.metadata.labels)
            # The first of a group that wants its own company may go anywhere.
            if any(counts.values()) or not begins:
                zones = [zone for zone in zones if counts.get(zone)]
    for term in _apart(pod):
        if _zonal(term.topology_key, rules):
            counts = placed.counts(*_group(term, pod, placed))
            zones = [zone for zone in zones if not counts.get(zone)]
    for constraint in _spreads(pod, rules):
        own = match_label_keys(pod.metadata.labels, constraint.match_label_keys)
        selector = compile_selector(constraint.label_selector).narrowed(own)
        counts = placed.counts(frozenset({pod.namespace}), selector)
        fewest = min((counts.get(zone, 0) for zone in strict), default=0)
        if constraint.min_domains is not None and len(strict) < constraint.min_domains:
            fewest = 0
        own_count = 1 if selector.matches(pod.metadata.labels) else 0
        zones = [zone for zone in zones if counts.get(zone, 0) + own_count - fewest <= constraint.max_skew]
    return zones


def _group(term: PodAffinityTerm, pod: Pod, placed: ZonalPods) -> tuple[frozenset[str], Selector]:
    own = match_label_keys(pod.metadata.labels, term.match_label_keys, term.mismatch_label_keys)
    return placed.namespaces(term, pod.namespace), compile_selector(term.label_selector).narrowed(own)


def _near(pod: Pod) -> Sequence[PodAffinityTerm]:
    affinity = pod.spec.affinity
    return affinity.pod_affinity.required if affinity is not None and affinity.pod_affinity is not None else ()


def _apart(pod: Pod) -> Sequence[PodAffinityTerm]:
    affinity = pod.spec.affinity
    return (
        affinity.pod_anti_affinity.required if affinity is not None and affinity.pod_anti_affinity is not None else ()
    )


def _spreads(pod: Pod, rules: LabelRules) -> list[TopologySpreadConstraint]:
    return [
        found
        for found in pod.spec.topology_spread_constraints
        if found.when_unsatisfiable == "DoNotSchedule" and _zonal(found.topology_key, rules)
    ]


def _zonal(key: str, rules: LabelRules) -> bool:
    return rules.normalise(key) == labels.ZONE


def _required_terms(pod: Pod) -> list[list[NodeSelectorRequirement]]:
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return []
    return [list(term.match_expressions) for term in affinity.node_affinity.required.node_selector_terms]


def _allows(alternatives: Sequence[Requirements], zone: str) -> bool:
    return any(found.get_or_exists(labels.ZONE).allows(zone) for found in alternatives)


def zone_counts(snapshot: ClusterSnapshot, pods: Iterable[Pod], rules: LabelRules) -> dict[str, int]:
    """How many of the pods need each zone that some type is offered in, `flexible` and `none` included."""
    types = (kind for pool in snapshot.instance_types.values() for kind in pool)
    zones = sorted({offering.zone for kind in types for offering in kind.offerings if offering.zone})
    counts = dict.fromkeys((*zones, FLEXIBLE, NONE), 0)
    placed = ZonalPods(snapshot)
    # Pods of one workload need the same zone: each shape is looked at once.
    known: dict[tuple[object, ...], str] = {}
    for pod in pods:
        spec = pod.spec
        parts = (spec.node_selector, spec.affinity, spec.topology_spread_constraints)
        members = (pod.namespace, *sorted(pod.metadata.labels.items()))
        grouped = members if has_zonal_terms(pod, rules) else ()
        shape = (*map(id, parts), id(pod) if spec.volumes else 0, *grouped)
        if shape not in known:
            known[shape] = effective_zone(pod, snapshot.volumes, zones, rules, placed)
        counts[known[shape]] += 1
    return counts
