"""The KWOK provider: launching creates a Node object, deleting removes it; the Node is the instance.

It answers from the API server, never from memory, except for machines whose registration is delayed on purpose.
It never touches a NodeClaim, and never deletes a Node that was made for another claim.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykarpenter.api import labels
from pykarpenter.api.duration import InvalidDuration, parse_duration
from pykarpenter.api.kinds import KWOK_NODE_CLASS, NODE, NODE_CLAIM
from pykarpenter.api.meta import condition_status, find_condition
from pykarpenter.api.nodepool import KWOKNodeClass, NodeClaim, NodePool
from pykarpenter.api.nodes import Node
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.cloud.catalog import RESERVATION_ID, Catalog
from pykarpenter.cloud.errors import CloudError, CreateError, InsufficientCapacity, NodeClaimNotFound, NodeClassNotReady
from pykarpenter.cloud.provider import Interruption, NodeClassKind, ProviderTraits, RegistrationHook, RepairPolicy
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.requirements import from_expressions
from pykarpenter.kube.contract import DeleteOptions, KubeApi, Preconditions, Selection, list_all
from pykarpenter.kube.errors import AlreadyExists, Conflict, NotFound
from pykarpenter.providers.kwok import machines
from pykarpenter.providers.kwok.registrar import Registrar
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.logs import get_logger
from pykarpenter.runtime.slices import in_slices

NODE_CLASS = NodeClassKind("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses")

REPAIR_POLICIES: tuple[RepairPolicy, ...] = (
    RepairPolicy("Ready", "False", "", 600.0, 0.0, 0, "ReplaceNode"),
    RepairPolicy("Ready", "Unknown", ".*", 600.0, 0.0, 0, "ReplaceNode"),
    RepairPolicy("KWOKUnhealthy", "True", ".*", 30.0, 45.0, 0, "ReplaceNode"),
    RepairPolicy("KWOKRebootRequired", "True", ".*", 30.0, 60.0, 0, "RebootNode"),
)

FAKE_NODES = Selection(label_selector=f"{machines.FAKE_NODE}=fake")


@dataclass(frozen=True, slots=True)
class Launch:
    """One machine being launched: the claim, what it gets, and how long its Node lets itself be waited for."""

    claim: NodeClaim
    choice: machines.Choice
    delay_s: float


class KwokProvider:
    """Satisfies `cloud.provider.CloudProvider`."""

    def __init__(self, api: KubeApi, clock: Clock, catalog: Catalog) -> None:
        self._api = api
        self._clock = clock
        self._catalog = catalog
        self._registrar = Registrar(clock)
        self._log = get_logger(controller="kwok.provider")
        self._rules = catalog.label_rules
        self._traits = ProviderTraits(
            name="kwok",
            node_classes=(NODE_CLASS,),
            label_rules=self._rules,
            reservation_id_label=RESERVATION_ID,
            repair_policies=REPAIR_POLICIES,
        )

    @property
    def traits(self) -> ProviderTraits:
        return self._traits

    async def create(self, claim: NodeClaim) -> NodeClaim:
        """Launch, or find again what an earlier call launched for this claim's UID."""
        known = await self._find(machines.node_name(claim))
        if known is not None and known.status.allocatable:
            return machines.node_view(known)
        launch = await self.resolve(claim)
        if known is None and launch.delay_s > 0:
            view = machines.launched_view(claim, launch.choice, self._rules)
            self._registrar.register_after(claim, view, launch.delay_s)
            return view
        node = await self.register(launch)
        return machines.node_view(node)

    async def resolve(self, claim: NodeClaim) -> Launch:
        """What the claim gets; raises the errors of a launch."""
        node_class = await self._node_class(claim)
        if condition_status(node_class.status.conditions, "Ready") == "False":
            raise NodeClassNotReady(f"KWOKNodeClass {node_class.name!r} is not ready")
        named = from_expressions(claim.spec.requirements, self._rules).get(labels.INSTANCE_TYPE)
        if named is None or named.operator != "In":
            raise CreateError(
                "InstanceTypeRequired",
                f"requirements: no {labels.INSTANCE_TYPE} with values; list the instance types to launch from",
            )
        choice = machines.choose(claim, self._catalog.types, self._rules)
        if choice is None:
            raise InsufficientCapacity(
                f"no available offering of {len(named.values)} instance type(s) meets the requirements and requests"
            )
        delay = node_class.spec.node_registration_delay
        try:
            return Launch(claim, choice, parse_duration(delay) if delay else 0.0)
        except InvalidDuration as error:
            where = f"KWOKNodeClass {node_class.name!r}: spec.nodeRegistrationDelay"
            raise CreateError("InvalidNodeClass", f"{where}: {error}") from error

    async def register(self, launch: Launch) -> Node:
        """Create the Node of a launch; one that exists already is the same launch, found again."""
        body = machines.node_body(launch.claim, launch.choice, self._rules)
        name = machines.node_name(launch.claim)
        try:
            node = await self._api.create(NODE, body)
        except AlreadyExists:
            node = await self._api.get(NODE, name)
        if not node.status.allocatable:
            # Some API servers drop a status sent with a create, and a crash may have come before this line.
            node = await self._api.patch(NODE, name, {"status": body["status"]}, subresource="status")
        return node

    async def register_launched(self, claim: NodeClaim) -> None:
        """Register a delayed machine now, unless its claim is gone or going: a late Node would belong to nobody."""
        try:
            current = await self._api.get(NODE_CLAIM, claim.name)
        except NotFound:
            return
        if current.uid != claim.uid or current.is_deleting:
            return
        try:
            await self.register(await self.resolve(current))
        except CloudError as error:
            # Liveness gives the claim up when its Node does not come.
            self._log.error("a launched machine cannot be registered", error=error, nodeclaim=claim.name)

    async def resume(self) -> None:
        """Take up the delayed registrations of a process that is gone: claims launched here that have no Node."""
        for claim in await list_all(self._api, NODE_CLAIM):
            conditions = claim.status.conditions
            launched = (
                machines.name_of(claim.status.provider_id) and condition_status(conditions, "Registered") != "True"
            )
            if not launched or claim.is_deleting or await self._find(machines.node_name(claim)) is not None:
                continue
            try:
                launch = await self.resolve(claim)
            except CloudError as error:
                self._log.error("a launched machine cannot be registered", error=error, nodeclaim=claim.name)
                continue
            since = find_condition(conditions, "Launched")
            started = parse_optional_timestamp(since.last_transition_time if since else None) or 0.0
            left = max(0.0, started + launch.delay_s - self._clock.now())
            self._registrar.register_after(claim, machines.launched_view(claim, launch.choice, self._rules), left)

    async def run_registrations(self) -> None:
        """Background work: runs until cancelled."""
        await self.resume()
        await self._registrar.run(self.register_launched)

    async def _node_class(self, claim: NodeClaim) -> KWOKNodeClass:
        name = claim.spec.node_class_ref.name
        try:
            return await self._api.get(KWOK_NODE_CLASS, name)
        except NotFound as error:
            raise InsufficientCapacity(
                f"KWOKNodeClass {name!r} does not exist; create it or change nodeClassRef"
            ) from (error)

    async def _find(self, name: str) -> Node | None:
        try:
            return await self._api.get(NODE, name)
        except NotFound:
            return None

    async def delete(self, claim: NodeClaim) -> None:
        name = machines.name_of(claim.status.provider_id)
        self._registrar.forget(claim.status.provider_id)
        node = await self._find(name) if name else None
        if node is None or node.is_deleting:
            raise NodeClaimNotFound(f"instance {claim.status.provider_id!r} is gone")
        owner = node.metadata.annotations.get(machines.CLAIM_UID)
        if owner is not None and owner != claim.uid:
            raise CloudError(f"instance {claim.status.provider_id!r} belongs to NodeClaim UID {owner}, not {claim.uid}")
        try:
            await self._api.delete(NODE, name, options=DeleteOptions(Preconditions(uid=node.uid)))
        except (NotFound, Conflict) as error:
            # Gone meanwhile, or replaced by another Node of that name, which is not this claim's.
            raise NodeClaimNotFound(f"instance {claim.status.provider_id!r} is gone") from error

    async def get(self, provider_id: str) -> NodeClaim:
        name = machines.name_of(provider_id)
        node = await self._find(name) if name else None
        if node is not None:
            return machines.node_view(node)
        pending = self._registrar.pending(provider_id)
        if pending is None:
            raise NodeClaimNotFound(f"instance {provider_id!r} is gone")
        return pending

    async def list_instances(self) -> list[NodeClaim]:
        nodes = await list_all(self._api, NODE, FAKE_NODES)
        ours = [machines.node_view(n) async for n in in_slices(nodes) if n.spec.provider_id.startswith(machines.PREFIX)]
        seen = {view.status.provider_id for view in ours}
        return ours + [view for view in self._registrar.all_pending() if view.status.provider_id not in seen]

    async def instance_types(self, pool: NodePool) -> list[InstanceType]:
        return list(self._catalog.types)

    async def is_drifted(self, claim: NodeClaim) -> str:
        return ""

    async def reboot(self, claim: NodeClaim, operation_id: str) -> None:
        """Give the Node a boot ID of its own for this operation; the node never turns NotReady."""
        if not claim.status.node_name:
            raise CloudError(f"NodeClaim {claim.name!r} has no Node yet: only a registered machine can be rebooted")
        body = {"status": {"nodeInfo": {"bootID": f"kwok-{operation_id}"}}}
        try:
            await self._api.patch(NODE, claim.status.node_name, body, subresource="status")
        except NotFound as error:
            raise NodeClaimNotFound(f"instance {claim.status.provider_id!r} is gone") from error

    def registration_hooks(self) -> list[RegistrationHook]:
        return []

    async def interruptions(self) -> list[Interruption]:
        return []
