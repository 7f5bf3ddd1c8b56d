"""Initialization: a registered Node counts as capacity of its own once nothing is missing from it."""

from __future__ import annotations

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.identity import nodes_of
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.core.lifecycle import (
    Fact,
    Phase,
    drivers_without_pools,
    observe_initialization,
    requested_drivers,
    step,
)


class Initializer:
    def __init__(self, ctx: Context, writer: ClaimWriter) -> None:
        self._ctx = ctx
        self._writer = writer

    async def initialize(self, claim: NodeClaim) -> NodeClaim:
        nodes = nodes_of(self._ctx, claim)
        node = nodes[0] if len(nodes) == 1 else None
        seen = observe_initialization(claim, node, self._missing_drivers(claim, node))
        if seen.fact is Fact.NODE_INITIALIZED and node is not None:
            await self._label(node)
        return await self._writer.status(claim, step(Phase.INITIALIZING, seen.fact).finding(seen.message))

    def _missing_drivers(self, claim: NodeClaim, node: Node | None) -> list[str]:
        drivers = requested_drivers(claim)
        if not drivers or node is None or self._ctx.settings.ignore_dra_requests:
            return []
        return drivers_without_pools(drivers, self._ctx.caches.of(kinds.RESOURCE_SLICE).values(), node.name)

    async def _label(self, node: Node) -> None:
        """The label comes before the condition: a crash in between only repeats this."""
        if node.metadata.labels.get(labels.INITIALIZED) == "true":
            return
        body = {
            "metadata": {
                "resourceVersion": node.metadata.resource_version,
                "labels": {labels.INITIALIZED: "true"},
            }
        }
        await self._ctx.api.patch(kinds.NODE, node.name, body)
