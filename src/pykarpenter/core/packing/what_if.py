"""What would happen if machines went: the question disruption asks, many times over one snapshot.

The base is built once; a question only masks rows of its tables. Pending pods, virtual pods and pods of machines that
are already going take part in every question, as they will in reality.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from pykarpenter.api.pods import Pod
from pykarpenter.core.packing.care import FALLBACK
from pykarpenter.core.packing.eligibility import is_provisionable, leaving_pods
from pykarpenter.core.packing.engine import Decision, PackingEngine, ReservationOptions
from pykarpenter.core.packing.node_table import NodeTable, keys_of
from pykarpenter.core.packing_settings import PackingSettings, ShouldStop, never_stop
from pykarpenter.core.plans import ExistingPlacement, LaunchPlan
from pykarpenter.core.reasons import Refusal, Why
from pykarpenter.core.snapshot import ClusterSnapshot

_FALL_BACK = ReservationOptions(FALLBACK)


@dataclass(frozen=True, slots=True)
class WhatIfOptions:
    """How a question is asked."""

    reservations: ReservationOptions = field(default_factory=lambda: _FALL_BACK)
    # Machines inside their quiet period: displaced pods that run may not use them, all others may.
    closed: frozenset[str] = frozenset()
    # Displaced pods that would wait for a machine which is not initialized count as without a place.
    refuse_uninitialized: bool = True
    # Reasons in full cost more than the answer; without them a refusal only says that there is no place.
    explain: bool = False
    # Look for the cheapest mix of new machines, as provisioning would; otherwise first fit answers.
    cheapest_mix: bool = False


class WhatIfBase:
    """One snapshot, made ready for questions."""

    def __init__(
        self, snapshot: ClusterSnapshot, settings: PackingSettings, engine: PackingEngine | None = None
    ) -> None:
        self.engine = engine or PackingEngine()
        self.snapshot = snapshot
        # A consolidation is judged by what scheduling would certainly find, without the search for cheaper mixes.
        self.settings = replace(settings, effort="off")
        # Few pods move at a time; only the most effort looks at how a handful could be split.
        self.thorough = replace(settings, effort="thorough")
        self.pending = [pod for pod in snapshot.pods if is_provisionable(pod)]
        self.leaving = leaving_pods(snapshot)
        self.nodes: NodeTable = self.engine.node_table(snapshot, self.settings, keys_of(self.leaving))
        self.uninitialized = frozenset(view.name for view in snapshot.nodes if not view.initialized)


def what_if(
    base: WhatIfBase,
    removed: Collection[str],
    pods: Sequence[Pod],
    options: WhatIfOptions | None = None,
    should_stop: ShouldStop = never_stop,
) -> LaunchPlan:
    """The plan if the machines named `removed` were gone and `pods` needed a place besides all that do anyway."""
    asked = options or WhatIfOptions()
    displaced = keys_of(pods)
    nodes = base.nodes.without(removed, displaced, asked.closed)
    settings = base.thorough if asked.cheapest_mix else base.settings
    decision = Decision(base.engine, base.snapshot, settings, should_stop, asked.reservations, asked.explain)
    # A pod that has not started yet loses nothing by a machine that is still settling.
    moving = [pod for pod in pods if pod.status.phase != "Pending"]
    starting = [pod for pod in pods if pod.status.phase == "Pending"]
    plan = decision.plan_on(nodes, base.pending, [*base.leaving, *starting], moving)
    if not asked.refuse_uninitialized:
        return plan
    return _without_uninitialized(plan, displaced, base.uninitialized)


def _without_uninitialized(plan: LaunchPlan, displaced: frozenset[str], uninitialized: frozenset[str]) -> LaunchPlan:
    existing: list[ExistingPlacement] = []
    refused = dict(plan.unschedulable)
    for placement in plan.existing:
        if placement.node not in uninitialized:
            existing.append(placement)
            continue
        for key in placement.pods:
            if key in displaced:
                message = f"would schedule against uninitialized node {placement.node}"
                refused[key] = Refusal(Why.NODE_NOT_INITIALIZED, message)
        kept = tuple(key for key in placement.pods if key not in displaced)
        if kept:
            existing.append(ExistingPlacement(placement.node, kept))
    return replace(plan, existing=tuple(existing), unschedulable=refused)
