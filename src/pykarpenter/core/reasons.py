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
        return "; ".join(f'nodepool "{p.pool}": {p.message}' for p in self.pools)
