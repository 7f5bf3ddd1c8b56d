"""A NodeClaim's way from request to working machine, as tables: what was observed in which phase leads where.

The tables are the whole truth about phases, conditions and give-ups; the functions below them turn objects into
facts. Controllers observe, look up, and carry out. Nothing here calls a cloud, and nothing reads a clock: a fact
that is not known is simply not passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pykarpenter.api import labels
from pykarpenter.api.devices import ResourceSlice
from pykarpenter.api.duration import parse_duration, parse_nillable_duration
from pykarpenter.api.meta import condition_status, find_condition
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node, Taint
from pykarpenter.api.quantity import available, available_units, requested
from pykarpenter.api.timestamps import parse_optional_timestamp, parse_timestamp
from pykarpenter.core.conditions import Finding, shorten

LAUNCH_TIMEOUT_S = 300.0
REGISTRATION_TIMEOUT_S = 900.0

LAUNCHED = "Launched"
REGISTERED = "Registered"
INITIALIZED = "Initialized"
REBOOTING = "Rebooting"
DRAINED = "Drained"
VOLUMES_DETACHED = "VolumesDetached"
INSTANCE_TERMINATING = "InstanceTerminating"
CONSISTENT = "ConsistentStateFound"
CONSOLIDATABLE = "Consolidatable"
DRIFTED = "Drifted"
DISRUPTION_REASON = "DisruptionReason"
# Ours: the claim's providerID belongs to something else, so nothing is deleted in its name.
IDENTITY_CONFLICT = "pykarpenter.sh/IdentityConflict"
# Ours: what keeps a deletion from finishing, in the provider's words.
TERMINATION_BLOCKED = "pykarpenter.sh/TerminationBlocked"


class Phase(StrEnum):
    """Where a NodeClaim that is not being deleted stands; read off its conditions, never stored."""

    LAUNCHING = "Launching"
    REGISTERING = "Registering"
    AMBIGUOUS = "Ambiguous"
    INITIALIZING = "Initializing"
    REBOOTING = "Rebooting"
    READY = "Ready"
    GIVEN_UP = "GivenUp"


class Fact(StrEnum):
    """What a controller can observe about a claim."""

    INSTANCE_LAUNCHED = "InstanceLaunched"
    CAPACITY_REFUSED = "CapacityRefused"
    CLASS_NOT_READY = "ClassNotReady"
    LAUNCH_FAILED = "LaunchFailed"
    LAUNCH_OVERDUE = "LaunchOverdue"
    NODE_MISSING = "NodeMissing"
    SEVERAL_NODES = "SeveralNodes"
    HOOKS_PENDING = "HooksPending"
    NODE_REGISTERED = "NodeRegistered"
    REGISTRATION_OVERDUE = "RegistrationOverdue"
    NODE_NOT_READY = "NodeNotReady"
    STARTUP_TAINTS = "StartupTaints"
    EPHEMERAL_TAINTS = "EphemeralTaints"
    RESOURCE_MISSING = "ResourceMissing"
    DRIVERS_MISSING = "DriversMissing"
    NODE_INITIALIZED = "NodeInitialized"
    REBOOT_COMMITTED = "RebootCommitted"
    REBOOT_ISSUED = "RebootIssued"
    REBOOT_ENDED = "RebootEnded"
    REBOOT_FAILED = "RebootFailed"


@dataclass(frozen=True, slots=True)
class Step:
    """Where a fact leads: the next phase, the condition to write, and why the claim is deleted if it is."""

    phase: Phase
    condition: str = ""
    status: str = "Unknown"
    reason: str = ""
    give_up: str = ""

    def finding(self, message: str = "", reason: str = "") -> Finding:
        """The condition to write; a provider's own reason replaces the table's."""
        return Finding(self.condition, self.status, reason or self.reason, shorten(message))


def _unknown(phase: Phase, condition: str, reason: str) -> Step:
    return Step(phase, condition, "Unknown", reason)


def _true(phase: Phase, condition: str) -> Step:
    return Step(phase, condition, "True", condition)


# (phase, fact) -> step. A pair that is missing cannot happen: looking it up is a defect, not a state.
LIFECYCLE: Mapping[tuple[Phase, Fact], Step] = {
    (Phase.LAUNCHING, Fact.INSTANCE_LAUNCHED): _true(Phase.REGISTERING, LAUNCHED),
    (Phase.LAUNCHING, Fact.CAPACITY_REFUSED): Step(Phase.GIVEN_UP, give_up="insufficient_capacity"),
    (Phase.LAUNCHING, Fact.CLASS_NOT_READY): Step(Phase.GIVEN_UP, give_up="nodeclass_not_ready"),
    (Phase.LAUNCHING, Fact.LAUNCH_FAILED): _unknown(Phase.LAUNCHING, LAUNCHED, "LaunchFailed"),
    (Phase.LAUNCHING, Fact.LAUNCH_OVERDUE): Step(Phase.GIVEN_UP, give_up="launch_timeout"),
    (Phase.REGISTERING, Fact.NODE_MISSING): _unknown(Phase.REGISTERING, REGISTERED, "NodeNotFound"),
    (Phase.REGISTERING, Fact.SEVERAL_NODES): Step(Phase.AMBIGUOUS, REGISTERED, "False", "MultipleNodesFound"),
    (Phase.REGISTERING, Fact.HOOKS_PENDING): _unknown(Phase.REGISTERING, REGISTERED, "RegistrationHookPending"),
    (Phase.REGISTERING, Fact.NODE_REGISTERED): _true(Phase.INITIALIZING, REGISTERED),
    (Phase.REGISTERING, Fact.REGISTRATION_OVERDUE): Step(Phase.GIVEN_UP, give_up="registration_timeout"),
    (Phase.AMBIGUOUS, Fact.REGISTRATION_OVERDUE): Step(Phase.GIVEN_UP, give_up="registration_timeout"),
    (Phase.INITIALIZING, Fact.NODE_MISSING): _unknown(Phase.INITIALIZING, INITIALIZED, "NodeNotFound"),
    (Phase.INITIALIZING, Fact.NODE_NOT_READY): _unknown(Phase.INITIALIZING, INITIALIZED, "NodeNotReady"),
    (Phase.INITIALIZING, Fact.STARTUP_TAINTS): _unknown(Phase.INITIALIZING, INITIALIZED, "StartupTaintsExist"),
    (Phase.INITIALIZING, Fact.EPHEMERAL_TAINTS): _unknown(Phase.INITIALIZING, INITIALIZED, "KnownEphemeralTaintsExist"),
    (Phase.INITIALIZING, Fact.RESOURCE_MISSING): _unknown(Phase.INITIALIZING, INITIALIZED, "ResourceNotRegistered"),
    (Phase.INITIALIZING, Fact.DRIVERS_MISSING): _unknown(Phase.INITIALIZING, INITIALIZED, "DRADriverPoolsNotPublished"),
    (Phase.INITIALIZING, Fact.NODE_INITIALIZED): _true(Phase.READY, INITIALIZED),
    (Phase.READY, Fact.REBOOT_COMMITTED): Step(Phase.REBOOTING),
    (Phase.INITIALIZING, Fact.REBOOT_COMMITTED): Step(Phase.REBOOTING),
    (Phase.REBOOTING, Fact.REBOOT_ISSUED): _unknown(Phase.REBOOTING, INITIALIZED, "Rebooting"),
    (Phase.REBOOTING, Fact.REBOOT_ENDED): Step(Phase.INITIALIZING),
    (Phase.REBOOTING, Fact.REBOOT_FAILED): Step(Phase.GIVEN_UP, give_up="unhealthy"),
}


class InvariantBroken(Exception):
    """A state machine was asked for a step its table does not have."""


def step(phase: Phase, fact: Fact) -> Step:
    found = LIFECYCLE.get((phase, fact))
    if found is None:
        raise InvariantBroken(f"a NodeClaim in phase {phase} cannot observe {fact}")
    return found


def phase_of(claim: NodeClaim) -> Phase:
    conditions = claim.status.conditions
    if condition_status(conditions, LAUNCHED) != "True":
        return Phase.LAUNCHING
    registered = condition_status(conditions, REGISTERED)
    if registered == "False":
        return Phase.AMBIGUOUS
    if registered != "True":
        return Phase.REGISTERING
    if condition_status(conditions, REBOOTING) == "True":
        return Phase.REBOOTING
    return Phase.READY if condition_status(conditions, INITIALIZED) == "True" else Phase.INITIALIZING


@dataclass(frozen=True, slots=True)
class Observation:
    """A fact with the words that explain it."""

    fact: Fact
    message: str = ""


@dataclass(frozen=True, slots=True)
class LaunchedMetadata:
    labels: dict[str, str]
    annotations: dict[str, str]


def merge_launch(claim: NodeClaim, launched: NodeClaim) -> LaunchedMetadata:
    """The claim's metadata after launch: its own labels win over the provider's, its annotations do not."""
    return LaunchedMetadata(
        {**launched.metadata.labels, **claim.metadata.labels},
        {**claim.metadata.annotations, **launched.metadata.annotations},
    )


def merge_taints(present: Iterable[Taint], wanted: Iterable[Taint]) -> list[Taint]:
    """The present taints with those wanted added; one for each key and effect, the present one stays."""
    result = list(present)
    seen = {(t.key, t.effect) for t in result}
    for taint in wanted:
        if (taint.key, taint.effect) not in seen:
            seen.add((taint.key, taint.effect))
            result.append(taint)
    return result


def is_unregistered_taint(taint: Taint) -> bool:
    return taint.key == labels.UNREGISTERED_TAINT and taint.effect == "NoExecute"


@dataclass(frozen=True, slots=True)
class NodeSync:
    """What a Node carries after a claim's metadata was brought over; `taint_missing` asks for a warning."""

    labels: dict[str, str]
    annotations: dict[str, str]
    finalizers: list[str]
    owned: bool
    taints: list[Taint]
    taint_missing: bool


