"""What would happen to these pods if those machines went: the question disruption asks the packing engine.

The engine answers through the small `Simulation` contract; this module prepares the question from candidates and
reads the answer by the rules that only disruption has. It never copies the cluster and never decides what is worth
doing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from pykarpenter.api.pods import Pod
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.draining import needs_replacement_capacity
from pykarpenter.core.packing.fleet_view import FleetView, Movable
from pykarpenter.core.packing_settings import ShouldStop, never_stop
from pykarpenter.core.plans import ExistingPlacement, PlannedClaim


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """Take `removed` away and find room for `pods` beside everything that is pending anyway.

    The engine adds, by itself, all provisionable pending pods, the virtual pods of buffers, and the pods of machines
    that are already going. Reserved offerings may fall back, unless `credit` names a reservation: then they are
    strict and that reservation has one unit more.
    """

    removed: frozenset[str]
    # As they are in the snapshot, bound; the engine treats them as free to go anywhere.
    pods: tuple[Pod, ...]
    # Existing machines that only pending pods, virtual pods and pods of going machines may use.
    closed: frozenset[str] = frozenset()
    credit: str = ""
    # Whether new machines are the cheapest mix that provisioning would find, rather than first fit.
    cheapest_mix: bool = False
    # Whoever asked no longer waits: an answer that this cut short says nothing and must not be used.
    should_stop: ShouldStop = never_stop


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Where everything would go; `failed` holds every pod without a place, pending ones included, with the reason."""

    claims: tuple[PlannedClaim, ...] = ()
    existing: tuple[ExistingPlacement, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


class Simulation(Protocol):
    """The packing engine, prepared for one snapshot."""

    def ask(self, question: Question) -> Answer:
        """Raises SimulationError when the question has no meaning now, e.g. no pool can provision."""
        ...


@runtime_checkable
class KnowsFleet(Protocol):
    """A simulation that can also show the fleet as arrays, for searches that look at many sets."""

    def fleet(self, movable: Sequence[Movable], closed: frozenset[str]) -> FleetView | None:
        """None when it cannot be shown, e.g. because prices are unknown."""
        ...


class SimulationError(Exception):
    """Nothing can be said about any placement."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """An answer read by disruption's rules; `errors` are those that block: pods that were not pending before."""

    claims: tuple[PlannedClaim, ...]
    existing: tuple[ExistingPlacement, ...]
    errors: Mapping[str, str]

    @property
    def ok(self) -> bool:
        return not self.errors


def simulate(
    world: World,
    simulation: Simulation,
    candidates: Sequence[Candidate],
    *,
    consolidation: bool = False,
    include_blocked: bool = False,
    credit: str = "",
    cheapest_mix: bool = False,
    should_stop: ShouldStop = never_stop,
) -> Outcome:
    """Ask for the candidates' pods; repair includes pods that are blocked now, since its bounded drain frees them."""
    pods = tuple(
        pod
        for candidate in candidates
        for pod in candidate.pods
        if include_blocked
        or needs_replacement_capacity(pod, world.pdbs(pod.namespace), world.now, world.settings.protect_unparsable)
    )
    removed = frozenset(candidate.name for candidate in candidates)
    closed = world.settling - removed if consolidation else frozenset()
    answer = simulation.ask(Question(removed, pods, closed, credit, cheapest_mix, should_stop))
    # Only the candidates' own pods can block: what was pending before may stay pending.
    own = {pod.key for pod in pods}
    errors = {key: text for key, text in answer.failed.items() if key in own or key in world.leaving}
    errors.update(_uninitialized_errors(world, answer, own))
    return Outcome(answer.claims, _real_placements(world, answer), dict(sorted(errors.items())))


def _real_placements(world: World, answer: Answer) -> tuple[ExistingPlacement, ...]:
    """Placements of pods that exist; virtual pods of buffers never nominate a machine."""
    virtual = {pod.key for pod in world.snapshot.buffer_pods}
    if not virtual:
        return answer.existing
    kept = (ExistingPlacement(p.node, tuple(k for k in p.pods if k not in virtual)) for p in answer.existing)
    return tuple(placement for placement in kept if placement.pods)


def _uninitialized_errors(world: World, answer: Answer, own: set[str]) -> dict[str, str]:
    """A machine that is not ready yet may never be: no running pod is moved in the hope of it."""
    errors: dict[str, str] = {}
    for placement in answer.existing:
        view = world.by_name.get(placement.node)
        if view is None or not view.managed or view.initialized:
            continue
        what = f"NodeClaim {view.claim.name}" if view.claim is not None else f"Node {view.name}"
        errors.update({pod: f"would schedule against uninitialized {what}" for pod in placement.pods if pod in own})
    return errors
