"""Which pods a ReplicaSet should give up first: those on the nodes that disruption would take next.

Decides the value of `controller.kubernetes.io/pod-deletion-cost` for pods of ReplicaSets, and only ever removes
values that it wrote itself. Ranks are sparse, so that one node more or less does not rewrite them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pykarpenter.api import labels
from pykarpenter.api.duration import NEVER
from pykarpenter.api.meta import OwnerReference
from pykarpenter.api.pods import Pod
from pykarpenter.core.disruption.allowance import Allowances
from pykarpenter.core.disruption.candidates import World, claim_condition, node_blocker
from pykarpenter.core.disruption.commands import DisruptionClass, Reason
from pykarpenter.core.snapshot import NodeView

GOING = -2147483648
# Ours: the value we wrote. A pod whose cost differs from it was set by somebody else and is left alone.
WRITTEN = f"{labels.OWN_GROUP}/pod-deletion-cost-written"
MAX_NODES = 50
# The distance between two ranks, and the values they lie between.
STEP = 1000
_LOWEST_RANK = -2000000000


@dataclass(frozen=True, slots=True)
class CostWrite:
    """One annotation to set, or with None to remove."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    value: int | None


@dataclass(frozen=True, slots=True)
class CostPlan:
    writes: tuple[CostWrite, ...]
    # Nodes left for the next pass, by pool: the cap was reached.
    waiting: tuple[tuple[str, int], ...] = ()


def rank_nodes(world: World) -> tuple[list[NodeView], list[NodeView], list[NodeView]]:
    """Nodes that are going, nodes in the order in which they would go, and nodes that stay."""
    going: list[NodeView] = []
    drifted: list[NodeView] = []
    rest: list[NodeView] = []
    staying: list[NodeView] = []
    for view in _by_savings(world):
        if view.marked_for_deletion or any(taint.key == labels.DISRUPTED_TAINT for taint in view.taints):
            going.append(view)
        elif not _could_go(world, view):
            staying.append(view)
        elif claim_condition(view, "Drifted") == "True":
            drifted.append(view)
        elif world.pools[view.pool_name].spec.disruption.consolidate_after == NEVER:
            staying.append(view)
        else:
            rest.append(view)
    first, late = _within_budget(world, drifted, Reason.DRIFTED)
    second, later = _within_budget(world, rest, Reason.UNDERUTILIZED)
    return going, [*first, *second], [*staying, *late, *later]


def _by_savings(world: World) -> list[NodeView]:
    managed = [view for view in world.nodes if view.managed and view.claim is not None]
    ratios = {view.name: (world.price(view) or 0.0) / world.reschedulable(view)[1] for view in managed}
    return sorted(managed, key=lambda view: (-ratios[view.name], view.name))


def _could_go(world: World, view: NodeView) -> bool:
    """Whether disruption could take the node: its gates, its pods, and a pool that still knows its type."""
    pool = world.pools.get(view.pool_name)
    if pool is None or pool.is_static or node_blocker(view, DisruptionClass.GRACEFUL, world.now) is not None:
        return False
    if world.protection(view) or any(_pins(pod) for pod in view.pods):
        return False
    return view.labels.get(labels.INSTANCE_TYPE, "") in world.types(view.pool_name)


def _within_budget(world: World, views: Iterable[NodeView], reason: Reason) -> tuple[list[NodeView], list[NodeView]]:
    allowances = Allowances(world, reason)
    within: list[NodeView] = []
    over: list[NodeView] = []
    for view in views:
        (within if allowances.spend(view.pool_name) else over).append(view)
    return within, over


def controller_of(pod: Pod) -> OwnerReference | None:
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def is_replica_pod(pod: Pod) -> bool:
    owner = controller_of(pod)
    return owner is not None and (owner.api_version, owner.kind) == ("apps/v1", "ReplicaSet")


def _pins(pod: Pod) -> bool:
    """A pod that ReplicaSets cannot be steered around."""
    owner = controller_of(pod)
    known = (("apps/v1", "ReplicaSet"), ("apps/v1", "DaemonSet"), ("batch/v1", "Job"))
    return pod.namespace != "kube-system" and (owner is None or (owner.api_version, owner.kind) not in known)


def plan_costs(world: World) -> CostPlan:
    """The writes of one pass: going nodes all, then at most fifty of the others, those that go next first."""
    going, ranked, staying = rank_nodes(world)
    writes = [write for view in going for write in _writes(view, GOING)]
    values = _sparse_ranks(ranked)
    left = MAX_NODES
    waiting: dict[str, int] = {}
    for view in [*ranked, *staying]:
        needed = _writes(view, values.get(view.name))
        if not needed:
            continue
        if left <= 0:
            waiting[view.pool_name] = waiting.get(view.pool_name, 0) + 1
            continue
        left -= 1
        writes.extend(needed)
    return CostPlan(tuple(writes), tuple(sorted(waiting.items())))


def _sparse_ranks(ranked: list[NodeView]) -> dict[str, int]:
    """A value for each node, ascending; a node keeps the value its pods carry while that keeps the order."""
    values: dict[str, int] = {}
    floor = _LOWEST_RANK
    for index, view in enumerate(ranked):
        highest = -(len(ranked) - index)
        present = _present(view)
        if present is not None and floor < present <= highest:
            floor = present
        else:
            floor = min(highest, floor + STEP) if floor > _LOWEST_RANK else min(highest, -STEP * (len(ranked) - index))
        values[view.name] = floor
    return values


def _present(view: NodeView) -> int | None:
    """The value we wrote to the node's pods; the smallest when they differ."""
    found = [
        int(text) for pod in view.pods if (text := pod.metadata.annotations.get(WRITTEN, "")).lstrip("-").isdigit()
    ]
    return min((value for value in found if value != GOING), default=None)


def _writes(view: NodeView, value: int | None) -> list[CostWrite]:
    """Only pods of ReplicaSets, only where the value differs, and never over a value that is not ours."""
    found: list[CostWrite] = []
    for pod in view.pods:
        if not is_replica_pod(pod):
            continue
        current = pod.metadata.annotations.get(labels.POD_DELETION_COST)
        written = pod.metadata.annotations.get(WRITTEN)
        if current is not None and current != written:
            continue
        wanted = None if value is None else str(value)
        if current == wanted:
            continue
        meta = pod.metadata
        found.append(CostWrite(meta.namespace, meta.name, meta.uid, meta.resource_version, value))
    return found


def clean_up(views: Iterable[NodeView]) -> list[CostWrite]:
    """What to remove once the gate is off: only our own values."""
    return [write for view in views for write in _writes(view, None)]
