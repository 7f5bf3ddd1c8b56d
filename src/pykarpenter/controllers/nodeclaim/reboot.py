"""Carries out reboots that were committed on NodeClaims: fence, drain, ask the provider, wait for the machine.

Runs whatever the feature gates say, so that a committed reboot always ends. Pods leave by eviction only; those that
may not be evicted ride the reboot. A machine that does not come back is given up with its claim.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pykarpenter.api import kinds, labels
from pykarpenter.api.duration import InvalidDuration
from pykarpenter.api.meta import Condition, condition_status
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.cloud.errors import NodeClaimNotFound, NodeRebootFailed, NodeRebootNotImplemented
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.identity import (
    BY_NODE_NAME,
    CLAIMS_BY_PROVIDER_ID,
    claim_reference,
    is_managed_claim,
    nodes_of,
)
from pykarpenter.controllers.node.eviction import DrainMode, Entry, EvictionQueue
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.core import reboot
from pykarpenter.core.conditions import Finding, shorten
from pykarpenter.core.draining import drain_step
from pykarpenter.core.lifecycle import (
    DISRUPTION_REASON,
    INITIALIZED,
    Fact,
    Phase,
    merge_taints,
    termination_deadline,
)
from pykarpenter.core.lifecycle import (
    step as lifecycle_step,
)
from pykarpenter.core.reboot import REBOOTING_TAINT, RebootFact, RebootPhase, RebootStep, reboot_step
from pykarpenter.runtime.controller import Controller, Result
from pykarpenter.runtime.logs import get_logger

NAME = "nodeclaim.reboot"
DRAIN_POLL_S = 1.0
EVENT_WINDOW_S = 1800.0
_HOPELESS = (NodeRebootNotImplemented, NodeRebootFailed, NodeClaimNotFound)


class Reboots:
    def __init__(self, ctx: Context, evictions: EvictionQueue) -> None:
        self._ctx = ctx
        self._evictions = evictions
        self._writer = ClaimWriter(ctx)
        self._claims = ctx.caches.of(kinds.NODE_CLAIM)
        self._pods = ctx.caches.of(kinds.POD)
        self._log = get_logger(controller=NAME)
        self.controller: Controller[str] = Controller(NAME, self.reconcile, clock=ctx.clock, workers=10)
        ctx.caches.subscribe(kinds.NODE_CLAIM, self._claim_changed)
        ctx.caches.subscribe(kinds.NODE, self._node_changed)

    async def run(self) -> None:
        await self.controller.run()

    def _claim_changed(self, change: Changed[NodeClaim]) -> None:
        if change.new is not None and reboot.commit(change.new) is not None:
            self.controller.enqueue(change.new.name)

    def _node_changed(self, change: Changed[Node]) -> None:
        if change.new is not None and change.new.spec.provider_id:
            for claim in self._claims.index(CLAIMS_BY_PROVIDER_ID, change.new.spec.provider_id):
                if reboot.commit(claim) is not None:
                    self.controller.enqueue(claim.name)

    async def reconcile(self, name: str) -> Result | None:
        claim = self._claims.get(name)
        committed = reboot.commit(claim) if claim is not None else None
        if claim is None or committed is None or not is_managed_claim(claim, self._ctx.provider.traits):
            return None
        nodes = nodes_of(self._ctx, claim)
        node = nodes[0] if len(nodes) == 1 else None
        phase = reboot.reboot_phase(claim, committed)
        if phase is RebootPhase.DRAINING:
            return await self._drain(claim, committed, node)
        if phase is RebootPhase.CALLING:
            return await self._call(claim, committed, node)
        return await self._await_recovery(claim, committed, node)

    # -- before the call

    async def _drain(self, claim: NodeClaim, committed: Condition, node: Node | None) -> Result | None:
        try:
            drain = reboot.plan_drain(claim, committed)
        except InvalidDuration as error:
            step = reboot_step(RebootPhase.DRAINING, RebootFact.INVALID_GRACE_PERIOD)
            await self._end(claim, committed, node, step, f"{labels.REBOOT_TERMINATION_GRACE_PERIOD}: {error}")
            return None
        if node is None:
            return await self._await_node(claim, committed, RebootPhase.DRAINING)
        await self._fence(node)
        if not self._is_drained(node, committed, drain):
            return Result(requeue_after_s=DRAIN_POLL_S)
        # Written before the call: whoever takes over knows that one may have been made, and what boot was before it.
        annotations = {
            labels.REBOOT_PRE_BOOT_ID: node.status.node_info.boot_id,
            reboot.CALLED_AT: format_timestamp(self._ctx.clock.now()),
        }
        claim = await self._writer.metadata(claim, annotations=annotations)
        return await self._call(claim, committed, node)

    def _is_drained(self, node: Node, committed: Condition, drain: reboot.RebootDrain) -> bool:
        now = self._ctx.clock.now()
        if drain.is_over(now):
            return True
        protect = self._ctx.settings.protect_unparsable_do_not_disrupt
        step = drain_step(self._pods.index(BY_NODE_NAME, node.name), now, None, protect)
        for pod in step.evict:
            self._evictions.add(pod, Entry(node.name, DrainMode.TIMEOUT, drain.deadline, "Unhealthy"))
        return step.done and reboot.is_settled(committed, now)

    async def _fence(self, node: Node) -> None:
        await self._set_taints(node, merge_taints(node.spec.taints, [REBOOTING_TAINT]))

    async def _unfence(self, node: Node | None) -> None:
        if node is not None:
            key = (REBOOTING_TAINT.key, REBOOTING_TAINT.effect)
            await self._set_taints(node, [t for t in node.spec.taints if (t.key, t.effect) != key])

    async def _set_taints(self, node: Node, taints: list[Any]) -> None:
        if taints == node.spec.taints:
            return
        body = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": [msgspec.to_builtins(taint) for taint in taints]},
        }
        await self._ctx.api.patch(kinds.NODE, node.name, body)

    # -- the call

    async def _call(self, claim: NodeClaim, committed: Condition, node: Node | None) -> Result | None:
        if reboot.has_new_boot(claim, node):
            return await self._issue(claim, committed, node, RebootFact.NEW_BOOT)
        if node is None:
            return await self._await_node(claim, committed, RebootPhase.CALLING)
        try:
            await self._ctx.provider.reboot(claim, reboot.operation_id(claim, committed))
        except _HOPELESS as error:
            step = reboot_step(RebootPhase.CALLING, RebootFact.REFUSED)
            await self._give_up(claim, committed, node, step, f"{type(error).__name__}: {error}")
            return None
        except Exception as error:
            return await self._not_accepted(claim, committed, node, error)
        return await self._issue(claim, committed, node, RebootFact.ACCEPTED)

    async def _not_accepted(
        self, claim: NodeClaim, committed: Condition, node: Node | None, error: Exception
    ) -> Result | None:
        self._log.error("the provider did not accept a reboot", error=error, nodeclaim=claim.name)
        if self._ctx.clock.now() < reboot.called_at(claim, committed) + reboot.ACCEPTANCE_S:
            return Result(requeue_after_s=reboot.POLL_S)
        step = reboot_step(RebootPhase.CALLING, RebootFact.ACCEPTANCE_OVERDUE)
        await self._give_up(claim, committed, node, step, str(error))
        return None

    async def _await_node(self, claim: NodeClaim, committed: Condition, phase: RebootPhase) -> Result | None:
        if self._ctx.clock.now() < reboot.called_at(claim, committed) + reboot.ACCEPTANCE_S:
            return Result(requeue_after_s=reboot.POLL_S)
        step = reboot_step(phase, RebootFact.ACCEPTANCE_OVERDUE)
        await self._give_up(claim, committed, None, step, "the Node is missing")
        return None

    async def _issue(
        self, claim: NodeClaim, committed: Condition, node: Node | None, fact: RebootFact
    ) -> Result | None:
        step = reboot_step(RebootPhase.CALLING, fact)
        await self._writer.status(claim, step.finding(committed.message), _not_initialized())
        await self._unlabel(node)
        return Result(requeue_after_s=reboot.POLL_S)

    async def _unlabel(self, node: Node | None) -> Node | None:
        """While it reboots the Node is no initialized capacity; the Node as it is then."""
        if node is None or labels.INITIALIZED not in node.metadata.labels:
            return node
        body = {"metadata": {"resourceVersion": node.metadata.resource_version, "labels": {labels.INITIALIZED: None}}}
        return await self._ctx.api.patch(kinds.NODE, node.name, body)

    # -- after the call

    async def _await_recovery(self, claim: NodeClaim, committed: Condition, node: Node | None) -> Result | None:
        if condition_status(claim.status.conditions, INITIALIZED) == "True":
            claim = await self._writer.status(claim, _not_initialized())
        fact = reboot.observe_recovery(claim, committed, node, self._ctx.clock.now())
        step = reboot_step(RebootPhase.ISSUED, fact)
        if step.phase is RebootPhase.GIVEN_UP:
            waited = int(reboot.RECOVERY_S)
            await self._give_up(claim, committed, node, step, f"the machine did not come back within {waited}s")
            return None
        if fact is not RebootFact.RECOVERED:
            node = await self._unlabel(node)
        if fact is RebootFact.OLD_BOOT:
            return Result(requeue_after_s=reboot.POLL_S)
        if node is not None and any(taint.key == REBOOTING_TAINT.key for taint in node.spec.taints):
            self._publish(claim, committed, "Normal", "RebootObserved", f"Node {node.name} started a new boot")
            await self._unfence(node)
        if fact is not RebootFact.RECOVERED:
            return Result(requeue_after_s=reboot.POLL_S)
        await self._end(claim, committed, None, step, committed.message)
        return None

    async def _end(
        self, claim: NodeClaim, committed: Condition, node: Node | None, step: RebootStep, message: str
    ) -> None:
        """The reboot is over and the claim lives on."""
        await self._unfence(node)
        # The annotation last: without it a claim that is still committed would be taken for a new request.
        called = reboot.called_at(claim, committed)
        claim = await self._writer.status(claim, step.finding(message), clear=(DISRUPTION_REASON,))
        cleared = {labels.REBOOT_PRE_BOOT_ID: None, reboot.CALLED_AT: None}
        await self._writer.metadata(claim, annotations=cleared)
        if step.reason == "RebootFailed":
            self._publish(claim, committed, "Warning", "RebootFailed", message)
        else:
            self._ctx.metrics.observe(
                "karpenter_nodes_reboot_recovery_duration_seconds", {}, self._ctx.clock.now() - called
            )
        self._count(committed, step)

    async def _give_up(
        self, claim: NodeClaim, committed: Condition, node: Node | None, step: RebootStep, message: str
    ) -> None:
        """The machine is hopeless: bound its drain as the reboot was bounded, and delete the claim."""
        await self._unfence(node)
        grace = _readable_grace_s(claim)
        if grace is not None:
            wanted = self._ctx.clock.now() + grace
            present = termination_deadline(claim)
            if present is None or wanted < present:
                stamp = {labels.TERMINATION_TIMESTAMP: format_timestamp(wanted)}
                claim = await self._writer.metadata(claim, annotations=stamp)
        if await self._writer.delete(claim):
            self._publish(claim, committed, "Warning", "RebootFailed", message)
            self._count(committed, step)

    def _publish(self, claim: NodeClaim, committed: Condition, kind: str, reason: str, message: str) -> None:
        self._ctx.recorder.publish(
            claim_reference(claim),
            kind,
            reason,
            shorten(message),
            dedupe=(claim.uid, committed.last_transition_time or ""),
            window_s=EVENT_WINDOW_S,
        )

    def _count(self, committed: Condition, step: RebootStep) -> None:
        result = {"result": step.result}
        self._ctx.metrics.count("karpenter_nodes_reboots_total", result)
        lasted = self._ctx.clock.now() - reboot.requested_at(committed)
        self._ctx.metrics.observe("karpenter_nodes_reboot_duration_seconds", result, lasted)


def _readable_grace_s(claim: NodeClaim) -> float | None:
    """An annotation that was spoilt meanwhile bounds nothing; it must not keep a hopeless machine for ever."""
    try:
        return reboot.reboot_grace_s(claim)
    except InvalidDuration:
        return None


def _not_initialized() -> Finding:
    return lifecycle_step(Phase.REBOOTING, Fact.REBOOT_ISSUED).finding("the machine is rebooting")
