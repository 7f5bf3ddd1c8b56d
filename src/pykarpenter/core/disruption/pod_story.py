"""Why a pod waits for a machine, or whether the one it runs on may be taken from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pykarpenter.api.pods import Pod
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.candidates import World
from pykarpenter.core.disruption.costs import eviction_cost
from pykarpenter.core.disruption.stories import blocker_details, blocker_values
from pykarpenter.core.draining import (
    do_not_disrupt,
    is_daemon,
    is_mirror,
    is_reschedulable,
    is_returning,
    matching_budgets,
)
from pykarpenter.core.plans import LaunchPlan
from pykarpenter.core.reasons import Refusal


@dataclass(frozen=True, slots=True)
class PodStory:
    pod: str
    # Where it runs; empty while it waits.
    node: str = ""
    # What keeps its machine from being disrupted because of this pod.
    blockers: tuple[Blocker, ...] = ()
    budgets: tuple[str, ...] = ()
    eviction_cost: float = 1.0
    moves: bool = True
    # While it waits: the machine planned for it, or why there is none.
    planned: str = ""
    refusal: Refusal | None = None
    note: str = ""


def explain_pod(world: World, key: str, plan: Callable[[], LaunchPlan]) -> PodStory | None:
    """The pod's story; None when the snapshot has no such pod. `plan` is asked only for a pod that waits."""
    for view in world.nodes:
        for pod in (*view.pods, *view.returning):
            if pod.key == key:
                return _running(world, pod, view.name)
    waiting = next((pod for pod in world.snapshot.pods if pod.key == key), None)
    return _waiting(world, waiting, plan()) if waiting is not None else None


def _running(world: World, pod: Pod, node: str) -> PodStory:
    found = [world.pod_protection(pod), world.pdb_protection(pod)]
    state = do_not_disrupt(pod, world.now)
    note = ""
    if state.value and not state.protects(world.settings.protect_unparsable):
        note = f'karpenter.sh/do-not-disrupt: "{state.value}" protects nothing ({state.form})'
    elif is_returning(pod):
        note = "it has ended and its StatefulSet makes it anew, so room is planned for it"
    elif is_daemon(pod) or is_mirror(pod):
        note = "the pod belongs to its node and needs no room elsewhere"
    return PodStory(
        pod=pod.key,
        node=node,
        blockers=tuple(blocker for blocker in found if blocker is not None),
        budgets=tuple(budget.key for budget in matching_budgets(pod, world.pdbs(pod.namespace))),
        eviction_cost=eviction_cost(pod, world.settings.pod_deletion_cost),
        moves=is_reschedulable(pod),
        note=note,
    )


def _waiting(world: World, pod: Pod, plan: LaunchPlan) -> PodStory:
    cost = eviction_cost(pod, world.settings.pod_deletion_cost)
    for claim in plan.claims:
        if pod.key in claim.pods:
            kind = f"{claim.choice.instance_type}/{claim.choice.capacity_type}"
            return PodStory(pod.key, eviction_cost=cost, planned=f"a new {kind} of NodePool {claim.node_pool}")
    for placement in plan.existing:
        if pod.key in placement.pods:
            return PodStory(pod.key, eviction_cost=cost, planned=f"{placement.node}, which has room")
    left_out = {**plan.ignored, **plan.deferred, **plan.unschedulable}
    note = "" if pod.key in left_out else "the scheduler has not given up on it, so no machine is planned for it"
    return PodStory(pod.key, eviction_cost=cost, refusal=left_out.get(pod.key), note=note)


def pod_lines(story: PodStory) -> list[str]:
    lines = [f"Pod {story.pod}"]
    if story.node:
        lines.append(f"  runs on {story.node}; moving it costs {story.eviction_cost:.2f}")
    elif story.planned:
        lines.append(f"  waits, and would get {story.planned}")
    elif story.refusal is not None:
        lines.append(f"  waits: {story.refusal.message} [{story.refusal.why}]")
        for pool in story.refusal.pools:
            lines.append(f"    nodepool {pool.pool}: {pool.message}")
            lines.extend(f"      {step} left out {count} instance types" for step, count in pool.removed if count)
    for blocker in story.blockers:
        lines.append(f"  keeps its node from being disrupted: {blocker.text()} [{blocker.why}]")
        lines.extend(f"    {extra}" for extra in blocker_details(blocker))
    if story.budgets and not story.blockers:
        lines.append(f"  under PodDisruptionBudget {', '.join(story.budgets)}, which lets it go now")
    if story.note:
        lines.append(f"  {story.note}")
    if story.node and not story.blockers:
        lines.append("  does not keep its node from being disrupted")
    return lines


def pod_values(story: PodStory) -> dict[str, Any]:
    return {
        "pod": story.pod,
        "node": story.node,
        "planned": story.planned,
        "refusal": None
        if story.refusal is None
        else {
            "why": str(story.refusal.why),
            "message": story.refusal.text(),
            "nodePools": [
                {"nodePool": pool.pool, "why": str(pool.why), "message": pool.message} for pool in story.refusal.pools
            ],
        },
        "blockers": [blocker_values(blocker) for blocker in story.blockers],
        "podDisruptionBudgets": list(story.budgets),
        "evictionCost": story.eviction_cost,
        "note": story.note,
    }
