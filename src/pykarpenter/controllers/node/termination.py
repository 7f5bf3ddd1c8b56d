"""The end of a Node: fence it, drain it, let its volumes go, delete its instance, release it.

Follows the table in `core.termination`. It acts on managed, deleting Nodes with our finalizer and on no other. Before
the drain counts as done, pods are read live: a watch that lags must never make a busy node look empty.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import condition_status, find_condition
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import format_timestamp, parse_optional_timestamp
from pykarpenter.cloud.errors import NodeClaimNotFound
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.identity import BY_NODE_NAME, claim_of, is_managed_node, node_reference
from pykarpenter.controllers.node.attachments import Attachments
from pykarpenter.controllers.node.eviction import DrainMode, Entry, EvictionQueue
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.core.conditions import Finding, shorten
from pykarpenter.core.draining import DISRUPTED_TAINT, SETTLE_S, DrainStep, drain_step
from pykarpenter.core.lifecycle import (
    DISRUPTION_REASON,
    DRAINED,
    TERMINATION_BLOCKED,
    condition_since,
    merge_taints,
    termination_deadline,
)
from pykarpenter.core.termination import NodeFact, NodePhase, NodeStep, node_step
from pykarpenter.kube.contract import DeleteOptions, Preconditions, Selection, list_all
from pykarpenter.kube.errors import NotFound
from pykarpenter.runtime.controller import Controller, Result
from pykarpenter.runtime.logs import get_logger

NAME = "node.termination"
UNSERVED_S = 5.0
WORKERS = (100, 5000)


class NodeTermination:
    def __init__(self, ctx: Context, evictions: EvictionQueue) -> None:
        self._ctx = ctx
        self._evictions = evictions
        self._writer = ClaimWriter(ctx)
        self._attachments = Attachments(ctx)
        self._nodes = ctx.caches.of(kinds.NODE)
        self._pods = ctx.caches.of(kinds.POD)
        # When draining of a Node without a claim began, by UID; a claim's own condition outlives a restart.
        self._draining_since: dict[str, float] = {}
        self._log = get_logger(controller=NAME)
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, clock=ctx.clock, workers=ctx.settings.workers(*WORKERS)
        )
        ctx.caches.subscribe(kinds.NODE, self._node_changed)

    async def run(self) -> None:
        await self.controller.run()

    def _node_changed(self, change: Changed[Node]) -> None:
        if change.new is None:
            if change.old is not None:
                self._draining_since.pop(change.old.uid, None)
        elif change.new.is_deleting:
            self.controller.enqueue(change.new.name)

    async def reconcile(self, name: str) -> Result | None:
        node = self._nodes.get(name)
        if node is None or not node.is_deleting or labels.TERMINATION_FINALIZER not in node.metadata.finalizers:
            return None
        if not is_managed_node(node, self._ctx.provider.traits):
            return None
        claim = claim_of(self._ctx, node)
        if claim is not None and not claim.is_deleting:
            if self._ctx.caches.unserved():
                # Whoever deleted the Node: no claim is given up while a kind is not served (F33).
                return Result(requeue_after_s=UNSERVED_S)
            claim = await self._delete_claim(claim)
        if await self._is_lost(node):
            step = node_step(NodePhase.FENCING, NodeFact.INSTANCE_LOST)
        else:
            step, claim = await self._walk(node, claim)
        if step.phase is not NodePhase.RELEASED:
            return Result(requeue_after_s=step.poll_s)
        await self._release(node)
        return None

    async def _walk(self, node: Node, claim: NodeClaim | None) -> tuple[NodeStep, NodeClaim | None]:
        """From the fence onwards until a phase has to wait or the Node may go."""
        await self._fence(node)
        step = node_step(NodePhase.FENCING, NodeFact.FENCED)
        while step.phase is not NodePhase.RELEASED and step.poll_s is None:
            before = step.phase
            fact, message = await self._observe(before, node, claim)
            step = node_step(before, fact)
            if claim is not None and step.condition:
                recorded = await self._record(claim, step, message)
                if fact is NodeFact.DRAINED and recorded is not claim:
                    self._ctx.metrics.count("karpenter_nodes_drained_total", {"nodepool": _pool(node)})
                claim = recorded
        return step, claim

    async def _record(self, claim: NodeClaim, step: NodeStep, message: str) -> NodeClaim:
        present = find_condition(claim.status.conditions, step.condition)
        if present is not None and (present.status, present.reason) == (step.status, step.reason):
            return claim
        clear = (TERMINATION_BLOCKED,) if step.phase is NodePhase.TERMINATING else ()
        return await self._writer.status(claim, step.finding(message), clear=clear)

    async def _observe(self, phase: NodePhase, node: Node, claim: NodeClaim | None) -> tuple[NodeFact, str]:
        if phase is NodePhase.DRAINING:
            return await self._observe_pods(node, claim)
        if phase is NodePhase.DETACHING:
            return self._observe_volumes(node, claim)
        return await self._observe_instance(claim), ""

    async def _delete_claim(self, claim: NodeClaim) -> NodeClaim | None:
        """Delete the claim whose Node is going; answers it as it is then.

        It is read anew before: what is cached may be older than our own last write to it (S9).
        """
        try:
            live = await self._ctx.api.get(kinds.NODE_CLAIM, claim.name)
            if live.uid == claim.uid and not live.is_deleting:
                expected = Preconditions(uid=live.uid, resource_version=live.metadata.resource_version)
                await self._ctx.api.delete(kinds.NODE_CLAIM, claim.name, options=DeleteOptions(expected))
                live = await self._ctx.api.get(kinds.NODE_CLAIM, claim.name)
            return live if live.uid == claim.uid else None
        except NotFound:
            return None

    async def _is_lost(self, node: Node) -> bool:
        """A machine that is gone has nothing left to drain; both the kubelet and the cloud must say so."""
        if condition_status(node.status.conditions, "Ready") == "True":
            return False
        try:
            await self._ctx.provider.get(node.spec.provider_id)
        except NodeClaimNotFound:
            return True
        return False

    async def _fence(self, node: Node) -> None:
        """Keep new pods and load-balancer traffic away; nothing is written when that is done already."""
        taints = merge_taints(node.spec.taints, [DISRUPTED_TAINT])
        key, value = labels.EXCLUDE_FROM_LOAD_BALANCERS, labels.EXCLUDE_FROM_LOAD_BALANCERS_VALUE
        patch: dict[str, Any] = {}
        if taints != node.spec.taints:
            patch["spec"] = {"taints": [msgspec.to_builtins(taint) for taint in taints]}
        if node.metadata.labels.get(key) != value:
            patch["metadata"] = {"labels": {key: value}}
        if patch:
            patch.setdefault("metadata", {})["resourceVersion"] = node.metadata.resource_version
            await self._ctx.api.patch(kinds.NODE, node.name, patch)

    async def _observe_pods(self, node: Node, claim: NodeClaim | None) -> tuple[NodeFact, str]:
        deadline = termination_deadline(claim)
        if deadline is not None:
            self._warn_deadline(node, deadline)
        drain = self._drain(self._pods.index(BY_NODE_NAME, node.name), deadline)
        if not drain.done:
            self._evict(node, claim, drain, deadline)
            return NodeFact.PODS_WAITING, _waiting_text(drain)
        if self._is_settling(node, claim):
            return NodeFact.SETTLING, "waiting for pods that were bound before the taint"
        live = await list_all(self._ctx.api, kinds.POD, Selection(field_selector=f"spec.nodeName={node.name}"))
        drain = self._drain(live, deadline)
        if not drain.done:
            return NodeFact.PODS_WAITING, _waiting_text(drain)
        return NodeFact.DRAINED, ""

    def _drain(self, pods: list[Pod], deadline: float | None) -> DrainStep:
        protect = self._ctx.settings.protect_unparsable_do_not_disrupt
        return drain_step(pods, self._ctx.clock.now(), deadline, protect)

    def _evict(self, node: Node, claim: NodeClaim | None, drain: DrainStep, deadline: float | None) -> None:
        why = find_condition(claim.status.conditions, DISRUPTION_REASON) if claim is not None else None
        reason = why.reason if why is not None and why.status == "True" else ""
        entry = Entry(node.name, DrainMode.FORCE, deadline, reason)
        for pod in drain.force:
            self._evictions.hurry(pod, entry)
        for pod in drain.evict:
            self._evictions.add(pod, entry)
        text = f"Failed to drain node, {_waiting_text(drain)}"
        self._ctx.recorder.publish(node_reference(node), "Warning", "FailedDraining", text, dedupe=(node.uid,))

    def _is_settling(self, node: Node, claim: NodeClaim | None) -> bool:
        now = self._ctx.clock.now()
        since = self._draining_since.get(node.uid, now)
        if self._nodes.get(node.name) is not None:
            self._draining_since[node.uid] = since
        drained = find_condition(claim.status.conditions, DRAINED) if claim is not None else None
        if drained is not None and drained.status == "True":
            return False
        if drained is not None and claim is not None:
            since = min(since, condition_since(claim, DRAINED) or now)
        return now - since < SETTLE_S

    def _warn_deadline(self, node: Node, deadline: float) -> None:
        text = f"All pods will be deleted by {format_timestamp(deadline)}"
        self._ctx.recorder.publish(
            node_reference(node), "Warning", "TerminationGracePeriodExpiring", text, dedupe=(node.uid,)
        )

    def _observe_volumes(self, node: Node, claim: NodeClaim | None) -> tuple[NodeFact, str]:
        left = self._attachments.awaited(node)
        if not left:
            return NodeFact.VOLUMES_DETACHED, ""
        deadline = termination_deadline(claim)
        if deadline is not None and self._ctx.clock.now() > deadline:
            return NodeFact.DEADLINE_PASSED, ""
        names = ", ".join(left[:5])
        text = f"Awaiting detachment of {len(left)} volume(s): {names}"
        self._ctx.recorder.publish(node_reference(node), "Normal", "AwaitingVolumeDetachment", text, dedupe=(node.uid,))
        return NodeFact.VOLUMES_ATTACHED, text

    async def _observe_instance(self, claim: NodeClaim | None) -> NodeFact:
        if claim is None:
            return NodeFact.CLAIM_MISSING
        try:
            await self._ctx.provider.delete(claim)
        except NodeClaimNotFound:
            return NodeFact.INSTANCE_GONE
        except Exception as error:
            message = shorten(f"deleting instance {claim.status.provider_id} failed: {error}")
            await self._writer.status(claim, Finding(TERMINATION_BLOCKED, "True", "InstanceDeleteFailed", message))
            raise
        return NodeFact.INSTANCE_THERE

    async def _release(self, node: Node) -> None:
        try:
            current = await self._ctx.api.get(kinds.NODE, node.name)
            if current.uid != node.uid:
                return
            left = [name for name in current.metadata.finalizers if name != labels.TERMINATION_FINALIZER]
            body = {"metadata": {"resourceVersion": current.metadata.resource_version, "finalizers": left}}
            await self._ctx.api.patch(kinds.NODE, node.name, body)
        except NotFound:
            return
        self._log.info("deleted node", node=node.name)
        self._count_terminated(node)

    def _count_terminated(self, node: Node) -> None:
        metrics, now = self._ctx.metrics, self._ctx.clock.now()
        zone = node.metadata.labels.get(labels.ZONE, "")
        metrics.count("karpenter_nodes_terminated_total", {"nodepool": _pool(node), "zone": zone})
        deleted = parse_optional_timestamp(node.metadata.deletion_timestamp)
        created = parse_optional_timestamp(node.metadata.creation_timestamp)
        if deleted is not None:
            metrics.observe("karpenter_nodes_termination_duration_seconds", {"nodepool": _pool(node)}, now - deleted)
        if created is not None:
            metrics.observe("karpenter_nodes_lifetime_duration_seconds", {"nodepool": _pool(node)}, now - created)


def _pool(node: Node) -> str:
    return node.metadata.labels.get(labels.NODEPOOL, "")


def _waiting_text(drain: DrainStep) -> str:
    names = ", ".join(pod.key for pod in drain.waiting[:5])
    return f"{len(drain.waiting)} pod(s) waiting: {names}"
