"""The packing engine as disruption's `Simulation`: each question is one packing of a slightly different cluster.

Tables of instance types and machines stay warm between questions. The plain first-fit order answers, without the
search for cheaper mixes, unless a question with several replacements asks for it: a consolidation is judged by what
scheduling would certainly find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pykarpenter.core.disruption.simulation import Answer, Question, Simulation, SimulationError
from pykarpenter.core.packing.care import FALLBACK, STRICT
from pykarpenter.core.packing.engine import PackingEngine, ReservationOptions
from pykarpenter.core.packing.fleet_view import FleetView, Movable, fleet_view
from pykarpenter.core.packing.templates import dynamic_pools, idle_pools
from pykarpenter.core.packing.what_if import WhatIfBase, WhatIfOptions, what_if
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.snapshot import ClusterSnapshot

SimulationSource = Callable[[ClusterSnapshot], Simulation]

# Pools that are named when none can launch anything; more help nobody.
_NAMED = 5


class PackingSimulations:
    """Prepares the engine for one snapshot after another."""

    def __init__(self, settings: PackingSettings) -> None:
        self._settings = settings
        self._engine = PackingEngine()

    def __call__(self, snapshot: ClusterSnapshot) -> Simulation:
        return EngineSimulation(self._engine, snapshot, self._settings)


class EngineSimulation:
    """One snapshot, prepared once; each question only masks the machines that are asked about."""

    def __init__(self, engine: PackingEngine, snapshot: ClusterSnapshot, settings: PackingSettings) -> None:
        self._base = WhatIfBase(snapshot, settings, engine)
        self._obstacle = "" if dynamic_pools(snapshot, settings) else _no_pool(snapshot, settings)

    def ask(self, question: Question) -> Answer:
        if self._obstacle:
            raise SimulationError(self._obstacle)
        reservations = (
            ReservationOptions(STRICT, {question.credit: 1}) if question.credit else ReservationOptions(FALLBACK)
        )
        options = WhatIfOptions(
            reservations,
            question.closed,
            refuse_uninitialized=False,
            explain=True,
            cheapest_mix=question.cheapest_mix,
        )
        plan = what_if(self._base, question.removed, question.pods, options, question.should_stop)
        failed = {key: refusal.text() for key, refusal in (*plan.unschedulable.items(), *plan.deferred.items())}
        failed.update({key: refusal.text() for key, refusal in plan.ignored.items()})
        return Answer(plan.claims, plan.existing, failed)

    def fleet(self, movable: Sequence[Movable], closed: frozenset[str]) -> FleetView | None:
        return fleet_view(self._base, movable, closed)


def _no_pool(snapshot: ClusterSnapshot, settings: PackingSettings) -> str:
    """Why nothing can be said about any placement, with what is in the way of each pool."""
    idle = [f'nodepool "{item.pool}" {item.message}' for item in idle_pools(snapshot, settings)[:_NAMED]]
    text = "no NodePool can provision: none is dynamic, Ready and not being deleted"
    return f"{text} ({'; '.join(idle)})" if idle else text
