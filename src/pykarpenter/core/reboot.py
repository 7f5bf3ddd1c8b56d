"""A reboot in place, from its commit on the NodeClaim to a machine that is back or given up, as a table.

Phases are read off the claim (condition, annotations), so a restart continues where the last process stopped. A
machine counts as rebooted only when its boot ID is another than before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pykarpenter.api import labels
from pykarpenter.api.duration import InvalidDuration, parse_duration
from pykarpenter.api.meta import Condition, condition_status, find_condition
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node, Taint
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.core.conditions import Finding, shorten
from pykarpenter.core.draining import SETTLE_S
from pykarpenter.core.lifecycle import REBOOTING, InvariantBroken

POLL_S = 15.0
# Until the provider accepts, counted from the first call, or from the request while none was made.
ACCEPTANCE_S = 300.0
RECOVERY_S = 1200.0
REBOOTING_TAINT = Taint(key=labels.REBOOTING_TAINT, effect="NoSchedule")
# Ours, on the NodeClaim: when the provider was first asked; outlives a restart of the controller.
CALLED_AT = f"{labels.OWN_GROUP}/reboot-called-at"

ISSUED_REASON = "RebootIssued"


class RebootPhase(StrEnum):
    DRAINING = "Draining"
    CALLING = "Calling"
    ISSUED = "Issued"
    ENDED = "Ended"
    GIVEN_UP = "GivenUp"


class RebootFact(StrEnum):
    INVALID_GRACE_PERIOD = "InvalidGracePeriod"
    PODS_LEAVING = "PodsLeaving"
    DRAINED = "Drained"
    ACCEPTED = "Accepted"
    REFUSED = "Refused"
    NOT_ACCEPTED_YET = "NotAcceptedYet"
    ACCEPTANCE_OVERDUE = "AcceptanceOverdue"
    OLD_BOOT = "OldBoot"
    NEW_BOOT = "NewBoot"
    RECOVERED = "Recovered"
    RECOVERY_OVERDUE = "RecoveryOverdue"


@dataclass(frozen=True, slots=True)
class RebootStep:
    """The next phase, the Rebooting condition to write, and the result that is counted at the end."""

    phase: RebootPhase
    status: str = ""
    reason: str = ""
    result: str = ""

    def finding(self, message: str) -> Finding:
        return Finding(REBOOTING, self.status, self.reason, shorten(message))


REBOOT: Mapping[tuple[RebootPhase, RebootFact], RebootStep] = {
    (RebootPhase.DRAINING, RebootFact.INVALID_GRACE_PERIOD): RebootStep(
        RebootPhase.ENDED, "False", "RebootFailed", "invalid_request"
    ),
    (RebootPhase.DRAINING, RebootFact.PODS_LEAVING): RebootStep(RebootPhase.DRAINING),
    (RebootPhase.DRAINING, RebootFact.DRAINED): RebootStep(RebootPhase.CALLING),
    (RebootPhase.DRAINING, RebootFact.ACCEPTANCE_OVERDUE): RebootStep(RebootPhase.GIVEN_UP, result="provider_error"),
    (RebootPhase.CALLING, RebootFact.ACCEPTED): RebootStep(RebootPhase.ISSUED, "True", ISSUED_REASON),
    (RebootPhase.CALLING, RebootFact.NEW_BOOT): RebootStep(RebootPhase.ISSUED, "True", ISSUED_REASON),
    (RebootPhase.CALLING, RebootFact.NOT_ACCEPTED_YET): RebootStep(RebootPhase.CALLING),
    (RebootPhase.CALLING, RebootFact.REFUSED): RebootStep(RebootPhase.GIVEN_UP, result="provider_error"),
    (RebootPhase.CALLING, RebootFact.ACCEPTANCE_OVERDUE): RebootStep(RebootPhase.GIVEN_UP, result="provider_error"),
    (RebootPhase.ISSUED, RebootFact.OLD_BOOT): RebootStep(RebootPhase.ISSUED),
    (RebootPhase.ISSUED, RebootFact.NEW_BOOT): RebootStep(RebootPhase.ISSUED),
    (RebootPhase.ISSUED, RebootFact.RECOVERED): RebootStep(RebootPhase.ENDED, "False", "RebootSucceeded", "succeeded"),
    (RebootPhase.ISSUED, RebootFact.RECOVERY_OVERDUE): RebootStep(RebootPhase.GIVEN_UP, result="recovery_timeout"),
}


def reboot_step(phase: RebootPhase, fact: RebootFact) -> RebootStep:
    found = REBOOT.get((phase, fact))
    if found is None:
        raise InvariantBroken(f"a reboot in phase {phase} cannot observe {fact}")
    return found


def commit(claim: NodeClaim) -> Condition | None:
    """The condition that commits the claim to a reboot; None when there is none to carry out."""
    found = find_condition(claim.status.conditions, REBOOTING)
    return found if found is not None and found.status == "True" and not claim.is_deleting else None


def reboot_phase(claim: NodeClaim, committed: Condition) -> RebootPhase:
    if committed.reason == ISSUED_REASON:
        return RebootPhase.ISSUED
    # Annotations of an earlier reboot, left by a crash at its very end, say nothing about this one.
    called = parse_optional_timestamp(claim.metadata.annotations.get(CALLED_AT))
    is_ours = called is None or called >= requested_at(committed)
    if is_ours and labels.REBOOT_PRE_BOOT_ID in claim.metadata.annotations:
        return RebootPhase.CALLING
    return RebootPhase.DRAINING


def requested_at(committed: Condition) -> float:
    return parse_optional_timestamp(committed.last_transition_time) or 0.0


def called_at(claim: NodeClaim, committed: Condition) -> float:
    """When the provider was first asked; the request's time while that is unknown."""
    return parse_optional_timestamp(claim.metadata.annotations.get(CALLED_AT)) or requested_at(committed)