def sync_node(claim: NodeClaim, node: Node, *, complete: bool) -> NodeSync:
    """The Node's metadata and taints under this claim; `complete` registers it: taint off, label on."""
    meta = node.metadata
    is_registered = meta.labels.get(labels.REGISTERED) == "true"
    taint_missing = not is_registered and not any(is_unregistered_taint(t) for t in node.spec.taints)
    taints = list(node.spec.taints)
    # Once registered, a user or controller may have removed startup taints for good: they are not put back.
    if meta.labels.get(labels.DO_NOT_SYNC_TAINTS) != "true" and not is_registered:
        taints = merge_taints(taints, [*claim.spec.taints, *claim.spec.startup_taints])
    node_labels = {**meta.labels, **claim.metadata.labels}
    if complete:
        taints = [t for t in taints if not is_unregistered_taint(t)]
        node_labels[labels.REGISTERED] = "true"
    finalizers = list(meta.finalizers)
    if labels.TERMINATION_FINALIZER not in finalizers:
        finalizers.append(labels.TERMINATION_FINALIZER)
    return NodeSync(
        labels=node_labels,
        annotations={**meta.annotations, **claim.metadata.annotations},
        finalizers=finalizers,
        owned=any(o.uid == claim.uid for o in meta.owner_references),
        taints=taints,
        taint_missing=taint_missing,
    )


