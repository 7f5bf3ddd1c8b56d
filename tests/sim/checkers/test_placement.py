"""S13: whoever consolidates without asking where the pods would go is noticed."""

from __future__ import annotations

import dataclasses

import pytest

from pykarpenter.core.disruption import consolidation, validation
from pykarpenter.sim.checkers import placement
from pykarpenter.sim.checkers.placement import PlacementChecker
from pykarpenter.sim.faults.stories import Step, Story
from pykarpenter.sim.faults.world import run_story

# Services that came one after another have a machine each; smaller, they share fewer, but never none.
SHRINKING = Story(
    12,
    (
        Step(1.0, "pool", {"name": "general", "limit": 0}),
        *(
            Step(3.0 + 100 * n, "deploy", {"name": f"app-{n}", "replicas": 6, "cpu": "1", "memory": "1Gi"})
            for n in range(3)
        ),
        *(Step(600.0, "scale", {"name": f"app-{n}", "to": 2}) for n in range(3)),
    ),
    gates="SpotToSpotConsolidation=true",
)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many decisions something could be said about, of each world in turn."""
    counts: list[int] = []
    judge = PlacementChecker._judge

    def counted(self, going):
        counts.append(len(going))
        judge(self, going)

    monkeypatch.setattr(PlacementChecker, "_judge", counted)
    return counts


def test_s13_without_asking_where_pods_go_the_checkers_fail(monkeypatch: pytest.MonkeyPatch, judged):
    """Every simulation answers that all pods fit on the machines that stay."""
    outcome = run_story(SHRINKING)
    assert outcome.is_good, [str(v) for v in outcome.violations]
    assert judged, "a world in which nothing is judged proves nothing"
    simulate = consolidation.simulate

    def careless(*args, **kwargs):
        return dataclasses.replace(simulate(*args, **kwargs), claims=(), errors={})

    for asking in (consolidation, validation):
        monkeypatch.setattr(asking, "simulate", careless)
    # Whoever is careless never lets the world become quiet; nothing is late in this one.
    monkeypatch.setattr(placement, "MEMORY_S", 0.0)
    broken = [v for v in run_story(SHRINKING).violations if "no room elsewhere" in str(v)]
    assert broken and broken[0].invariant == "S13"
