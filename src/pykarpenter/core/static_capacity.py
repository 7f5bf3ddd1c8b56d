"""How many machines a static pool needs or has too many of, and which go first.

A static pool holds a number of machines whatever runs on them. Claims that are leaving still count against the node
limit, because their machines exist; claims about to be disrupted count as present, because their replacement will be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.quantity import available_units
from pykarpenter.core.disruption.costs import eviction_cost, lifetime_remaining
from pykarpenter.core.draining import do_not_disrupt, is_active, is_daemon
from pykarpenter.core.snapshot import NodeView

NODES = "nodes"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """How many machines to create now; `limited` says that the node limit allows fewer than are missing."""

    count: int
    limited: bool


def shortfall(pool: NodePool, active: int, pending: int, deleting: int, promised: int) -> Shortfall:
    """`promised` machines are on their way and not visible yet. Raises InvalidQuantity for an unreadable limit."""
    missing = max(0, (pool.spec.replicas or 0) - active - pending - promised)
    limit = pool.spec.limits.get(NODES)
    if limit is None:
        return Shortfall(missing, False)
    room = max(0, available_units(NODES, limit) - active - pending - deleting - promised)
    return Shortfall(min(missing, room), missing > room)


def surplus(
    pool: NodePool,
    machines: Iterable[NodeView],
    now: float,
    managed_deletion_cost: bool = False,
    protect_unparsable: bool = False,
) -> list[NodeView]:
    """The machines to remove, those first that nobody will miss.

    Not launched before empty, empty before the rest, without a protected pod before with one; then by what moving
    their pods costs, weighed by the lifetime they have left; ties by name.
    """
    present = sorted(machines, key=lambda v: _reluctance(v, now, managed_deletion_cost, protect_unparsable))
    excess = len(present) - (pool.spec.replicas or 0)
    return present[: max(0, excess)]


def _reluctance(
    view: NodeView, now: float, managed_deletion_cost: bool, protect_unparsable: bool
) -> tuple[int, float, str]:
    name = view.claim.name if view.claim is not None else view.name
    if view.claim is not None and not view.claim.status.provider_id:
        return 0, 0.0, name
    protected = any(is_active(pod) and do_not_disrupt(pod, now).protects(protect_unparsable) for pod in view.pods)
    workload = [pod for pod in view.pods if not is_daemon(pod)]
    if not workload and not protected:
        return 1, 0.0, name
    cost = math.fsum(eviction_cost(pod, managed_deletion_cost) for pod in workload)
    return 3 if protected else 2, cost * lifetime_remaining(view.claim, now), name
