"""Structured "why" and "why not": the closed vocabulary shared by packing, disruption, lifecycle, events and explain.

A refusal is a value, not a sentence; `text()` renders it for an event, a log line or a person.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Why(StrEnum):
    """Every reason for which a pod, node or pool can be refused something."""

    # Pods that never enter the packing.
    OPTED_OUT = "OptedOut"
    INVALID_POD = "InvalidPod"
    VOLUME_UNUSABLE = "VolumeUnusable"
    DRA_UNSUPPORTED = "DRAUnsupported"
    # Pods that found no place.
    NO_NODE_POOLS = "NoNodePools"
    TAINT = "TaintNotTolerated"
    REQUIREMENT = "RequirementConflict"
    OTHER_POOL = "OtherNodePoolAskedFor"
    UNDEFINED_LABEL = "UndefinedLabel"
    RESOURCES = "InsufficientResources"
    OFFERING = "NoOffering"
    TOPOLOGY = "TopologyUnsatisfied"
    HOST_PORT = "HostPortConflict"
    VOLUME_LIMIT = "VolumeLimit"
    VOLUME_TOPOLOGY = "VolumeTopology"
    LIMITS = "LimitsExceeded"
    MIN_VALUES = "MinValuesUnmet"
    RESERVATION_DEFERRED = "ReservationDeferred"
    DEVICES = "DevicesUnavailable"
    NO_INSTANCE_TYPES = "NoInstanceTypes"
    DEADLINE = "DeadlineReached"
    NODE_NOT_INITIALIZED = "NodeNotInitialized"
    # Nodes that are not disrupted now.
    IN_FLIGHT = "AlreadyBeingDisrupted"
    NO_NODE_CLAIM = "NoNodeClaim"
    NO_NODE = "NoNode"
    REBOOTING = "Rebooting"
    MARKED_FOR_DELETION = "MarkedForDeletion"
    NOT_REGISTERED = "NotRegistered"
    NOT_INITIALIZED = "NotInitialized"
    NOMINATED = "Nominated"
    NODE_DO_NOT_DISRUPT = "NodeDoNotDisrupt"
    NO_POOL_LABEL = "NoNodePoolLabel"
    POOL_NOT_FOUND = "NodePoolNotFound"
    POD_DO_NOT_DISRUPT = "PodDoNotDisrupt"
    PDB = "PodDisruptionBudget"
    BUDGET = "DisruptionBudget"
    BACK_OFF = "ReplacementBackOff"
    ROLL_OUT_HALTED = "RollOutHalted"
    # Nodes that a method does not take.
    NOT_DRIFTED = "NotDrifted"
    HEALTHY = "Healthy"
    STATIC_POOL = "StaticNodePool"
    NOT_EMPTY = "NotEmpty"
    BUFFER_PODS = "BufferPods"
    CONSOLIDATION_DISABLED = "ConsolidationDisabled"
    POLICY = "ConsolidationPolicy"
    WINDOW = "ConsolidateAfter"
    INSTANCE_TYPE_NOT_FOUND = "InstanceTypeNotFound"
    LABEL_MISSING = "LabelMissing"
    PRICE_UNKNOWN = "PriceUnknown"
    # Commands that are not worth it or not possible.
    UNSCHEDULABLE = "PodsUnschedulable"
    TOO_MANY_REPLACEMENTS = "TooManyReplacements"
    NOT_CHEAPER = "NotCheaper"
    SAME_TYPE = "SameInstanceType"
    SPOT_TO_SPOT = "SpotToSpot"
    BALANCED_SCORE = "BalancedScore"
    MIN_SAVING = "MinSaving"
    PAY_BACK = "DoesNotPayBack"
    STATIC_AT_LIMIT = "StaticAtNodeLimit"
    RESERVATION_FULL = "ReservationFull"
    # Repair.
    REPAIR_VETO = "DoNotRepair"
    REPAIR_UNBOUNDED = "RepairNeedsDrainBound"
    REPAIR_BREAKER = "RepairBreaker"
    REPAIR_NO_POOL = "RepairNeedsNodePool"
    REPAIR_DUE = "RepairDue"
    # Facts that changed between a decision and its execution.
    CHANGED = "ChangedSinceDecision"
    # Planned, but the API server refused the NodeClaim.
    CREATE_REFUSED = "CreateRefused"
    # Held back, because what was bought for the pod so far did not help.
    LAUNCH_BACK_OFF = "LaunchBackOff"
    MISFIT = "MachinesDidNotTakeIt"


@dataclass(frozen=True, slots=True)
class PoolRefusal:
    """Why one NodePool could not serve the pod: the step that emptied it and what each step removed."""

    pool: str
    why: Why
    message: str
    # Types removed by each step, in the order of the steps.
    removed: tuple[tuple[str, int], ...] = ()
    nearest: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod was left out, per NodePool where pools were asked."""

    why: Why
    message: str
    pools: tuple[PoolRefusal, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """One line for an event: the pools' reasons when there are any."""
        if not self.pools:
            return self.message
        # Events are cut: pools that the pod itself rules out must not hide what is wrong with those it wants.
        asked = [f'nodepool "{p.pool}": {p.message}' for p in self.pools if p.why is not Why.OTHER_POOL]
        others = [p.pool for p in self.pools if p.why is Why.OTHER_POOL]
        if others and asked:
            asked.append(f"{len(others)} other nodepools are not what the pod asks for")
        if not asked:
            listed = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
            return f"{self.pools[0].message}, but the nodepools are {listed}"
        return "; ".join(asked)
