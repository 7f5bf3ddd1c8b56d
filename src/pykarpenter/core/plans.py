"""What a decision wants done: frozen intents that carry their reasons and the facts they rely on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from pykarpenter.api.pods import NodeSelectorRequirement
from pykarpenter.core.reasons import Refusal
from pykarpenter.core.resources import Resources


@dataclass(frozen=True, slots=True)
class OfferingChoice:
    """The cheapest launchable offering of a planned machine; `price` is $/hour, None when unknown."""

    instance_type: str
    zone: str
    capacity_type: str
    price: float | None


@dataclass(frozen=True, slots=True)
class PlannedClaim:
    """A NodeClaim to create and the pods it is bought for."""

    node_pool: str
    requirements: tuple[NodeSelectorRequirement, ...]
    # Every type that fits, cheapest first, at most 600.
    instance_types: tuple[str, ...]
    requests: Resources
    pods: tuple[str, ...]
    choice: OfferingChoice
    # The most the claim can add to the pool's usage, per resource, with `nodes: 1`: what the ledger reserves.
    max_capacity: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExistingPlacement:
    """Pods expected on a machine that exists or is on its way."""

    node: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The answer of one provisioning decision."""

    claims: tuple[PlannedClaim, ...] = ()
    existing: tuple[ExistingPlacement, ...] = ()
    # By pod key `namespace/name`.
    unschedulable: Mapping[str, Refusal] = field(default_factory=dict)
    # Pods that wait for reserved capacity: no event, not counted as unschedulable.
    deferred: Mapping[str, Refusal] = field(default_factory=dict)
    # Pods that never entered the packing: invalid, opted out.
    ignored: Mapping[str, Refusal] = field(default_factory=dict)
    # Pools whose requirements leave no instance type, with the reason.
    empty_pools: Mapping[str, Refusal] = field(default_factory=dict)
    # $/h of the new claims' cheapest offerings; None when a price is unknown.
    price_per_hour: float | None = 0.0
    lower_bound: float | None = None


def claim_name(pool: str, plan_id: str, index: int) -> str:
    """`<pool>-<hash>`: a retry of the same plan gets the same name, so it cannot create a second claim."""
    digest = hashlib.sha256(f"{plan_id}/{index}".encode()).hexdigest()[:10]
    return f"{pool[:52]}-{digest}"
