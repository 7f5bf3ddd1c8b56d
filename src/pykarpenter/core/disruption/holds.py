"""Why a pool's machines are not replaced now: the last replacement failed, or new machines do not register."""

from __future__ import annotations

from pykarpenter.api.meta import find_condition
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.candidates import World
from pykarpenter.core.reasons import Why


def back_off_blocker(world: World, pool_name: str) -> Blocker | None:
    """The pool waits after a replacement that failed."""
    until = world.memory.back_off_until.get(pool_name, 0.0)
    if until <= world.now:
        return None
    message = f'replacements for NodePool "{pool_name}" failed; tried again at {format_timestamp(until)}'
    return Blocker(Why.BACK_OFF, message, (f"NodePool {pool_name}",), until)


def hold_blocker(world: World, pool_name: str) -> Blocker | None:
    """The back-off, or a roll-out that stands still because its new machines never arrive."""
    waiting = back_off_blocker(world, pool_name)
    if waiting is not None:
        return waiting
    pool = world.pools.get(pool_name)
    healthy = find_condition(pool.status.conditions, "NodeRegistrationHealthy") if pool is not None else None
    if healthy is None or healthy.status != "False":
        return None
    message = (
        f'new nodes of NodePool "{pool_name}" fail to register ({healthy.reason}), so the roll-out stops; '
        "it goes on once a node registers or the NodePool or its class changes"
    )
    return Blocker(Why.ROLL_OUT_HALTED, message, (f"NodePool {pool_name}",))
