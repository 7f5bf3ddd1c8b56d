"""Registration: bring the claim's metadata to its Node and let workload in once every hook has passed.

A Node is this claim's only if it alone has the claim's providerID and names no other NodeClaim as its owner. Each
write to the Node carries the version it was decided on.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.cloud.provider import HookResult, RegistrationHook
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.identity import claim_reference, claims_of, conflicting_owner, nodes_of
from pykarpenter.controllers.nodeclaim.nomination import PodNominations
from pykarpenter.controllers.nodeclaim.opening import Opening
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.core.conditions import Finding, shorten
from pykarpenter.core.lifecycle import IDENTITY_CONFLICT, Fact, NodeSync, Phase, step, sync_node
from pykarpenter.runtime.logs import get_logger

HOOK_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class Registration:
    """The claim after the attempt, and when to try again if a hook is pending."""

    claim: NodeClaim
    retry_after_s: float | None = None


class Registrar:
    def __init__(self, ctx: Context, writer: ClaimWriter, nominations: PodNominations) -> None:
        self._ctx = ctx
        self._writer = writer
        self._opening = Opening(ctx, nominations)
        self._log = get_logger(controller="nodeclaim.lifecycle")

    async def register(self, claim: NodeClaim) -> Registration:
        nodes = nodes_of(self._ctx, claim)
        conflict = identity_conflict(self._ctx, claim, nodes)
        if conflict:
            return Registration(await self._in_conflict(claim, conflict))
        if not nodes:
            return await self._found(claim, Fact.NODE_MISSING, "Node not registered with cluster")
        if len(nodes) > 1:
            names = ", ".join(node.name for node in nodes)
            return await self._found(claim, Fact.SEVERAL_NODES, f"Invariant violated, matched multiple nodes: {names}")
        return await self._register_node(claim, nodes[0])

    async def check_identity(self, claim: NodeClaim) -> NodeClaim:
        """A registered claim whose machine another one claims, too, says so until somebody has corrected it."""
        conflict = identity_conflict(self._ctx, claim, nodes_of(self._ctx, claim))
        if conflict:
            return await self._in_conflict(claim, conflict)
        return await self._writer.status(claim, clear=(IDENTITY_CONFLICT,))

    async def _in_conflict(self, claim: NodeClaim, conflict: str) -> NodeClaim:
        if condition_status(claim.status.conditions, IDENTITY_CONFLICT) != "True":
            self._ctx.metrics.count("pykarpenter_identity_conflicts_total", {"kind": "NodeClaim"})
        finding = Finding(IDENTITY_CONFLICT, "True", "IdentityConflict", shorten(conflict))
        return await self._writer.status(claim, finding)

    async def _found(self, claim: NodeClaim, fact: Fact, message: str) -> Registration:
        finding = step(Phase.REGISTERING, fact).finding(message)
        return Registration(await self._writer.status(claim, finding, clear=(IDENTITY_CONFLICT,)))

    async def _register_node(self, claim: NodeClaim, node: Node) -> Registration:
        asked = _own_copy(claim)
        pending = await self._pending_hooks(asked)
        claim = await self._keep_changes(claim, asked)
        if not pending:
            current = await self._opening.moment(claim, node)
            if current is None:
                return Registration(claim, HOOK_RETRY_S)
            node = current
        wanted = sync_node(claim, node, complete=not pending)
        if wanted.taint_missing:
            self._warn_taint_missing(claim, node)
        await self._sync(claim, node, wanted)
        if pending:
            registration = await self._found(claim, Fact.HOOKS_PENDING, ", ".join(sorted(pending)))
            retry = min(result.requeue_after_s or HOOK_RETRY_S for result in pending.values())
            return Registration(registration.claim, retry)
        done = step(Phase.REGISTERING, Fact.NODE_REGISTERED)
        claim = await self._writer.status(
            claim, done.finding(), clear=(IDENTITY_CONFLICT,), fields={"nodeName": node.name}
        )
        self._ctx.metrics.count(
            "karpenter_nodes_created_total",
            {"nodepool": claim.pool_name, "zone": claim.metadata.labels.get(labels.ZONE, "")},
        )
        return Registration(claim)

    async def _pending_hooks(self, claim: NodeClaim) -> dict[str, HookResult]:
        """Hooks that have not passed, by name; one that fails is asked again, and holds up no other."""
        hooks = self._ctx.provider.registration_hooks()
        results = await asyncio.gather(*(self._ask(hook, claim) for hook in hooks))
        return {hook.name: result for hook, result in zip(hooks, results, strict=True) if not result.passed}

    async def _keep_changes(self, claim: NodeClaim, asked: NodeClaim) -> NodeClaim:
        """A hook may add labels and annotations to the claim it is asked about."""
        before, after = claim.metadata, asked.metadata
        if after.labels == before.labels and after.annotations == before.annotations:
            return claim
        return await self._writer.metadata(claim, labels=after.labels, annotations=after.annotations)

    async def _ask(self, hook: RegistrationHook, claim: NodeClaim) -> HookResult:
        try:
            return await hook.registered(claim)
        except Exception as error:
            self._log.error("registration hook failed", error=error, hook=hook.name, nodeclaim=claim.name)
            return HookResult(passed=False, requeue_after_s=HOOK_RETRY_S)

    async def _sync(self, claim: NodeClaim, node: Node, wanted: NodeSync) -> None:
        patch = sync_patch(claim, node, wanted)
        if patch:
            patch.setdefault("metadata", {})["resourceVersion"] = node.metadata.resource_version
            await self._ctx.api.patch(kinds.NODE, node.name, patch)

    def _warn_taint_missing(self, claim: NodeClaim, node: Node) -> None:
        message = f"Node {node.name} lacks the taint {labels.UNREGISTERED_TAINT}:NoExecute, which it must register with"
        self._log.error(message, nodeclaim=claim.name, node=node.name)
        self._ctx.recorder.publish(
            claim_reference(claim), "Warning", "UnregisteredTaintMissing", message, dedupe=(claim.uid,)
        )


def _own_copy(claim: NodeClaim) -> NodeClaim:
    """A claim whose labels and annotations can be changed without changing the one in the cache."""
    meta = msgspec.structs.replace(
        claim.metadata, labels=dict(claim.metadata.labels), annotations=dict(claim.metadata.annotations)
    )
    return msgspec.structs.replace(claim, metadata=meta)


def identity_conflict(ctx: Context, claim: NodeClaim, nodes: list[Node]) -> str:
    """Why the claim's providerID cannot be trusted; empty when nothing speaks against it."""
    provider_id = claim.status.provider_id
    if not provider_id:
        return "the claim was launched but its status.providerID is empty; restore it"
    others = [other.name for other in claims_of(ctx, provider_id) if other.uid != claim.uid]
    if others:
        return f"status.providerID {provider_id} is also claimed by {', '.join(sorted(others))}; correct one of them"
    for node in nodes:
        owner = conflicting_owner(claim, node)
        if owner:
            return f"Node {node.name} with providerID {provider_id} belongs to NodeClaim {owner}"
    return ""


def sync_patch(claim: NodeClaim, node: Node, wanted: NodeSync) -> dict[str, Any]:
    """The merge patch that gives the Node what is wanted; empty when it has it."""
    meta = node.metadata
    metadata: dict[str, Any] = {}
    if wanted.labels != meta.labels:
        metadata["labels"] = wanted.labels
    if wanted.annotations != meta.annotations:
        metadata["annotations"] = wanted.annotations
    if wanted.finalizers != meta.finalizers:
        metadata["finalizers"] = wanted.finalizers
    if not wanted.owned:
        owner = {
            "apiVersion": kinds.NODE_CLAIM.api_version,
            "kind": kinds.NODE_CLAIM.kind,
            "name": claim.name,
            "uid": claim.uid,
            "blockOwnerDeletion": True,
        }
        metadata["ownerReferences"] = [*(msgspec.to_builtins(o) for o in meta.owner_references), owner]
    patch: dict[str, Any] = {"metadata": metadata} if metadata else {}
    if wanted.taints != node.spec.taints:
        patch["spec"] = {"taints": [msgspec.to_builtins(taint) for taint in wanted.taints]}
    return patch
