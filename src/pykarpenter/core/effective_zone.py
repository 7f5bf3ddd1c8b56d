"""The one zone that a waiting pod needs, as far as its own strict terms and its volumes say.

A pod that spreads over zones or follows others is `flexible` here: which zone it needs changes with every placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pykarpenter.api import labels
from pykarpenter.api.labels import LabelRules
from pykarpenter.api.pods import NodeSelectorRequirement, Pod
from pykarpenter.core.requirements import Requirements, from_expressions, from_labels
from pykarpenter.core.snapshot import VolumeObjects
from pykarpenter.core.volumes import VolumeLookupError, volume_demand

FLEXIBLE, NONE = "flexible", "none"


def effective_zone(pod: Pod, volumes: VolumeObjects, zones: Iterable[str], rules: LabelRules) -> str:
    """The zone's name when only one of `zones` is left, `none` when none is, else `flexible`."""
    try:
        of_volumes = volume_demand(pod, volumes, rules).alternatives
        selected = from_labels(pod.spec.node_selector, rules)
        if labels.ZONE not in selected and not _required_terms(pod) and not of_volumes:
            return FLEXIBLE
        own = [from_expressions(term, rules) for term in _required_terms(pod)]
    except (VolumeLookupError, ValueError):
        # Volumes that cannot be looked up and terms that cannot be read: the pod fits nowhere.
        return NONE
    terms = [selected.merged(term.values()) for term in own] or [selected]
    left = [zone for zone in zones if _allows(terms, zone) and (not of_volumes or _allows(of_volumes, zone))]
    if not left:
        return NONE
    return left[0] if len(left) == 1 else FLEXIBLE


def _required_terms(pod: Pod) -> list[list[NodeSelectorRequirement]]:
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return []
    return [list(term.match_expressions) for term in affinity.node_affinity.required.node_selector_terms]


def _allows(alternatives: Sequence[Requirements], zone: str) -> bool:
    return any(found.get_or_exists(labels.ZONE).allows(zone) for found in alternatives)
