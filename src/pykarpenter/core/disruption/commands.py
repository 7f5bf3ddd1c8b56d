"""What disruption wants done: commands that name their machines, replacements, reasons and the facts relied on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pykarpenter.core.disruption.blockers import Notice
from pykarpenter.core.plans import ExistingPlacement, PlannedClaim


class Reason(StrEnum):
    """Why a machine is disturbed: the spelling of budgets, conditions and events; metrics use lower case."""

    UNHEALTHY = "Unhealthy"
    EMPTY = "Empty"
    DRIFTED = "Drifted"
    UNDERUTILIZED = "Underutilized"


class Decision(StrEnum):
    NO_OP = "no-op"
    DELETE = "delete"
    REPLACE = "replace"
    TERMINATE_FIRST = "terminate-first"
    REBOOT = "reboot"


class DisruptionClass(StrEnum):
    """How much protection counts: consolidation respects all of it, drift and repair have their waivers."""

    REPAIR = "repair"
    GRACEFUL = "graceful"
    EVENTUAL = "eventual"


class Method(StrEnum):
    """In the order in which a pass tries them."""

    REPAIR = "repair"
    EMPTINESS = "emptiness"
    STATIC_DRIFT = "static-drift"
    DRIFT = "drift"
    MULTI_NODE = "multi-node-consolidation"
    SINGLE_NODE = "single-node-consolidation"


CONSOLIDATION_TYPES: Mapping[Method, str] = {
    Method.EMPTINESS: "empty",
    Method.MULTI_NODE: "multi",
    Method.SINGLE_NODE: "single",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A machine that a command removes or reboots, and what must still be true of it when that happens."""

    node: str
    node_uid: str
    claim: str
    claim_uid: str
    provider_id: str
    pool: str
    # Pods that need room elsewhere, `namespace/name` to UID: a pod that is not among them was not planned for.
    pods: Mapping[str, str]
    capacity_type: str = ""
    zone: str = ""
    instance_type: str = ""
    price: float | None = None
    reschedule_cost: float = 1.0
    consolidation_policy: str = ""
    termination_mode: str = "graceful"
    image_id: str = ""
    # Protected pods are passed over: drift with a grace period, repair with a drain bound.
    waives_protection: bool = False
    # Seconds after which a repair's drain is forced; None leaves the claim's own grace period alone.
    drain_bound_s: float | None = None
    static: bool = False


@dataclass(frozen=True, slots=True)
class RebootOrder:
    """What a reboot is committed with; `grace_s` None drains without a bound."""

    condition: str
    reason: str
    grace_s: float | None


@dataclass(frozen=True, slots=True)
class Command:
    """One decision: the machines that go, what must run before they do, and what it is worth."""

    id: str
    method: Method
    reason: Reason
    decision: Decision
    targets: tuple[Target, ...]
    replacements: tuple[PlannedClaim, ...] = ()
    # Pods of the targets expected on machines that exist; those are nominated.
    placements: tuple[ExistingPlacement, ...] = ()
    # $/hour; None where price plays no part.
    saving: float | None = None
    terminate_first_reason: str = ""
    reboot: RebootOrder | None = None
    repair_condition: str = ""
    escalated: bool = False
    # Score by pool of a Balanced approval.
    scores: tuple[tuple[str, float], ...] = ()

    @property
    def consolidation_type(self) -> str:
        return CONSOLIDATION_TYPES.get(self.method, "")

    @property
    def needs_validation(self) -> bool:
        """Graceful commands are looked at again after a pause before anything is touched."""
        return self.method in CONSOLIDATION_TYPES

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(target.node for target in self.targets)

    @property
    def pod_count(self) -> int:
        return sum(len(target.pods) for target in self.targets)

    @property
    def price_now(self) -> float | None:
        """$/hour of the targets; None when one is unknown."""
        prices = [target.price for target in self.targets]
        known = [price for price in prices if price is not None]
        return sum(known) if len(known) == len(prices) else None

    def text(self) -> str:
        """One line: what goes and what comes."""
        going = ", ".join(
            f"{t.node} ({'/'.join(filter(None, (t.instance_type, t.capacity_type))) or 'unknown'})"
            for t in self.targets
        )
        line = f"{self.reason}/{self.decision}: {going}"
        if self.replacements:
            coming = ", ".join(f"{c.choice.instance_type}/{c.choice.capacity_type}" for c in self.replacements)
            line += f" -> {coming}"
        return line


@dataclass(frozen=True, slots=True)
class MethodRun:
    """What one method found in one pass."""

    method: Method
    reason: Reason
    commands: tuple[Command, ...] = ()
    eligible: int = 0
    considered: int = 0
    notices: tuple[Notice, ...] = ()
    timed_out: bool = False
    # Nothing to do, and no budget kept it from finding something: not asked again until the cluster changes.
    settled: bool = False
    unseen_pools: tuple[str, ...] = ()
    # Balanced verdicts: (pool, approved, score).
    scores: tuple[tuple[str, bool, float], ...] = ()
    # Why the method could not answer; the others run all the same.
    error: str = ""
    # How long it took, by the timer that `decide` was given.
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DisruptionPlan:
    """The answer of one pass: the methods that ran, in order; the last has the commands, if any do."""

    runs: tuple[MethodRun, ...] = ()
    # Usable disruptions: by pool and reason (allowed before subtracting, consuming).
    allowances: Mapping[tuple[str, Reason], tuple[int, int]] = field(default_factory=dict)
    # Change stamp and budgets under which the search over sets found nothing better than the methods did.
    nothing_better_at: tuple[float, tuple[tuple[str, int], ...]] | None = None

    @property
    def commands(self) -> tuple[Command, ...]:
        return tuple(command for run in self.runs for command in run.commands)

    @property
    def notices(self) -> tuple[Notice, ...]:
        return tuple(notice for run in self.runs for notice in run.notices)


def command_id(method: Method, claim_uids: tuple[str, ...], now: float, revision: int) -> str:
    """New for each decision, equal for equal decisions: replacement names and log lines derive from it."""
    text = f"{method}/{revision}/{now:.3f}/" + ",".join(claim_uids)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
