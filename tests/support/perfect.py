"""Consolidation carried out perfectly on a snapshot: pods land as planned, machines come at once, to the end.

The yardstick for what the running program reaches: the same search, to its end, without time, budgets or windows.
"""

from __future__ import annotations

import dataclasses

import msgspec

from pykarpenter.api import labels
from pykarpenter.api.nodepool import Budget, NodePool
from pykarpenter.core.disruption.candidates import World
from pykarpenter.core.disruption.commands import Command, Method
from pykarpenter.core.disruption.decide import decide
from pykarpenter.core.disruption.engine import PackingSimulations
from pykarpenter.core.disruption.settings import DisruptionSettings
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView

GRACEFUL = (Method.EMPTINESS, Method.MULTI_NODE, Method.SINGLE_NODE)


def bill(snapshot: ClusterSnapshot, settings: DisruptionSettings) -> float:
    """$/h of every machine; those of unknown price count nothing."""
    world = World(snapshot, settings)
    return sum(world.price(view) or 0.0 for view in snapshot.nodes if view.claim is not None)


def consolidated(
    snapshot: ClusterSnapshot, packing: PackingSettings, settings: DisruptionSettings, most: int = 500
) -> tuple[ClusterSnapshot, int]:
    """The fleet once the search finds nothing more, and how many commands that took."""
    current = dataclasses.replace(
        snapshot, node_pools=tuple(_open(pool) for pool in snapshot.node_pools), nodes=tuple(_ready(snapshot))
    )
    simulations = PackingSimulations(packing)
    for count in range(most):
        plan = decide(World(current, settings), simulations(current), methods=GRACEFUL)
        if not plan.commands:
            return current, count
        current = carried_out(current, plan.commands[0], f"ideal-{count}")
    raise AssertionError(f"{most} commands and no end")


def _open(pool: NodePool) -> NodePool:
    disruption = msgspec.structs.replace(pool.spec.disruption, budgets=[Budget(nodes="100%")], consolidate_after="0s")
    return msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, disruption=disruption))


def _ready(snapshot: ClusterSnapshot) -> list[NodeView]:
    """Machines that serve, all of them candidates; those on their way in or out are what they will be."""
    found = []
    for view in snapshot.nodes:
        if view.marked_for_deletion or view.claim is None or not view.initialized:
            continue
        conditions = [c for c in view.claim.status.conditions if c.type != "Consolidatable"]
        conditions.append(msgspec.structs.replace(conditions[0], type="Consolidatable", status="True"))
        status = msgspec.structs.replace(view.claim.status, conditions=conditions)
        claim = msgspec.structs.replace(view.claim, status=status)
        found.append(dataclasses.replace(view, claim=claim, nominated_until=0.0))
    return found


def carried_out(snapshot: ClusterSnapshot, command: Command, prefix: str) -> ClusterSnapshot:
    pods = {pod.key: pod for view in snapshot.nodes for pod in view.pods}
    gone = [view for view in snapshot.nodes if view.name in command.nodes]
    staying = {view.name: view for view in snapshot.nodes if view.name not in command.nodes}
    for placement in command.placements:
        view = staying[placement.node]
        arrived = [pods[key] for key in placement.pods if key in pods]
        staying[view.name] = dataclasses.replace(
            view, pods=tuple(sorted((*view.pods, *arrived), key=lambda pod: pod.key))
        )
    for number, claim in enumerate(command.replacements):
        name = f"{prefix}-{number}" if number else prefix
        kind = next(t for t in snapshot.instance_types[claim.node_pool] if t.name == claim.choice.instance_type)
        like = gone[0]
        values = {
            **like.labels,
            labels.NODEPOOL: claim.node_pool,
            labels.INSTANCE_TYPE: kind.name,
            labels.ZONE: claim.choice.zone,
            labels.CAPACITY_TYPE: claim.choice.capacity_type,
            labels.HOSTNAME: name,
        }
        staying[name] = dataclasses.replace(
            like,
            name=name,
            provider_id=f"ideal://{name}",
            labels=values,
            capacity=dict(kind.capacity),
            allocatable=kind.allocatable(),
            pods=tuple(pods[key] for key in sorted(claim.pods) if key in pods),
        )
    return dataclasses.replace(snapshot, nodes=tuple(staying.values()), revision=snapshot.revision + 1)
