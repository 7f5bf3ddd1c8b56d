"""The controllers of provisioning, put together; the operator runs what this returns."""

from __future__ import annotations

from pykarpenter.controllers.buffers import CapacityBuffers
from pykarpenter.controllers.context import Context, Runnable
from pykarpenter.controllers.provisioning.batcher import Batcher
from pykarpenter.controllers.provisioning.creation import ClaimCreator
from pykarpenter.controllers.provisioning.provisioner import Pack, Provisioner
from pykarpenter.controllers.provisioning.purchases import Purchases
from pykarpenter.controllers.provisioning.triggers import NodeTrigger, PodTrigger
from pykarpenter.controllers.provisioning.unconfirmed import UnconfirmedClaims
from pykarpenter.core.packing import PackingEngine


def provisioning_controllers(ctx: Context, pack: Pack | None = None) -> list[Runnable]:
    """Without `pack`, an engine of their own that keeps its tables warm from plan to plan."""
    batcher = Batcher(ctx.clock, idle_s=ctx.settings.batch_idle_duration, max_s=ctx.settings.batch_max_duration)
    times, purchases = ctx.pod_times, Purchases()
    gated: list[Runnable] = []
    if ctx.settings.feature_gates.capacity_buffer:
        gated.append(CapacityBuffers(ctx, batcher.trigger))
    return [
        *gated,
        PodTrigger(ctx, batcher, times, purchases),
        NodeTrigger(ctx, batcher),
        Provisioner(ctx, batcher, times, purchases, ClaimCreator(ctx), pack or PackingEngine().pack),
        UnconfirmedClaims(ctx),
    ]
