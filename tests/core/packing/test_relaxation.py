"""Preferences are given up one at a time, in Karpenter's order."""

from __future__ import annotations

import pytest

from pykarpenter.api import labels
from pykarpenter.api.pods import Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, PodAffinity, PodSpec
from pykarpenter.core.packing.shapes import ladder, wishes_of
from tests.core.packing.support import allowed, plan_of
from tests.support.builders import (
    affinity_term,
    expression,
    make_pod,
    preferred_terms,
    required_terms,
    spread,
    weighted,
)


@pytest.mark.promise("SCH-5.1")
def test_required_terms_are_alternatives() -> None:
    """The first term that works is taken."""
    nowhere = [expression(labels.ZONE, "In", "moon")]
    somewhere = [expression(labels.ZONE, "In", "zone-b")]
    plan = plan_of([make_pod(affinity=required_terms(nowhere, somewhere))])
    assert plan.claims[0].choice.zone == "zone-b"
    assert plan_of([make_pod(affinity=required_terms(nowhere, nowhere))]).unschedulable


@pytest.mark.promise("SCH-5.3")
def test_the_heaviest_preference_counts_as_required_first() -> None:
    """A wish that can be met is met."""
    wishes = preferred_terms(
        (1, [expression(labels.ZONE, "In", "zone-a")]), (9, [expression(labels.ZONE, "In", "zone-c")])
    )
    assert allowed(plan_of([make_pod(affinity=wishes)]), 0, labels.ZONE) == ["zone-c"]
    hopeless = preferred_terms(
        (9, [expression(labels.ZONE, "In", "moon")]), (1, [expression(labels.ZONE, "In", "zone-a")])
    )
    assert allowed(plan_of([make_pod(affinity=hopeless)]), 0, labels.ZONE) == ["zone-a"]


@pytest.mark.promise("SCH-5.2")
def test_the_ladder_has_karpenters_order() -> None:
    """Each rung gives up exactly one thing."""
    term = affinity_term(labels.ZONE, {"app": "web"})
    spec = PodSpec(
        affinity=Affinity(
            node_affinity=NodeAffinity(
                required=NodeSelector(node_selector_terms=[NodeSelectorTerm(), NodeSelectorTerm()]),
                preferred=preferred_terms((1, [expression("a", "Exists")])).node_affinity.preferred,  # type: ignore[union-attr]
            ),
            pod_affinity=PodAffinity(preferred=[weighted(term)]),
            pod_anti_affinity=PodAffinity(preferred=[weighted(term, 1), weighted(term, 5)]),
        ),
        topology_spread_constraints=[
            spread("a", {}, when_unsatisfiable="ScheduleAnyway"),
            spread("b", {}),
            spread("c", {}, when_unsatisfiable="ScheduleAnyway"),
        ],
    )
    rungs = list(ladder(wishes_of(spec), tolerate_preferences=True))
    assert [given_up for _, given_up in rungs] == [
        "",
        "required node affinity term",
        "preferred pod affinity",
        "preferred pod anti-affinity",
        "preferred pod anti-affinity",
        "preferred node affinity",
        "ScheduleAnyway topology spread",
        "ScheduleAnyway topology spread",
        "PreferNoSchedule taints",
    ]
    assert [w.weight for w in rungs[3][0].preferred_anti_affinity] == [1]
    assert [c.topology_key for c in rungs[6][0].spread] == ["c", "b"]
    assert [c.topology_key for c in rungs[7][0].spread] == ["b"]
