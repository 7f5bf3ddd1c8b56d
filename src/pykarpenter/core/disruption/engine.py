"""The packing engine as disruption's `Simulation`: each question is one packing of a slightly different cluster.

Tables of instance types and machines stay warm between questions. The plain first-fit order answers, without the
search for cheaper mixes: a consolidation is judged by what scheduling would certainly find.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import msgspec

from pykarpenter.api import labels
from pykarpenter.api.nodes import Taint
from pykarpenter.api.pods import Pod, Toleration
from pykarpenter.core.disruption.simulation import Answer, Question, Simulation, SimulationError
from pykarpenter.core.packing.care import FALLBACK, STRICT
from pykarpenter.core.packing.eligibility import is_provisionable, leaving_pods
from pykarpenter.core.packing.engine import Decision, PackingEngine, ReservationOptions
from pykarpenter.core.packing.templates import dynamic_pools
from pykarpenter.core.packing_settings import PackingSettings, never_stop
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView

SimulationSource = Callable[[ClusterSnapshot], Simulation]

# Stands for "only pods that need a place anyway": it exists on no object of any cluster.
_CLOSED = Taint(key=f"{labels.OWN_GROUP}/inside-consolidate-after", effect="NoSchedule")
_OPEN = Toleration(key=_CLOSED.key, operator="Exists")


class PackingSimulations:
    """Prepares the engine for one snapshot after another."""

    def __init__(self, settings: PackingSettings) -> None:
        self._settings = dataclasses.replace(settings, effort="off")
        self._engine = PackingEngine()

    def __call__(self, snapshot: ClusterSnapshot) -> Simulation:
        return EngineSimulation(self._engine, snapshot, self._settings)


class EngineSimulation:
    def __init__(self, engine: PackingEngine, snapshot: ClusterSnapshot, settings: PackingSettings) -> None:
        self._engine = engine
        self._snapshot = snapshot
        self._settings = settings
        self._pending = [pod for pod in snapshot.pods if is_provisionable(pod)]
        self._leaving = leaving_pods(snapshot)
        self._closed_views: dict[str, NodeView] = {}
        self._tolerant: tuple[list[Pod], list[Pod], tuple[Pod, ...]] | None = None

    def ask(self, question: Question) -> Answer:
        pending, leaving, virtual = self._demand(bool(question.closed))
        asked = dataclasses.replace(
            self._snapshot,
            nodes=tuple(
                self._closed(view) if view.name in question.closed else view
                for view in self._snapshot.nodes
                if view.name not in question.removed
            ),
            buffer_pods=virtual,
        )
        if not dynamic_pools(asked, self._settings):
            raise SimulationError("no NodePool can provision: none is dynamic, Ready and not being deleted")
        reservations = (
            ReservationOptions(STRICT, {question.credit: 1}) if question.credit else ReservationOptions(FALLBACK)
        )
        decision = Decision(self._engine, asked, self._settings, never_stop, reservations)
        plan = decision.plan_for(pending, [*leaving, *question.pods])
        failed = {key: refusal.text() for key, refusal in (*plan.unschedulable.items(), *plan.deferred.items())}
        failed.update({key: refusal.text() for key, refusal in plan.ignored.items()})
        return Answer(plan.claims, plan.existing, failed)

    def _demand(self, tolerant: bool) -> tuple[list[Pod], list[Pod], tuple[Pod, ...]]:
        if not tolerant:
            return self._pending, self._leaving, self._snapshot.buffer_pods
        if self._tolerant is None:
            self._tolerant = (
                [_tolerating(pod) for pod in self._pending],
                [_tolerating(pod) for pod in self._leaving],
                tuple(_tolerating(pod) for pod in self._snapshot.buffer_pods),
            )
        return self._tolerant

    def _closed(self, view: NodeView) -> NodeView:
        found = self._closed_views.get(view.name)
        if found is None:
            found = self._closed_views[view.name] = dataclasses.replace(view, taints=(*view.taints, _CLOSED))
        return found


def _tolerating(pod: Pod) -> Pod:
    spec = msgspec.structs.replace(pod.spec, tolerations=[*pod.spec.tolerations, _OPEN])
    return msgspec.structs.replace(pod, spec=spec)