def operation_id(claim: NodeClaim, committed: Condition) -> str:
    """The same for every repetition of one reboot, and another for the next."""
    nanoseconds = round(requested_at(committed)) * 10**9
    return f"{claim.uid}-{nanoseconds}-{claim.metadata.annotations.get(labels.REBOOT_PRE_BOOT_ID, '')}"


def has_new_boot(claim: NodeClaim, node: Node | None) -> bool:
    """Whether the Node shows another boot than before; an empty ID is one that is not known yet."""
    before = claim.metadata.annotations.get(labels.REBOOT_PRE_BOOT_ID)
    current = node.status.node_info.boot_id if node is not None else ""
    return before is not None and bool(current) and current != before


def observe_recovery(claim: NodeClaim, committed: Condition, node: Node | None, now: float) -> RebootFact:
    """Where an issued reboot stands; a Node that is missing may still come back until time is up."""
    new_boot = has_new_boot(claim, node)
    if new_boot and node is not None and condition_status(node.status.conditions, "Ready") == "True":
        return RebootFact.RECOVERED
    if now >= called_at(claim, committed) + RECOVERY_S:
        return RebootFact.RECOVERY_OVERDUE
    return RebootFact.NEW_BOOT if new_boot else RebootFact.OLD_BOOT


@dataclass(frozen=True, slots=True)
class RebootDrain:
    """How a node is emptied before its reboot: not at all, until a deadline, or for as long as it takes."""

    wanted: bool
    deadline: float | None = None

    def is_over(self, now: float) -> bool:
        return not self.wanted or (self.deadline is not None and now >= self.deadline)


def reboot_grace_s(claim: NodeClaim) -> float | None:
    """The committed bound of the drain; None is unbounded. Raises InvalidDuration, also for a negative one."""
    text = claim.metadata.annotations.get(labels.REBOOT_TERMINATION_GRACE_PERIOD)
    if text is None:
        return None
    seconds = parse_duration(text)
    if seconds < 0:
        raise InvalidDuration(text)
    return seconds


def plan_drain(claim: NodeClaim, committed: Condition) -> RebootDrain:
    """Raises InvalidDuration for a grace period that cannot be used."""
    grace = reboot_grace_s(claim)
    if grace == 0:
        return RebootDrain(wanted=False)
    if grace is None:
        return RebootDrain(wanted=True)
    return RebootDrain(wanted=True, deadline=requested_at(committed) + max(grace, SETTLE_S))


def is_settled(committed: Condition, now: float) -> bool:
    """An empty node is held for a moment all the same: a pod may have been bound just before the taint."""
    return now >= requested_at(committed) + SETTLE_S
