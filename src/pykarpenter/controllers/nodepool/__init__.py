"""Everything that happens to a NodePool besides launching from it: conditions, hash, counts, warnings."""

from __future__ import annotations

from pykarpenter.controllers.context import Context, Runnable
from pykarpenter.controllers.nodepool.counter import PoolCounter
from pykarpenter.controllers.nodepool.deletion import PoolDeletion
from pykarpenter.controllers.nodepool.hash import PoolHash
from pykarpenter.controllers.nodepool.instance_types import PoolInstanceTypes
from pykarpenter.controllers.nodepool.readiness import PoolReadiness
from pykarpenter.controllers.nodepool.registration_health import PoolRegistrationHealth
from pykarpenter.controllers.nodepool.validation import PoolValidation


def nodepool_controllers(ctx: Context) -> list[Runnable]:
    """Each works until it is cancelled."""
    return [
        PoolValidation(ctx),
        PoolReadiness(ctx),
        PoolHash(ctx),
        PoolCounter(ctx),
        PoolInstanceTypes(ctx),
        PoolRegistrationHealth(ctx),
        PoolDeletion(ctx),
    ]
