"""When a machine lets pods in: together with the others that pods wait for, if those are only moments behind.

kube-scheduler fills the machines that are open with whatever waits. Opened at the same moment, and with its name in the
pods it was bought for, each machine gets those; opened one by one, the first gets everybody's. So a machine whose Node
is there waits for the Nodes of the others, a few seconds at most: less than it took to boot. No machine waits for one
that is slow or never comes, and one that takes its time to get ready is closed by that and registered at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.identity import nodes_of
from pykarpenter.controllers.nodeclaim.nomination import PodNominations
from pykarpenter.core.lifecycle import Phase, is_unregistered_taint, phase_of

# Since its Node was first seen: for the others, and for the machine's own readiness.
LONGEST_WAIT_S = 5.0
READY_WAIT_S = 3.0
LOOK_AGAIN_S = 0.5
# A wait that is too short for the clock to move would be waited again and again.
_ROUNDING_S = 1e-3
# A large fleet opens over minutes anyway.
MOST_MACHINES = 50


class Opening:
    def __init__(self, ctx: Context, nominations: PodNominations) -> None:
        self._ctx = ctx
        self._nominations = nominations
        self._claims = ctx.caches.of(kinds.NODE_CLAIM)
        # By the claim's UID: when its Node was first seen, and whose pods have been told.
        self._since: dict[str, float] = {}
        self._told: set[str] = set()
        self._changed = asyncio.Event()
        ctx.caches.subscribe(kinds.NODE_CLAIM, self._claim_changed)
        ctx.caches.subscribe(kinds.NODE, lambda _: self._pulse())

    async def moment(self, claim: NodeClaim, node: Node) -> Node | None:
        """Return when the machine should open, with its Node as it is then; None when it should not any more."""
        others = [name for name in self._ctx.state.awaited_claims() if name != claim.name]
        is_closed = any(is_unregistered_taint(taint) for taint in node.spec.taints)
        # With nobody else to wait for a machine there is nobody to keep the room from.
        if not is_closed or not self._ctx.settings.nominate_pods or not others:
            return node
        if len(others) > MOST_MACHINES:
            await self._nominations.nominate(claim, node)
            return node
        since = self._since.setdefault(claim.uid, self._ctx.clock.monotonic())
        await self._until(lambda: self._is_ready(claim), since + READY_WAIT_S)
        if self._is_ready(claim):
            await self._until(lambda: all(map(self._is_here, others)), since + LONGEST_WAIT_S)
        await self._nominations.nominate(claim, node)
        current = self._claims.get(claim.name)
        if current is None or current.uid != claim.uid:
            return None
        self._told.add(claim.uid)
        self._pulse()
        if self._is_ready(claim):
            await self._until(lambda: all(map(self._is_told, others)), since + LONGEST_WAIT_S)
        current, nodes = self._claims.get(claim.name), nodes_of(self._ctx, claim)
        is_same = current is not None and current.uid == claim.uid and not current.is_deleting
        return nodes[0] if is_same and len(nodes) == 1 else None

    async def _until(self, holds: Callable[[], bool], deadline: float) -> None:
        clock = self._ctx.clock
        while not holds() and (left := deadline - clock.monotonic()) > _ROUNDING_S:
            try:
                async with asyncio.timeout(min(left, LOOK_AGAIN_S)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _is_ready(self, claim: NodeClaim) -> bool:
        return any(is_ready(node) for node in nodes_of(self._ctx, claim))

    def _is_here(self, name: str) -> bool:
        """Whether nothing but registration keeps the machine closed, or nobody need wait for it."""
        claim = self._claims.get(name)
        return claim is not None and (_is_past(claim) or self._is_ready(claim))

    def _is_told(self, name: str) -> bool:
        claim = self._claims.get(name)
        return claim is not None and (_is_past(claim) or claim.uid in self._told)

    def _pulse(self) -> None:
        """Let all who wait look, at the same time."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _claim_changed(self, change: Changed[NodeClaim]) -> None:
        if change.new is None and change.old is not None:
            self._since.pop(change.old.uid, None)
            self._told.discard(change.old.uid)
        self._pulse()


def _is_past(claim: NodeClaim) -> bool:
    return claim.is_deleting or phase_of(claim) not in (Phase.LAUNCHING, Phase.REGISTERING)


def is_ready(node: Node) -> bool:
    """Whether the Node takes pods once the taint of unregistered machines is gone, as far as Kubernetes knows."""
    if condition_status(node.status.conditions, "Ready") != "True":
        return False
    foreign = [taint for taint in node.spec.taints if not is_unregistered_taint(taint)]
    return not any(labels.is_ephemeral_taint(taint.key, taint.effect) for taint in foreign)
