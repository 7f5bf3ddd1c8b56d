"""The controllers of disruption, put together; the operator runs what this returns."""

from __future__ import annotations

from pykarpenter.controllers.context import Context, Runnable
from pykarpenter.controllers.disruption.back_off import PoolBackOff
from pykarpenter.controllers.disruption.gap import FleetGap
from pykarpenter.controllers.disruption.healing import SelfHeal
from pykarpenter.controllers.disruption.live import LiveFacts
from pykarpenter.controllers.disruption.loop import DisruptionLoop
from pykarpenter.controllers.disruption.marking import Marking
from pykarpenter.controllers.disruption.orchestration import Orchestration
from pykarpenter.controllers.disruption.pod_costs import CostQueue, PodDeletionCosts
from pykarpenter.controllers.disruption.reports import Reports
from pykarpenter.controllers.disruption.starting import Starter
from pykarpenter.core.disruption.engine import PackingSimulations, SimulationSource


def disruption_controllers(ctx: Context, simulations: SimulationSource | None = None) -> list[Runnable]:
    """Raises InvalidPolicies when node repair is on and the provider's policies cannot be used."""
    live = LiveFacts(ctx)
    marking = Marking(ctx, live)
    reports = Reports(ctx)
    back_off = PoolBackOff(ctx)
    queue = Orchestration(ctx, live, marking, reports, back_off)
    starter = Starter(ctx, live, marking, queue, reports)
    healing = SelfHeal(ctx, marking)
    source = simulations or PackingSimulations(ctx.settings.packing(ctx.provider.traits))
    settings = ctx.settings.disruption(ctx.provider.traits)
    loop = DisruptionLoop(ctx, settings, source, queue, starter, healing, reports, back_off)
    costs = PodDeletionCosts(ctx, settings)
    return [loop, queue, costs, CostQueue(costs), FleetGap(ctx, settings, loop)]
