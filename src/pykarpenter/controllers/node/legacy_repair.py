"""Repair as Karpenter 1.14 did it (gate NodeRepair with `--legacy-node-repair`): replace at once, by force.

Only policies that replace are read, and each only for its own condition. When more than a fifth of a pool's nodes
(of all nodes, for claims without a pool) are unhealthy nothing is done: then something other than machines is wrong.
"""

from __future__ import annotations

import math
import re

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.api.timestamps import format_timestamp, parse_optional_timestamp
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.identity import claim_of, is_managed_node, node_reference
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.core.lifecycle import termination_deadline
from pykarpenter.core.repair import REPLACE, RepairPolicy
from pykarpenter.runtime.controller import Controller, Result
from pykarpenter.runtime.logs import get_logger

NAME = "node.health"
BREAKER_RETRY_S = 300.0
UNHEALTHY_SHARE = 0.2
# Nothing is removed while a kind is not served; looked at again this often (F33).
UNSERVED_S = 5.0


class LegacyRepair:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._writer = ClaimWriter(ctx)
        self._nodes = ctx.caches.of(kinds.NODE)
        self._policies = tuple(p for p in ctx.provider.traits.repair_policies if p.action == REPLACE)
        self._log = get_logger(controller=NAME)
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, clock=ctx.clock, workers=ctx.settings.workers(10, 1000)
        )
        ctx.caches.subscribe(kinds.NODE, self._node_changed)

    async def run(self) -> None:
        await self.controller.run()

    def _node_changed(self, change: Changed[Node]) -> None:
        if change.new is not None and self._fault(change.new) is not None:
            self.controller.enqueue(change.new.name)

    async def reconcile(self, name: str) -> Result | None:
        node = self._nodes.get(name)
        if node is None or node.is_deleting or not is_managed_node(node, self._ctx.provider.traits):
            return None
        claim = claim_of(self._ctx, node)
        fault = self._fault(node)
        if claim is None or claim.is_deleting or fault is None:
            return None
        condition, due = fault
        left = due - self._ctx.clock.now()
        if left > 0:
            return Result(requeue_after_s=left)
        pool = node.metadata.labels.get(labels.NODEPOOL, "")
        if self._ctx.caches.unserved():
            return Result(requeue_after_s=UNSERVED_S)
        if self._is_breaker_open(pool):
            where = f'nodepool "{pool}"' if pool else "the cluster"
            text = f"more than 20% of nodes in {where} are unhealthy"
            self._ctx.recorder.publish(
                node_reference(node), "Warning", "NodeRepairBlocked", text, dedupe=(node.uid,), window_s=900.0
            )
            return Result(requeue_after_s=BREAKER_RETRY_S)
        await self._replace(claim, condition)
        return None

    def _fault(self, node: Node) -> tuple[str, float] | None:
        """The condition whose toleration ends first, and when (epoch seconds)."""
        found = [
            ((parse_optional_timestamp(c.last_transition_time) or 0.0) + policy.toleration_s, c.type)
            for c in node.status.conditions
            for policy in self._policies
            if _matches(policy, c.type, c.status, c.reason)
        ]
        if not found:
            return None
        due, condition = min(found)
        return condition, due

    def _is_breaker_open(self, pool: str) -> bool:
        nodes = [n for n in self._nodes.values() if not pool or n.metadata.labels.get(labels.NODEPOOL) == pool]
        unhealthy = sum(1 for node in nodes if self._fault(node) is not None)
        return unhealthy > math.ceil(len(nodes) * UNHEALTHY_SHARE)

    async def _replace(self, claim: NodeClaim, condition: str) -> None:
        """Stamp the claim with now and delete it: its pods get one second each."""
        now = self._ctx.clock.now()
        present = termination_deadline(claim)
        if present is None or present > now:
            stamp = {labels.TERMINATION_TIMESTAMP: format_timestamp(now)}
            claim = await self._writer.metadata(claim, annotations=stamp)
        self._log.info("replacing unhealthy machine", nodeclaim=claim.name, condition=condition)
        await self._writer.give_up(claim, "unhealthy")
        self._ctx.metrics.count(
            "karpenter_nodeclaims_unhealthy_disrupted_total",
            {
                "condition": _snake_case(condition),
                "nodepool": claim.pool_name,
                "capacity_type": claim.metadata.labels.get(labels.CAPACITY_TYPE, ""),
                "image_id": claim.status.image_id,
                # The bound that was applied here, whatever the claim's own period says.
                "termination_mode": "forceful",
            },
        )


def _matches(policy: RepairPolicy, kind: str, status: str, reason: str) -> bool:
    if (policy.condition_type, policy.condition_status) != (kind, status):
        return False
    return not policy.reason_regex or re.search(policy.reason_regex, reason) is not None


def _snake_case(text: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text).lower()
