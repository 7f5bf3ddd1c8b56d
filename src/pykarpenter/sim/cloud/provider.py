"""The provider `sim`: the CloudProvider contract on the simulated cloud.

Machines are found by tags, never by Node: one that lacks any ownership tag of this cluster is neither listed nor
touched. Launches carry the claim's UID as token, so a repeat finds the machine of the first.
"""

from __future__ import annotations

from dataclasses import replace

from pykarpenter.api import labels
from pykarpenter.api.duration import parse_duration
from pykarpenter.api.kinds import SIM_NODE_CLASS
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodeClaim, NodePool, SimNodeClass
from pykarpenter.api.quantity import requested
from pykarpenter.cloud.catalog import RESERVATION_ID
from pykarpenter.cloud.errors import CloudError, InsufficientCapacity, NodeClaimNotFound, NodeClassNotReady
from pykarpenter.cloud.provider import Interruption, NodeClassKind, ProviderTraits, RegistrationHook, RepairPolicy
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.requirements import from_expressions
from pykarpenter.core.resources import fits
from pykarpenter.kube.contract import KubeApi
from pykarpenter.kube.errors import NotFound
from pykarpenter.runtime.clock import Clock
from pykarpenter.sim.cloud.cloud import LaunchRequest, SimCloud
from pykarpenter.sim.cloud.instances import (
    TAG_CLAIM,
    TAG_CLAIM_UID,
    TAG_CLUSTER,
    TAG_POOL,
    TERMINATED,
    Instance,
    claim_view,
    instance_id,
    single_values,
)

NODE_CLASS = NodeClassKind("pykarpenter.sh", "v1alpha1", "SimNodeClass", "simnodeclasses")
IMAGE_DRIFT = "ImageDrift"

REPAIR_POLICIES: tuple[RepairPolicy, ...] = (
    RepairPolicy("Ready", "False", "", 600.0, 0.0, 0, "ReplaceNode"),
    RepairPolicy("Ready", "Unknown", ".*", 600.0, 0.0, 0, "ReplaceNode"),
    RepairPolicy("SimUnhealthy", "True", ".*", 30.0, 45.0, 0, "ReplaceNode"),
    RepairPolicy("SimRebootRequired", "True", ".*", 30.0, 60.0, 0, "RebootNode"),
)