def observe_initialization(claim: NodeClaim, node: Node | None, missing_drivers: Iterable[str] = ()) -> Observation:
    """The first gate that holds a registered node back from taking workload, in the documented order."""
    if node is None:
        return Observation(Fact.NODE_MISSING, "Node not registered with cluster")
    if condition_status(node.status.conditions, "Ready") != "True":
        return Observation(Fact.NODE_NOT_READY, "Node status is NotReady")
    startup = {(t.key, t.effect) for t in claim.spec.startup_taints}
    for taint in node.spec.taints:
        if (taint.key, taint.effect) in startup:
            return Observation(Fact.STARTUP_TAINTS, f'StartupTaint "{_taint_text(taint)}" still exists')
    for taint in node.spec.taints:
        if labels.is_ephemeral_taint(taint.key, taint.effect):
            return Observation(Fact.EPHEMERAL_TAINTS, f'KnownEphemeralTaint "{_taint_text(taint)}" still exists')
    for name, wanted in sorted(requested(claim.spec.resources.requests).items()):
        if wanted and not available_units(name, node.status.allocatable.get(name, 0)):
            return Observation(Fact.RESOURCE_MISSING, f'Resource "{name}" was requested but not registered')
    drivers = sorted(missing_drivers)
    if drivers:
        return Observation(Fact.DRIVERS_MISSING, f"Resource drivers without published pools: {', '.join(drivers)}")
    return Observation(Fact.NODE_INITIALIZED)


