"""A cloud in which an instance is a thing apart from its Node, with lies and failures to order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import ObjectMeta
from pykarpenter.api.nodepool import NodeClaim, NodeClaimStatus, NodePool
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.cloud.catalog import read_catalog
from pykarpenter.cloud.errors import NodeClaimNotFound
from pykarpenter.cloud.provider import Interruption, ProviderTraits, RegistrationHook
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.kube.errors import AlreadyExists
from pykarpenter.providers.kwok import machines
from pykarpenter.providers.kwok.provider import NODE_CLASS, REPAIR_POLICIES
from tests.machines.world import World

S = TypeVar("S", bound=msgspec.Struct)

SIZE = {"cpu": "4", "memory": "8Gi", "pods": "64"}


class Cloud:
    """Launches are found again by the claim's UID. `faults[call]` is asked before each call and may raise."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.instances: dict[str, NodeClaim] = {}
        self.launched: list[str] = []
        self.deletes: list[str] = []
        self.faults: dict[str, Callable[[Any], None]] = {}
        self.after: dict[str, Callable[[Any], None]] = {}
        self.registers = True
        self.ignored_deletes = 0
        self.hidden: set[str] = set()
        self.drift = ""
        self.hooks: list[RegistrationHook] = []
        self.reboots: list[str] = []
        self.warned: list[Interruption] = []
        self.catalog = read_catalog("kwok")
        self.traits = ProviderTraits("fake", (NODE_CLASS,), self.catalog.label_rules, repair_policies=REPAIR_POLICIES)

    def _ask(self, call: str, argument: Any = None) -> None:
        if call in self.faults:
            self.faults[call](argument)

    def _answer(self, call: str, argument: Any = None) -> None:
        if call in self.after:
            self.after[call](argument)

    async def create(self, claim: NodeClaim) -> NodeClaim:
        self._ask("create", claim)
        provider_id = f"fake://{claim.uid}"
        if provider_id not in self.instances:
            choice = machines.choose(claim, self.catalog.types, self.catalog.label_rules)
            assert choice is not None
            view = machines.launched_view(claim, choice, self.catalog.label_rules)
            self.instances[provider_id] = NodeClaim(
                metadata=ObjectMeta(
                    name=claim.name,
                    uid=claim.uid,
                    labels=view.metadata.labels,
                    creation_timestamp=format_timestamp(self._world.clock.now()),
                ),
                status=NodeClaimStatus(
                    provider_id=provider_id,
                    image_id="image-1",
                    capacity=view.status.capacity,
                    allocatable=view.status.allocatable,
                ),
            )
            self.launched.append(claim.name)
            if self.registers:
                await self.register(claim)
        self._answer("create", claim)
        return self.instances[provider_id]

    async def register(self, claim: NodeClaim, name: str = "", tainted: bool = True) -> None:
        """The machine joins the cluster."""
        choice = machines.choose(claim, self.catalog.types, self.catalog.label_rules)
        assert choice is not None
        body = machines.node_body(claim, choice, self.catalog.label_rules)
        body["metadata"]["name"] = name or f"node-{claim.name}"
        body["spec"]["providerID"] = f"fake://{claim.uid}"
        if not tainted:
            body["spec"]["taints"] = []
        try:
            await self._world.api.create(kinds.NODE, body)
        except AlreadyExists:
            return

    async def delete(self, claim: NodeClaim) -> None:
        self._ask("delete", claim)
        provider_id = claim.status.provider_id
        if provider_id not in self.instances:
            raise NodeClaimNotFound(provider_id)
        self.deletes.append(provider_id)
        if self.ignored_deletes > 0:
            self.ignored_deletes -= 1
            return
        del self.instances[provider_id]
        self._answer("delete", claim)

    async def get(self, provider_id: str) -> NodeClaim:
        self._ask("get", provider_id)
        if provider_id not in self.instances:
            raise NodeClaimNotFound(provider_id)
        return self.instances[provider_id]

    async def list_instances(self) -> list[NodeClaim]:
        self._ask("list")
        return [view for key, view in sorted(self.instances.items()) if key not in self.hidden]

    async def instance_types(self, pool: NodePool) -> list[InstanceType]:
        self._ask("types", pool)
        return list(self.catalog.types)

    async def is_drifted(self, claim: NodeClaim) -> str:
        return self.drift

    async def reboot(self, claim: NodeClaim, operation_id: str) -> None:
        self._ask("reboot", operation_id)
        self.reboots.append(operation_id)

    def registration_hooks(self) -> list[RegistrationHook]:
        return self.hooks

    async def interruptions(self) -> list[Interruption]:
        self._ask("interruptions")
        return list(self.warned)

    def lose(self, claim: NodeClaim) -> None:
        """The instance vanishes without a word."""
        self.instances.pop(f"fake://{claim.uid}", None)

    def orphan(self, name: str = "lost", age_s: float = 3600.0) -> str:
        """An instance that nobody claims."""
        provider_id = f"fake://{name}"
        self.instances[provider_id] = NodeClaim(
            metadata=ObjectMeta(
                name=name,
                uid=name,
                creation_timestamp=format_timestamp(self._world.clock.now() - age_s),
                labels={labels.NODEPOOL: "pool"},
            ),
            status=NodeClaimStatus(provider_id=provider_id),
        )
        return provider_id


def cloud_world(world: World) -> Cloud:
    """Give the world this cloud instead of KWOK."""
    cloud = Cloud(world)
    world.provider = cloud
    return cloud


def copy_of(struct: S, **changes: Any) -> S:
    return msgspec.structs.replace(struct, **changes)
