"""The contract between the core and a cloud: what a provider must do, and what the core may assume."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from pykarpenter.api.labels import DEFAULT_RULES, LabelRules
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.repair import RepairPolicy as RepairPolicy


@dataclass(frozen=True, slots=True)
class NodeClassKind:
    """A kind of class that the provider understands."""

    group: str
    version: str
    kind: str
    plural: str


@dataclass(frozen=True, slots=True)
class HookResult:
    """A registration hook's answer: pass, or ask again after a while."""

    passed: bool
    requeue_after_s: float = 0.0


class RegistrationHook(Protocol):
    name: str

    async def registered(self, claim: NodeClaim) -> HookResult: ...


@dataclass(frozen=True, slots=True)
class Interruption:
    """A machine that the cloud announced to take away; `at` is epoch seconds, None when unknown."""

    provider_id: str
    reason: str
    at: float | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class ProviderTraits:
    """Static facts about a provider that decisions need."""

    name: str
    node_classes: tuple[NodeClassKind, ...]
    label_rules: LabelRules = field(default_factory=lambda: DEFAULT_RULES)
    reservation_id_label: str = ""
    repair_policies: tuple[RepairPolicy, ...] = ()
    unsupported_csi_drivers: frozenset[str] = frozenset()


class CloudProvider(Protocol):
    """Errors are those of `cloud.errors`. Calls may be repeated: a launch is idempotent per NodeClaim UID."""

    @property
    def traits(self) -> ProviderTraits: ...

    async def create(self, claim: NodeClaim) -> NodeClaim:
        """Launch; answers the claim with resolved labels, annotations, providerID, imageID, capacity, allocatable."""
        ...

    async def delete(self, claim: NodeClaim) -> None:
        """Returns when the deletion was triggered; raises NodeClaimNotFound once the instance is gone."""
        ...

    async def get(self, provider_id: str) -> NodeClaim:
        """The instance as a claim-shaped view; raises NodeClaimNotFound."""
        ...

    async def list_instances(self) -> list[NodeClaim]:
        """Every instance this cluster owns, as claim-shaped views."""
        ...

    async def instance_types(self, pool: NodePool) -> list[InstanceType]:
        """All types of the pool's class, unavailable offerings included."""
        ...

    async def is_drifted(self, claim: NodeClaim) -> str:
        """The drift reason, or an empty string."""
        ...

    async def reboot(self, claim: NodeClaim, operation_id: str) -> None: ...

    def registration_hooks(self) -> list[RegistrationHook]: ...

    async def interruptions(self) -> list[Interruption]:
        """Announced interruptions that have not been acknowledged; empty when the provider has no such channel."""
        ...
