"""All controllers of a machine's life, put together; the operator runs what this returns."""

from __future__ import annotations

from pykarpenter.cloud.overlaid import OverlaidProvider
from pykarpenter.controllers.context import Context, Runnable
from pykarpenter.controllers.node.eviction import EvictionQueue
from pykarpenter.controllers.node.legacy_repair import LegacyRepair
from pykarpenter.controllers.node.termination import NodeTermination
from pykarpenter.controllers.nodeclaim.consistency import Consistency
from pykarpenter.controllers.nodeclaim.disruption import NodeClaimDisruption
from pykarpenter.controllers.nodeclaim.expiration import Expiration
from pykarpenter.controllers.nodeclaim.garbage import GarbageCollection
from pykarpenter.controllers.nodeclaim.hydration import ClaimHydration, NodeHydration
from pykarpenter.controllers.nodeclaim.interruption import Interruptions
from pykarpenter.controllers.nodeclaim.lifecycle import NodeClaimLifecycle
from pykarpenter.controllers.nodeclaim.nomination import PodNominations
from pykarpenter.controllers.nodeclaim.podevents import PodEvents
from pykarpenter.controllers.nodeclaim.reboot import Reboots
from pykarpenter.controllers.overlays import NodeOverlays
from pykarpenter.controllers.static.deprovisioning import StaticDeprovisioning
from pykarpenter.controllers.static.provisioning import StaticProvisioning


def machine_controllers(ctx: Context) -> list[Runnable]:
    """Each works until it is cancelled; they share the eviction queue."""
    evictions, nominations = EvictionQueue(ctx), PodNominations(ctx)
    gated: list[Runnable] = []
    if ctx.settings.feature_gates.node_repair and ctx.settings.legacy_node_repair:
        gated.append(LegacyRepair(ctx))
    if isinstance(ctx.provider, OverlaidProvider):
        gated.append(NodeOverlays(ctx, ctx.provider))
    if ctx.settings.feature_gates.static_capacity:
        gated += [StaticProvisioning(ctx), StaticDeprovisioning(ctx)]
    return [
        NodeClaimLifecycle(ctx, nominations),
        nominations,
        NodeTermination(ctx, evictions),
        evictions,
        Reboots(ctx, evictions),
        NodeClaimDisruption(ctx),
        Expiration(ctx),
        GarbageCollection(ctx),
        Consistency(ctx),
        PodEvents(ctx),
        ClaimHydration(ctx),
        NodeHydration(ctx),
        Interruptions(ctx),
        *gated,
    ]
