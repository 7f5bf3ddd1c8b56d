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
from pykarpenter.core.disruption.settings import DisruptionSettings
from pykarpenter.core.repair import RepairRules


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
    settings = disruption_settings(ctx)
    loop = DisruptionLoop(ctx, settings, source, queue, starter, healing, reports, back_off)
    costs = PodDeletionCosts(ctx, settings)
    return [loop, queue, costs, CostQueue(costs), FleetGap(ctx, settings, loop)]


def disruption_settings(ctx: Context) -> DisruptionSettings:
    """What of the settings and the provider a disruption decision needs."""
    settings, traits = ctx.settings, ctx.provider.traits
    gates = settings.feature_gates
    repairs = gates.node_repair and not settings.legacy_node_repair
    return DisruptionSettings(
        spot_to_spot=gates.spot_to_spot_consolidation,
        node_repair=repairs,
        terminate_first_drift=gates.terminate_first_drift,
        terminate_first_repair=gates.terminate_first_repair,
        pod_deletion_cost=gates.pod_deletion_cost_management,
        protect_unparsable=settings.protect_unparsable_do_not_disrupt,
        min_values_policy=settings.min_values_policy,
        min_saving=settings.min_saving,
        eviction_price=settings.eviction_price,
        best_sets=settings.consolidation_search == "best",
        many_replacements=settings.consolidation_replacements == "many",
        reservation_id_label=traits.reservation_id_label,
        label_rules=traits.label_rules,
        managed_class_kinds=frozenset((kind.group, kind.kind) for kind in traits.node_classes),
        repair=RepairRules(traits.repair_policies) if repairs else None,
    )