def _taint_text(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def requested_drivers(claim: NodeClaim) -> list[str]:
    listed = claim.metadata.annotations.get(labels.REQUESTED_DRA_DRIVERS, "")
    return [driver for driver in listed.split(",") if driver]


def drivers_without_pools(drivers: Iterable[str], slices: Iterable[ResourceSlice], node_name: str) -> list[str]:
    """Drivers of which no pool that the node can use is published whole: all slices of its highest generation."""
    counts: dict[tuple[str, str], dict[int, int]] = {}
    declared: dict[tuple[str, str, int], int] = {}
    for item in slices:
        if item.spec.node_name not in (None, "", node_name):
            continue
        pool = item.spec.pool
        by_generation = counts.setdefault((item.spec.driver, pool.name), {})
        by_generation[pool.generation] = by_generation.get(pool.generation, 0) + 1
        declared[item.spec.driver, pool.name, pool.generation] = pool.resource_slice_count
    whole: set[str] = set()
    for (driver, pool_name), by_generation in counts.items():
        newest = max(by_generation)
        if by_generation[newest] == declared[driver, pool_name, newest]:
            whole.add(driver)
    return sorted(set(drivers) - whole)


@dataclass(frozen=True, slots=True)
class Liveness:
    """A claim that is overdue, or how long it still has; both None once nothing is waited for."""

    overdue: Observation | None = None
    check_after_s: float | None = None


def check_liveness(claim: NodeClaim, now: float) -> Liveness:
    """Launch has 5 minutes, registration 15, each since its condition last changed status."""
    phase = phase_of(claim)
    if phase is Phase.LAUNCHING:
        timeout, condition, fact = LAUNCH_TIMEOUT_S, LAUNCHED, Fact.LAUNCH_OVERDUE
    elif phase in (Phase.REGISTERING, Phase.AMBIGUOUS):
        timeout, condition, fact = REGISTRATION_TIMEOUT_S, REGISTERED, Fact.REGISTRATION_OVERDUE
    else:
        return Liveness()
    since = condition_since(claim, condition)
    if since is None:
        return Liveness(check_after_s=timeout)
    left = since + timeout - now
    if left > 0:
        return Liveness(check_after_s=left)
    return Liveness(overdue=Observation(fact, f"{condition} is not True after {int(timeout)}s"))


def condition_since(claim: NodeClaim, condition_type: str) -> float | None:
    """When the condition last changed status; a condition never written counts from the claim's creation."""
    found = find_condition(claim.status.conditions, condition_type)
    text = found.last_transition_time if found is not None else None
    return parse_optional_timestamp(text or claim.metadata.creation_timestamp)


def expires_at(claim: NodeClaim) -> float | None:
    """When the claim's age forces it out; None for `Never`. Raises InvalidDuration."""
    after = parse_nillable_duration(claim.spec.expire_after)
    created = parse_optional_timestamp(claim.metadata.creation_timestamp)
    return None if after is None or created is None else created + after


def termination_deadline(claim: NodeClaim | None) -> float | None:
    """When every pod must be gone, if such a time was stamped; an unreadable stamp forces nothing."""
    text = claim.metadata.annotations.get(labels.TERMINATION_TIMESTAMP) if claim is not None else None
    if not text:
        return None
    try:
        return parse_timestamp(text)
    except ValueError:
        return None


def wanted_deadline(claim: NodeClaim) -> float | None:
    """The deadline to stamp on a deleting claim that has a grace period and no stamp yet."""
    deleted = parse_optional_timestamp(claim.metadata.deletion_timestamp)
    period = claim.spec.termination_grace_period
    if deleted is None or period is None or labels.TERMINATION_TIMESTAMP in claim.metadata.annotations:
        return None
    return deleted + parse_duration(period)


def termination_mode(claim: NodeClaim) -> str:
    """`graceful` (no grace period bounds the drain), `forceful` (none is left) or `eventual`."""
    period = claim.spec.termination_grace_period
    if period is None:
        return "graceful"
    return "forceful" if parse_duration(period) <= 0 else "eventual"


def inconsistencies(claim: NodeClaim, node: Node) -> list[str]:
    """Requested resources of which the Node shows less than 90 % of what the machine was said to have."""
    expected = available(claim.status.capacity)
    found: list[str] = []
    for name, wanted in sorted(requested(claim.spec.resources.requests).items()):
        shown = available_units(name, node.status.capacity.get(name, 0))
        promised = expected.get(name, 0)
        if wanted and promised and shown * 10 < promised * 9:
            found.append(f"expected {promised} of resource {name}, but found {shown}")
    return found