class SimProvider:
    """Satisfies `cloud.provider.CloudProvider`."""

    def __init__(self, api: KubeApi, clock: Clock, cloud: SimCloud, *, cluster: str = "embedded") -> None:
        self._api = api
        self._clock = clock
        self._cloud = cloud
        self._cluster = cluster
        rules = cloud.market.catalog.label_rules
        # Reservations can be made while the cloud runs, so their label is known from the start.
        self._rules = replace(rules, well_known=rules.well_known | {RESERVATION_ID})
        self._listed: tuple[tuple[InstanceType, ...], list[InstanceType]] = ((), [])
        self._traits = ProviderTraits(
            name="sim",
            node_classes=(NODE_CLASS,),
            label_rules=self._rules,
            reservation_id_label=RESERVATION_ID,
            repair_policies=REPAIR_POLICIES,
        )

    @property
    def traits(self) -> ProviderTraits:
        return self._traits

    async def create(self, claim: NodeClaim) -> NodeClaim:
        node_class = await self._node_class(claim)
        if condition_status(node_class.status.conditions, "Ready") == "False":
            raise NodeClassNotReady(f"SimNodeClass {node_class.name!r} is not ready")
        choices = self._choices(claim)
        delay = node_class.spec.boot_delay
        request = LaunchRequest(
            token=self._token(claim),
            tags={
                TAG_CLUSTER: self._cluster,
                TAG_CLAIM: claim.name,
                TAG_CLAIM_UID: claim.uid,
                TAG_POOL: claim.pool_name,
            },
            choices=choices,
            image=node_class.spec.image,
            node_name=f"sim-{claim.name}",
            labels={
                **claim.metadata.labels,
                **single_values(from_expressions(claim.spec.requirements, self._rules)),
            },
            boot_delay_s=parse_duration(delay) if delay else None,
        )
        return claim_view(await self._cloud.launch(request))

    def _token(self, claim: NodeClaim) -> str:
        """What makes a launch repeatable: the claim's UID outlives a crash, so the same claim never buys twice."""
        return claim.uid

    def _choices(self, claim: NodeClaim) -> tuple[tuple[InstanceType, Offering], ...]:
        """What the claim allows and fits into, reserved first, then by price."""
        wanted = from_expressions(claim.spec.requirements, self._rules)
        named = wanted.get_or_exists(labels.INSTANCE_TYPE)
        requests = requested(claim.spec.resources.requests)
        found = [
            (item, offering)
            for item in self._cloud.market.types(self._clock.now(), self._cloud.reserved_used())
            if named.allows(item.name) and wanted.compatible(item.requirements, self._rules.well_known)
            for offering in item.offerings
            if offering.launchable
            and wanted.compatible(offering.requirements, self._rules.well_known)
            and fits(requests, item.allocatable(offering))
        ]

        def rank(choice: tuple[InstanceType, Offering]) -> tuple[bool, float, str, str]:
            item, offering = choice
            price = float("inf") if offering.price is None else offering.price
            return offering.capacity_type != labels.RESERVED, price, item.name, offering.zone

        return tuple(sorted(found, key=rank))

    async def _node_class(self, claim: NodeClaim) -> SimNodeClass:
        name = claim.spec.node_class_ref.name
        try:
            return await self._api.get(SIM_NODE_CLASS, name)
        except NotFound as error:
            message = f"SimNodeClass {name!r} does not exist; create it or change nodeClassRef"
            raise InsufficientCapacity(message) from error

    async def delete(self, claim: NodeClaim) -> None:
        ident = instance_id(claim.status.provider_id)
        instance = await self._cloud.describe(ident) if ident else None
        if instance is None or instance.state == TERMINATED:
            raise NodeClaimNotFound(f"instance {claim.status.provider_id!r} is gone")
        if not self._is_ours(instance) or (claim.uid and instance.tags[TAG_CLAIM_UID] != claim.uid):
            raise CloudError(f"instance {instance.id} is not tagged for NodeClaim {claim.name!r} of this cluster")
        if not await self._cloud.terminate(instance.id):
            raise NodeClaimNotFound(f"instance {claim.status.provider_id!r} is gone")

    async def get(self, provider_id: str) -> NodeClaim:
        ident = instance_id(provider_id)
        instance = await self._cloud.describe(ident) if ident else None
        if instance is None or instance.state == TERMINATED or not self._is_ours(instance):
            raise NodeClaimNotFound(f"instance {provider_id!r} is gone")
        return claim_view(instance)

    async def list_instances(self) -> list[NodeClaim]:
        return [claim_view(i) for i in await self._cloud.list_instances() if self._is_ours(i)]

    def _is_ours(self, instance: Instance) -> bool:
        """All ownership tags, not some: similar tags of others must not be enough (F31)."""
        tags = instance.tags
        return tags.get(TAG_CLUSTER) == self._cluster and all(t in tags for t in (TAG_CLAIM, TAG_CLAIM_UID, TAG_POOL))

    async def instance_types(self, pool: NodePool) -> list[InstanceType]:
        types = self._cloud.market.types(self._clock.now(), self._cloud.reserved_used())
        if self._listed[0] is not types:
            # The same list object while nothing changed: readers cache by identity.
            self._listed = (types, list(types))
        return self._listed[1]

    async def is_drifted(self, claim: NodeClaim) -> str:
        ident = instance_id(claim.status.provider_id)
        instance = await self._cloud.describe(ident) if ident else None
        if instance is None:
            return ""
        try:
            node_class = await self._api.get(SIM_NODE_CLASS, claim.spec.node_class_ref.name)
        except NotFound:
            return ""
        return IMAGE_DRIFT if instance.image != node_class.spec.image else ""

    async def reboot(self, claim: NodeClaim, operation_id: str) -> None:
        if not await self._cloud.reboot(instance_id(claim.status.provider_id), operation_id):
            raise NodeClaimNotFound(f"instance {claim.status.provider_id!r} is gone")

    def registration_hooks(self) -> list[RegistrationHook]:
        return []

    async def interruptions(self) -> list[Interruption]:
        ours = {i.provider_id for i in self._cloud.live() if self._is_ours(i)}
        return [item for item in await self._cloud.interruptions() if item.provider_id in ours]
