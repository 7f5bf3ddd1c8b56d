"""The end of a NodeClaim: stamp the deadline, wait for its Nodes, delete the instance, release the finalizer.

The finalizer goes only after the provider said that the instance is gone, or when it is certain that there never was
one. An instance that another claim or Node lays claim to is not deleted in this claim's name.
"""

from __future__ import annotations

from contextlib import suppress

from pykarpenter.api import kinds, labels
from pykarpenter.api.duration import InvalidDuration
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.api.timestamps import format_timestamp, parse_optional_timestamp
from pykarpenter.cloud.errors import NodeClaimNotFound
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.identity import claim_reference, nodes_of
from pykarpenter.controllers.nodeclaim.launch import Launcher
from pykarpenter.controllers.nodeclaim.registration import identity_conflict
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.core.conditions import Finding, shorten
from pykarpenter.core.lifecycle import (
    IDENTITY_CONFLICT,
    INSTANCE_TERMINATING,
    REGISTERED,
    TERMINATION_BLOCKED,
    condition_since,
    wanted_deadline,
)
from pykarpenter.core.termination import ClaimFact, ClaimPhase, ClaimStep, claim_step
from pykarpenter.kube.contract import DeleteOptions, Preconditions
from pykarpenter.kube.errors import Conflict, NotFound
from pykarpenter.runtime.controller import Result
from pykarpenter.runtime.logs import get_logger


