"""Puts the class label on claims and Nodes that were made without it, and points out Nodes that cannot be matched.

The label marks what is ours to manage, so only objects that are tied to a managed claim get it. A Node of a pool
without a usable providerID is left alone: it can belong to any claim or to none.
"""

from __future__ import annotations

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.identity import claim_of, is_managed_claim, node_reference
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.runtime.controller import Controller, Result


class ClaimHydration:
    NAME = "nodeclaim.hydration"

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._writer = ClaimWriter(ctx)
        self._claims = ctx.caches.of(kinds.NODE_CLAIM)
        self.controller: Controller[str] = Controller(
            self.NAME, self.reconcile, clock=ctx.clock, workers=ctx.settings.workers(1000, 5000)
        )
        ctx.caches.subscribe(kinds.NODE_CLAIM, self._claim_changed)

    async def run(self) -> None:
        await self.controller.run()

    def _claim_changed(self, change: Changed[NodeClaim]) -> None:
        if change.new is not None and change.old is None:
            self.controller.enqueue(change.new.name)

    async def reconcile(self, name: str) -> Result | None:
        claim = self._claims.get(name)
        if claim is None or claim.is_deleting or not is_managed_claim(claim, self._ctx.provider.traits):
            return None
        reference = claim.spec.node_class_ref
        if reference.label_key not in claim.metadata.labels:
            await self._writer.metadata(claim, labels={reference.label_key: reference.name})
        return None


class NodeHydration:
    NAME = "node.hydration"

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._nodes = ctx.caches.of(kinds.NODE)
        self.controller: Controller[str] = Controller(
            self.NAME, self.reconcile, clock=ctx.clock, workers=ctx.settings.workers(1000, 5000)
        )
        ctx.caches.subscribe(kinds.NODE, self._node_changed)

    async def run(self) -> None:
        await self.controller.run()

    def _node_changed(self, change: Changed[Node]) -> None:
        if change.new is not None and not change.new.is_deleting:
            self.controller.enqueue(change.new.name)

    async def reconcile(self, name: str) -> Result | None:
        node = self._nodes.get(name)
        if node is None or node.is_deleting:
            return None
        if labels.NODEPOOL in node.metadata.labels and "://" not in node.spec.provider_id:
            self._warn(node)
            return None
        claim = claim_of(self._ctx, node)
        if claim is None or node.metadata.labels.get(labels.REGISTERED) != "true":
            return None
        reference = claim.spec.node_class_ref
        if reference.label_key in node.metadata.labels:
            return None
        body = {
            "metadata": {
                "resourceVersion": node.metadata.resource_version,
                "labels": {reference.label_key: reference.name},
            }
        }
        await self._ctx.api.patch(kinds.NODE, node.name, body)
        return None

    def _warn(self, node: Node) -> None:
        shown = node.spec.provider_id or "empty"
        text = f"spec.providerID is {shown}: expected provider://id; the node is left alone until it is corrected"
        self._ctx.recorder.publish(
            node_reference(node), "Warning", "InvalidProviderID", text, dedupe=(node.uid,), window_s=900.0
        )
