"""A deleting Node's way to its last finalizer, and a deleting NodeClaim's, as tables.

Same shape as `core.lifecycle`: a phase and an observed fact give the next phase, the condition to write on the
NodeClaim, and how soon to look again. An instance is only ever deleted from a phase that follows a finished drain,
a passed deadline or a confirmed loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pykarpenter.core.conditions import Finding, shorten
from pykarpenter.core.lifecycle import (
    DRAINED,
    IDENTITY_CONFLICT,
    INSTANCE_TERMINATING,
    VOLUMES_DETACHED,
    InvariantBroken,
)

DRAIN_POLL_S = 1.0
INSTANCE_POLL_S = 5.0
# Somebody has to correct an object by hand; changes of it are noticed at once.
CONFLICT_POLL_S = 60.0


class NodePhase(StrEnum):
    """Where a deleting, managed Node stands."""

    FENCING = "Fencing"
    DRAINING = "Draining"
    DETACHING = "Detaching"
    TERMINATING = "Terminating"
    RELEASED = "Released"


class NodeFact(StrEnum):
    INSTANCE_LOST = "InstanceLost"
    FENCED = "Fenced"
    PODS_WAITING = "PodsWaiting"
    SETTLING = "Settling"
    DRAINED = "Drained"
    VOLUMES_ATTACHED = "VolumesAttached"
    VOLUMES_DETACHED = "VolumesDetached"
    DEADLINE_PASSED = "DeadlinePassed"
    INSTANCE_THERE = "InstanceThere"
    INSTANCE_GONE = "InstanceGone"
    CLAIM_MISSING = "ClaimMissing"


@dataclass(frozen=True, slots=True)
class NodeStep:
    """The next phase, the NodeClaim condition to write, and the seconds after which to look again (None: go on)."""

    phase: NodePhase
    condition: str = ""
    status: str = ""
    reason: str = ""
    poll_s: float | None = None

    def finding(self, message: str = "") -> Finding:
        return Finding(self.condition, self.status, self.reason, shorten(message))


NODE_TERMINATION: Mapping[tuple[NodePhase, NodeFact], NodeStep] = {
    (NodePhase.FENCING, NodeFact.INSTANCE_LOST): NodeStep(NodePhase.RELEASED),
    (NodePhase.FENCING, NodeFact.FENCED): NodeStep(NodePhase.DRAINING),
    (NodePhase.DRAINING, NodeFact.PODS_WAITING): NodeStep(
        NodePhase.DRAINING, DRAINED, "Unknown", "Draining", DRAIN_POLL_S
    ),
    (NodePhase.DRAINING, NodeFact.SETTLING): NodeStep(NodePhase.DRAINING, DRAINED, "Unknown", "Draining", DRAIN_POLL_S),
    (NodePhase.DRAINING, NodeFact.DRAINED): NodeStep(NodePhase.DETACHING, DRAINED, "True", DRAINED),
    (NodePhase.DETACHING, NodeFact.VOLUMES_ATTACHED): NodeStep(
        NodePhase.DETACHING, VOLUMES_DETACHED, "Unknown", "AwaitingVolumeDetachment", DRAIN_POLL_S
    ),
    (NodePhase.DETACHING, NodeFact.VOLUMES_DETACHED): NodeStep(
        NodePhase.TERMINATING, VOLUMES_DETACHED, "True", VOLUMES_DETACHED
    ),
    (NodePhase.DETACHING, NodeFact.DEADLINE_PASSED): NodeStep(
        NodePhase.TERMINATING, VOLUMES_DETACHED, "False", "TerminationGracePeriodElapsed"
    ),
    (NodePhase.TERMINATING, NodeFact.INSTANCE_THERE): NodeStep(
        NodePhase.TERMINATING, INSTANCE_TERMINATING, "True", INSTANCE_TERMINATING, INSTANCE_POLL_S
    ),
    (NodePhase.TERMINATING, NodeFact.INSTANCE_GONE): NodeStep(
        NodePhase.RELEASED, INSTANCE_TERMINATING, "True", INSTANCE_TERMINATING
    ),
    (NodePhase.TERMINATING, NodeFact.CLAIM_MISSING): NodeStep(NodePhase.RELEASED),
}


class ClaimPhase(StrEnum):
    """Where a deleting NodeClaim stands."""

    STAMPING = "Stamping"
    AWAITING_NODES = "AwaitingNodes"
    TERMINATING = "Terminating"
    RELEASED = "Released"


class ClaimFact(StrEnum):
    STAMPED = "Stamped"
    NODES_LEFT = "NodesLeft"
    NODES_GONE = "NodesGone"
    NEVER_REGISTERED = "NeverRegistered"
    NEVER_LAUNCHED = "NeverLaunched"
    IDENTITY_CONFLICT = "IdentityConflict"
    INSTANCE_THERE = "InstanceThere"
    INSTANCE_GONE = "InstanceGone"


@dataclass(frozen=True, slots=True)
class ClaimStep:
    phase: ClaimPhase
    condition: str = ""
    status: str = ""
    reason: str = ""
    poll_s: float | None = None

    def finding(self, message: str = "") -> Finding:
        return Finding(self.condition, self.status, self.reason, shorten(message))


CLAIM_TERMINATION: Mapping[tuple[ClaimPhase, ClaimFact], ClaimStep] = {
    (ClaimPhase.STAMPING, ClaimFact.STAMPED): ClaimStep(ClaimPhase.AWAITING_NODES),
    (ClaimPhase.AWAITING_NODES, ClaimFact.IDENTITY_CONFLICT): ClaimStep(
        ClaimPhase.AWAITING_NODES, IDENTITY_CONFLICT, "True", "IdentityConflict", CONFLICT_POLL_S
    ),
    (ClaimPhase.AWAITING_NODES, ClaimFact.NODES_LEFT): ClaimStep(ClaimPhase.AWAITING_NODES, poll_s=INSTANCE_POLL_S),
    (ClaimPhase.AWAITING_NODES, ClaimFact.NODES_GONE): ClaimStep(ClaimPhase.TERMINATING),
    (ClaimPhase.AWAITING_NODES, ClaimFact.NEVER_REGISTERED): ClaimStep(ClaimPhase.TERMINATING),
    (ClaimPhase.TERMINATING, ClaimFact.INSTANCE_THERE): ClaimStep(
        ClaimPhase.TERMINATING, INSTANCE_TERMINATING, "True", INSTANCE_TERMINATING, INSTANCE_POLL_S
    ),
    (ClaimPhase.TERMINATING, ClaimFact.IDENTITY_CONFLICT): ClaimStep(
        ClaimPhase.TERMINATING, IDENTITY_CONFLICT, "True", "IdentityConflict", CONFLICT_POLL_S
    ),
    (ClaimPhase.TERMINATING, ClaimFact.INSTANCE_GONE): ClaimStep(ClaimPhase.RELEASED),
    (ClaimPhase.TERMINATING, ClaimFact.NEVER_LAUNCHED): ClaimStep(ClaimPhase.RELEASED),
}


def node_step(phase: NodePhase, fact: NodeFact) -> NodeStep:
    found = NODE_TERMINATION.get((phase, fact))
    if found is None:
        raise InvariantBroken(f"a deleting Node in phase {phase} cannot observe {fact}")
    return found


def claim_step(phase: ClaimPhase, fact: ClaimFact) -> ClaimStep:
    found = CLAIM_TERMINATION.get((phase, fact))
    if found is None:
        raise InvariantBroken(f"a deleting NodeClaim in phase {phase} cannot observe {fact}")
    return found