class ClaimTerminator:
    def __init__(self, ctx: Context, writer: ClaimWriter, launcher: Launcher) -> None:
        self._ctx = ctx
        self._writer = writer
        self._launcher = launcher
        self._log = get_logger(controller="nodeclaim.lifecycle")

    async def terminate(self, claim: NodeClaim) -> Result | None:
        if labels.TERMINATION_FINALIZER not in claim.metadata.finalizers:
            return None
        claim = await self._stamp(claim)
        step = claim_step(ClaimPhase.STAMPING, ClaimFact.STAMPED)
        while step.phase is not ClaimPhase.RELEASED and step.poll_s is None:
            if step.phase is ClaimPhase.AWAITING_NODES:
                fact, message = await self._observe_nodes(claim)
            else:
                fact, message = await self._observe_instance(claim)
            step = claim_step(step.phase, fact)
            if step.condition:
                await self._record(claim, step, message)
        if step.phase is not ClaimPhase.RELEASED:
            return Result(requeue_after_s=step.poll_s)
        await self._release(claim)
        return None

    async def _stamp(self, claim: NodeClaim) -> NodeClaim:
        try:
            deadline = wanted_deadline(claim)
        except InvalidDuration as error:
            # Without a readable period there is no deadline; the drain then waits for its pods.
            self._log.error("terminationGracePeriod cannot be read", error=error, nodeclaim=claim.name)
            return claim
        if deadline is None:
            return claim
        stamp = format_timestamp(deadline)
        claim = await self._writer.metadata(claim, annotations={labels.TERMINATION_TIMESTAMP: stamp})
        self._ctx.recorder.publish(
            claim_reference(claim),
            "Warning",
            "TerminationGracePeriodExpiring",
            f"All pods will be deleted by {stamp}",
            dedupe=(claim.uid,),
        )
        return claim

    async def _observe_nodes(self, claim: NodeClaim) -> tuple[ClaimFact, str]:
        """Delete the Nodes of a registered claim; they drain, and leave when their pods have."""
        if condition_status(claim.status.conditions, REGISTERED) != "True":
            return ClaimFact.NEVER_REGISTERED, ""
        left = nodes_of(self._ctx, claim)
        conflict = identity_conflict(self._ctx, claim, left)
        if conflict:
            return ClaimFact.IDENTITY_CONFLICT, conflict
        for node in left:
            if not node.is_deleting:
                await self._delete_node(node)
        if not left and await self._node_is_there(claim):
            # The watch is behind: a Node that is still there may still run pods.
            return ClaimFact.NODES_LEFT, ""
        return (ClaimFact.NODES_LEFT if left else ClaimFact.NODES_GONE), ""

    async def _delete_node(self, node: Node) -> None:
        # Gone, replaced by another of that name, or newer than what we have seen (S9): the next look judges it anew.
        expected = Preconditions(uid=node.uid, resource_version=node.metadata.resource_version)
        with suppress(NotFound, Conflict):
            await self._ctx.api.delete(kinds.NODE, node.name, options=DeleteOptions(expected))

    async def _node_is_there(self, claim: NodeClaim) -> bool:
        if not claim.status.node_name:
            return False
        try:
            node = await self._ctx.api.get(kinds.NODE, claim.status.node_name)
        except NotFound:
            return False
        return node.spec.provider_id == claim.status.provider_id

    async def _observe_instance(self, claim: NodeClaim) -> tuple[ClaimFact, str]:
        provider_id = claim.status.provider_id
        if not provider_id:
            return await self._observe_unrecorded(claim)
        conflict = identity_conflict(self._ctx, claim, nodes_of(self._ctx, claim))
        if conflict:
            return ClaimFact.IDENTITY_CONFLICT, conflict
        # Only the answer to a delete says that an instance is gone; a read may lag behind a launch.
        with suppress(NodeClaimNotFound):
            view = await self._ctx.provider.get(provider_id)
            if view.uid and view.uid != claim.uid:
                return ClaimFact.IDENTITY_CONFLICT, f"instance {provider_id} was launched for NodeClaim {view.name}"
        return await self._delete_instance(claim, claim), ""

    async def _observe_unrecorded(self, claim: NodeClaim) -> tuple[ClaimFact, str]:
        """A claim without providerID: a crash may have come between its launch and the note of it (F2)."""
        if self._launcher.was_refused(claim.uid):
            return ClaimFact.NEVER_LAUNCHED, ""
        for view in await self._ctx.provider.list_instances():
            if view.uid == claim.uid:
                return await self._delete_instance(claim, view), ""
        return ClaimFact.NEVER_LAUNCHED, ""

    async def _delete_instance(self, claim: NodeClaim, instance: NodeClaim) -> ClaimFact:
        try:
            await self._ctx.provider.delete(instance)
        except NodeClaimNotFound:
            return ClaimFact.INSTANCE_GONE
        except Exception as error:
            message = shorten(f"deleting instance {instance.status.provider_id} failed: {error}")
            await self._writer.status(claim, Finding(TERMINATION_BLOCKED, "True", "InstanceDeleteFailed", message))
            raise
        return ClaimFact.INSTANCE_THERE

    async def _record(self, claim: NodeClaim, step: ClaimStep, message: str) -> None:
        clear = (TERMINATION_BLOCKED,) if step.condition == INSTANCE_TERMINATING else ()
        if step.condition == IDENTITY_CONFLICT:
            self._log.error("instance not deleted", nodeclaim=claim.name, reason=message)
            self._ctx.recorder.publish(
                claim_reference(claim), "Warning", "IdentityConflict", shorten(message), dedupe=(claim.uid,)
            )
        await self._writer.status(claim, step.finding(message), clear=clear)

    async def _release(self, claim: NodeClaim) -> None:
        """Every other finalizer stays; the counters follow only a release that this call made."""
        left = [name for name in claim.metadata.finalizers if name != labels.TERMINATION_FINALIZER]
        try:
            await self._writer.metadata(claim, finalizers=left)
        except NotFound:
            return
        self._log.info("deleted nodeclaim", nodeclaim=claim.name, provider_id=claim.status.provider_id)
        pool = {"nodepool": claim.pool_name}
        metrics, now = self._ctx.metrics, self._ctx.clock.now()
        deleted = parse_optional_timestamp(claim.metadata.deletion_timestamp)
        if deleted is not None:
            metrics.observe("karpenter_nodeclaims_termination_duration_seconds", pool, now - deleted)
        since = condition_since(claim, INSTANCE_TERMINATING)
        if condition_status(claim.status.conditions, INSTANCE_TERMINATING) == "True" and since is not None:
            metrics.observe("karpenter_nodeclaims_instance_termination_duration_seconds", pool, now - since)
        metrics.count(
            "karpenter_nodeclaims_terminated_total",
            {
                **pool,
                "capacity_type": claim.metadata.labels.get(labels.CAPACITY_TYPE, ""),
                "zone": claim.metadata.labels.get(labels.ZONE, ""),
            },
        )
