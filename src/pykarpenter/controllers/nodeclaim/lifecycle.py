"""The main loop of a NodeClaim: finalizer, launch, registration, initialization, liveness; or its termination.

Each step reads its phase off the claim, writes what it found, and hands the fresh claim to the next. A step that
fails does not keep liveness from being checked: a claim that cannot be launched still runs out of time.
"""

from __future__ import annotations

import msgspec

from pykarpenter.api import kinds, labels
from pykarpenter.api.devices import ResourceSlice
from pykarpenter.api.meta import ObjectMeta
from pykarpenter.api.nodepool import NodeClaim, NodeClaimStatus
from pykarpenter.api.nodes import Node
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.identity import CLAIMS_BY_PROVIDER_ID, claims_of, is_managed_claim
from pykarpenter.controllers.nodeclaim.initialization import Initializer
from pykarpenter.controllers.nodeclaim.launch import Launcher
from pykarpenter.controllers.nodeclaim.nomination import PodNominations
from pykarpenter.controllers.nodeclaim.registration import Registrar
from pykarpenter.controllers.nodeclaim.termination import ClaimTerminator
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.core.lifecycle import Phase, check_liveness, phase_of, step
from pykarpenter.runtime.controller import Controller, Result
from pykarpenter.runtime.logs import get_logger

NAME = "nodeclaim.lifecycle"
WORKERS = (1000, 5000)
# Kinds that are not served any more: look again this often (F33).
UNSERVED_S = 5.0


class NodeClaimLifecycle:
    def __init__(self, ctx: Context, nominations: PodNominations) -> None:
        self._ctx = ctx
        self._writer = ClaimWriter(ctx)
        self._launcher = Launcher(ctx, self._writer)
        self._registrar = Registrar(ctx, self._writer, nominations)
        self._initializer = Initializer(ctx, self._writer)
        self._terminator = ClaimTerminator(ctx, self._writer, self._launcher)
        self._claims = ctx.caches.of(kinds.NODE_CLAIM)
        self._log = get_logger(controller=NAME)
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, clock=ctx.clock, workers=ctx.settings.workers(*WORKERS)
        )
        ctx.caches.subscribe(kinds.NODE_CLAIM, self._claim_changed)
        ctx.caches.subscribe(kinds.NODE, self._node_changed)
        if not ctx.settings.ignore_dra_requests:
            ctx.caches.subscribe(kinds.RESOURCE_SLICE, self._slice_changed)

    async def run(self) -> None:
        await self.controller.run()

    def _claim_changed(self, change: Changed[NodeClaim]) -> None:
        if change.old is not None and change.new is not None and _differ_in_words(change.old, change.new):
            # Mostly our own note of an error, which waits for its back-off: clouds word the same one anew each time.
            return
        if change.new is not None and is_managed_claim(change.new, self._ctx.provider.traits):
            self.controller.enqueue(change.new.name)
        for provider_id in sorted({c.status.provider_id for c in (change.old, change.new) if c is not None}):
            # A second claim of the same machine concerns the first, and so does its end.
            for claim in claims_of(self._ctx, provider_id):
                if change.new is None or claim.uid != change.new.uid:
                    self.controller.enqueue(claim.name)

    def _node_changed(self, change: Changed[Node]) -> None:
        for node in (change.old, change.new):
            if node is not None:
                self._enqueue_claims_of(node)

    def _slice_changed(self, change: Changed[ResourceSlice]) -> None:
        for item in (change.old, change.new):
            node = self._ctx.caches.of(kinds.NODE).get(item.spec.node_name or "") if item is not None else None
            if node is not None:
                self._enqueue_claims_of(node)

    def _enqueue_claims_of(self, node: Node) -> None:
        if node.spec.provider_id:
            for claim in self._claims.index(CLAIMS_BY_PROVIDER_ID, node.spec.provider_id):
                self.controller.enqueue(claim.name)

    async def reconcile(self, name: str) -> Result | None:
        claim = self._claims.get(name)
        if claim is None or not is_managed_claim(claim, self._ctx.provider.traits):
            return None
        if claim.is_deleting:
            return await self._terminator.terminate(claim)
        if labels.TERMINATION_FINALIZER not in claim.metadata.finalizers:
            # First of all: from here on the claim cannot vanish while a machine of it exists.
            finalizers = [*claim.metadata.finalizers, labels.TERMINATION_FINALIZER]
            claim = await self._writer.metadata(claim, finalizers=finalizers)
        return await self._advance(claim)

    async def _advance(self, claim: NodeClaim) -> Result | None:
        problem: Exception | None = None
        retry_after_s: float | None = None
        if self._ctx.caches.unserved() and phase_of(claim) is Phase.LAUNCHING:
            # Nothing is bought while pools or classes cannot be read, and that is not the claim's failure.
            return Result(requeue_after_s=UNSERVED_S)
        try:
            if phase_of(claim) is Phase.LAUNCHING:
                launch = await self._launcher.launch(claim)
                if launch.claim is None:
                    return None
                claim = launch.claim
                if launch.error is not None:
                    raise launch.error
                self._tell("launched nodeclaim", claim, provider_id=claim.status.provider_id)
            if phase_of(claim) is Phase.REGISTERING:
                registration = await self._registrar.register(claim)
                claim, retry_after_s = registration.claim, registration.retry_after_s
                if phase_of(claim) is not Phase.REGISTERING:
                    self._tell("registered nodeclaim", claim, node=claim.status.node_name)
            if phase_of(claim) is Phase.INITIALIZING:
                claim = await self._initializer.initialize(claim)
                if phase_of(claim) is not Phase.INITIALIZING:
                    self._tell("initialized nodeclaim", claim, node=claim.status.node_name)
            if phase_of(claim) in (Phase.READY, Phase.REBOOTING):
                claim = await self._registrar.check_identity(claim)
        except Exception as error:
            problem = error
        check_after_s = await self._check_liveness(claim)
        if problem is not None:
            raise problem
        waits = [wait for wait in (retry_after_s, check_after_s) if wait is not None]
        return Result(requeue_after_s=min(waits)) if waits else None

    def _tell(self, message: str, claim: NodeClaim, **facts: str) -> None:
        """One line per step of a claim's life, all tied to the plan that asked for it."""
        plan = claim.metadata.annotations.get(labels.PLAN_ID, "")
        self._log.info(message, nodeclaim=claim.name, nodepool=claim.pool_name, plan=plan, **facts)

    async def _check_liveness(self, claim: NodeClaim) -> float | None:
        """Give the claim up when it is overdue; else the seconds it still has."""
        liveness = check_liveness(claim, self._ctx.clock.now())
        if liveness.overdue is None:
            return liveness.check_after_s
        reason = step(phase_of(claim), liveness.overdue.fact).give_up
        self._log.info("giving up nodeclaim", nodeclaim=claim.name, reason=reason)
        await self._writer.give_up(claim, reason)
        return None


def _differ_in_words(old: NodeClaim, new: NodeClaim) -> bool:
    """Whether nothing but reasons and messages of conditions is another."""
    if old.spec != new.spec or _without_version(old.metadata) != _without_version(new.metadata):
        return False
    return _without_words(old.status) == _without_words(new.status)


def _without_version(meta: ObjectMeta) -> ObjectMeta:
    return msgspec.structs.replace(meta, resource_version="")


def _without_words(status: NodeClaimStatus) -> NodeClaimStatus:
    bare = [msgspec.structs.replace(c, reason="", message="") for c in status.conditions]
    return msgspec.structs.replace(status, conditions=bare)
