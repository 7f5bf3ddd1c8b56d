"""How many machines of each pool may be disturbed now: its budgets less what is already going, rebooting or sick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pykarpenter.api.nodepool import NodePool
from pykarpenter.core.budgets import PoolNodes, allowed_disruptions, count_nodes
from pykarpenter.core.disruption.blockers import Blocker, Notice
from pykarpenter.core.disruption.candidates import World
from pykarpenter.core.disruption.commands import Reason
from pykarpenter.core.reasons import Why


@dataclass(frozen=True, slots=True)
class PoolAllowance:
    """One pool's numbers for one reason."""

    pool: str
    reason: Reason
    total: int
    allowed: int
    consumed: int

    @property
    def usable(self) -> int:
        return max(0, self.allowed - self.consumed)

    def blocker(self) -> Blocker:
        message = f"no allowed disruptions for disruption reason {self.reason} due to blocking budget"
        if self.allowed > 0:
            message += f" ({self.consumed} of {self.allowed} in use)"
        return Blocker(Why.BUDGET, message, (f"NodePool {self.pool}",))


class Allowances:
    """Usable disruptions for one reason, spent as a method picks its machines."""

    def __init__(self, world: World, reason: Reason) -> None:
        self.reason = reason
        nodes = pool_nodes(world)
        self.pools = {name: pool_allowance(world, pool, reason, nodes) for name, pool in sorted(world.pools.items())}
        self._left = {name: allowance.usable for name, allowance in self.pools.items()}

    def usable(self, pool: str) -> int:
        return self._left.get(pool, 0)

    def spend(self, pool: str) -> bool:
        """Take one; False when the pool has none left."""
        if self.usable(pool) <= 0:
            return False
        self._left[pool] -= 1
        return True

    def notices(self) -> list[Notice]:
        """An event for each pool whose budgets allow nothing although it has machines."""
        return [
            Notice("NodePool", a.pool, "DisruptionBlocked", a.blocker().text(), window_s=60.0)
            for a in self.pools.values()
            if a.total > 0 and a.allowed == 0
        ]


def pool_allowance(world: World, pool: NodePool, reason: Reason, counted: Mapping[str, PoolNodes]) -> PoolAllowance:
    nodes = counted.get(pool.name, PoolNodes())
    allowed = allowed_disruptions(pool, nodes.total, world.now)[reason]
    return PoolAllowance(pool.name, reason, nodes.total, allowed, nodes.consumed(reason))


def pool_nodes(world: World) -> Mapping[str, PoolNodes]:
    """Each pool's machines as budgets count them.

    Machines of commands that are starting or waiting for their validation count as going, so that two methods never
    spend the same allowance.
    """
    held = world.memory.in_flight
    return count_nodes(replace(v, marked_for_deletion=True) if v.name in held else v for v in world.nodes)
