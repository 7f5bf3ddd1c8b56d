"""Writes and removes the signs of a disruption: the taint on the Node, the condition on the NodeClaim.

Every patch is bound to the version it was decided on. Removing is safe to repeat and safe to lose: the self-heal of
the loop removes signs that no command stands behind.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import find_condition
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node, Taint
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.disruption.live import LiveFacts
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.core.conditions import true
from pykarpenter.core.disruption.commands import Reason, Target
from pykarpenter.core.draining import DISRUPTED_TAINT
from pykarpenter.core.lifecycle import DISRUPTION_REASON
from pykarpenter.kube.errors import Conflict, NotFound

# A busy Node changes every few seconds; a handful of fresh reads is plenty.
ATTEMPTS = 5


def is_sign(taint: Taint) -> bool:
    return (taint.key, taint.effect) == (labels.DISRUPTED_TAINT, DISRUPTED_TAINT.effect)


def has_taint(node: Node) -> bool:
    return any(is_sign(taint) for taint in node.spec.taints)


def has_reason(claim: NodeClaim) -> bool:
    found = find_condition(claim.status.conditions, DISRUPTION_REASON)
    return found is not None


class Marking:
    def __init__(self, ctx: Context, live: LiveFacts) -> None:
        self._ctx = ctx
        self._live = live
        self._writer = ClaimWriter(ctx)

    async def taint(self, node: Node) -> Node:
        """Bound to the version read: a Conflict means that the facts must be read again."""
        if has_taint(node):
            return node
        return await self._write_taints(node, [*node.spec.taints, DISRUPTED_TAINT])

    async def tell_reason(self, claim: NodeClaim, reason: Reason) -> NodeClaim:
        return await self._writer.status(claim, true(DISRUPTION_REASON, reason, reason))

    async def clear(self, target: Target) -> None:
        """Take the signs away from exactly this machine, whatever happened to it meanwhile."""
        for _ in range(ATTEMPTS):
            try:
                await self._clear_once(target)
                return
            except Conflict:
                continue
            except NotFound:
                return

    async def _clear_once(self, target: Target) -> None:
        node = await self._live.node(target.node)
        if node is not None and node.uid == target.node_uid and not node.is_deleting:
            await self.untaint(node)
        claim = await self._live.claim(target.claim)
        if claim is not None and claim.uid == target.claim_uid and not claim.is_deleting:
            await self.forget_reason(claim)

    async def untaint(self, node: Node) -> None:
        if has_taint(node):
            await self._write_taints(node, [taint for taint in node.spec.taints if not is_sign(taint)])

    async def forget_reason(self, claim: NodeClaim) -> None:
        if has_reason(claim):
            await self._writer.status(claim, clear=(DISRUPTION_REASON,))

    async def _write_taints(self, node: Node, taints: list[Taint]) -> Node:
        wire: list[Any] = [msgspec.to_builtins(taint) for taint in taints]
        body = {
            "metadata": {"resourceVersion": node.metadata.resource_version, "uid": node.uid},
            "spec": {"taints": wire},
        }
        return await self._ctx.api.patch(kinds.NODE, node.name, body)
