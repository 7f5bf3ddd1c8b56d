"""However events arrive, the state ends where a fresh one would that only saw the end (F24, S12, S15)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pykarpenter.core.snapshot import NodeView
from pykarpenter.state.cluster import ClusterState

from .world import claim, cluster, delete, node, observe, pod, pool

STAGES = ("joined", "registered", "initialized")


def described(view: NodeView) -> tuple[Any, ...]:
    return (
        view.name,
        view.provider_id,
        view.claim.name if view.claim else None,
        view.node.name if view.node else None,
        dict(view.labels),
        view.taints,
        view.capacity,
        view.allocatable,
        [found.key for found in view.pods],
        (view.managed, view.registered, view.initialized, view.marked_for_deletion, view.rebooting),
    )


def picture(state: ClusterState) -> dict[str, Any]:
    taken = state.snapshot(0.0)
    return {
        "nodes": [described(view) for view in taken.nodes],
        "pods": [found.key for found in taken.pods],
        "usage": {name: state.usage(name) for name in ("pool", "other")},
        "resources": {name: state.pool_resources(name) for name in ("pool", "other")},
        "claims": {name: state.pool_claims(name) for name in ("pool", "other")},
        "synced": state.is_synced(),
    }


class Story:
    """Random but legal changes: objects come, change, share identities, go."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.objects: dict[str, Any] = {"pool": pool(cpu="100"), "other": pool("other")}

    def step(self) -> tuple[str, Any]:
        """A key and its new object, None for a deletion."""
        what = self.chance.choice(("claim", "node", "pod", "pod", "gone"))
        number = self.chance.randrange(6)
        if what == "gone" and not self.objects:
            what = "pod"
        if what == "gone":
            key = self.chance.choice(sorted(self.objects))
            return key, None
        return getattr(self, what)(number)

    def claim(self, number: int) -> tuple[str, Any]:
        chance = self.chance
        launched = chance.random() < 0.7
        # Sometimes two claims have one providerID.
        target = number if chance.random() < 0.9 else 0
        made = claim(
            f"c{number}",
            pool=chance.choice(("pool", "other")),
            provider_id=f"kwok://n{target}" if launched else "",
            promised='{"cpu": "8", "nodes": "1"}' if chance.random() < 0.5 else "",
            deleting=chance.random() < 0.2,
            conditions={"Rebooting": "True"} if chance.random() < 0.1 else {},
        )
        return f"claim/{made.name}", made

    def node(self, number: int) -> tuple[str, Any]:
        chance = self.chance
        target = number if chance.random() < 0.9 else 0
        made = node(
            f"n{number}",
            pool=chance.choice(("pool", "pool", "")),
            stage=chance.choice(STAGES),
            provider_id=f"kwok://n{target}" if chance.random() < 0.9 else "",
            taints=[{"key": "team", "effect": "NoSchedule"}] if chance.random() < 0.3 else [],
            deleting=chance.random() < 0.1,
        )
        return f"node/{made.name}", made

    def pod(self, number: int) -> tuple[str, Any]:
        chance = self.chance
        bound = f"n{chance.randrange(6)}" if chance.random() < 0.6 else ""
        phase = chance.choice(("Pending", "Running", "Running", "Succeeded"))
        return f"pod/p{number}", pod(f"p{number}", bound, phase=phase)


@pytest.mark.parametrize("seed", range(60))
def test_state_after_any_history_equals_a_fresh_one(seed: int) -> None:
    story = Story(seed)
    state = cluster(*story.objects.values())
    for number in range(80):
        key, new = story.step()
        old = story.objects.get(key)
        if new is None:
            story.objects.pop(key)
            delete(state, old)
        else:
            story.objects[key] = new
            observe(state, new)
            if story.chance.random() < 0.1:
                observe(state, new)
        if number % 7 == 0:
            # Looking in between must not change what is seen at the end.
            state.snapshot(0.0)
        if number % 5 == 0:
            state.describe_some(1)
    order = list(story.objects.values())
    story.chance.shuffle(order)
    assert picture(state) == picture(cluster(*order))


@pytest.mark.parametrize("seed", range(20))
def test_usage_is_the_sum_of_what_the_views_count_for(seed: int) -> None:
    """Running sums must not drift from what they sum (S1)."""
    story = Story(1000 + seed)
    state = cluster(*story.objects.values())
    for _ in range(120):
        key, new = story.step()
        old = story.objects.pop(key, None)
        if new is not None:
            story.objects[key] = new
        delete(state, old) if new is None else observe(state, new)
        for name in ("pool", "other"):
            counted = [view for view in state.views() if view.pool_name == name and not view.marked_for_deletion]
            assert state.usage(name).get("cpu", 0) == sum(view.capacity.get("cpu", 0) for view in counted)
            assert state.usage(name).get("nodes", 0) == len(counted)
