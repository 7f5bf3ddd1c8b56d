"""Notes when pods last came to or left a machine: the clock that `consolidateAfter` runs on.

Pods found at start are not news: a restart must not make every busy node look freshly used.
"""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import format_timestamp, parse_optional_timestamp
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.identity import claim_of
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.core.draining import is_daemon, is_terminal
from pykarpenter.runtime.controller import Controller, Result

NAME = "nodeclaim.podevents"
DEDUPE_S = 10.0


class PodEvents:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._writer = ClaimWriter(ctx)
        self._nodes = ctx.caches.of(kinds.NODE)
        self._claims = ctx.caches.of(kinds.NODE_CLAIM)
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, clock=ctx.clock, workers=ctx.settings.workers(10, 1000)
        )
        ctx.caches.subscribe(kinds.POD, self._pod_changed)

    async def run(self) -> None:
        await self.controller.run()

    def _pod_changed(self, change: Changed[Pod]) -> None:
        pod = change.new or change.old
        if change.initial or pod is None or is_daemon(pod) or not is_event(change):
            return
        node = self._nodes.get(pod.spec.node_name)
        claim = claim_of(self._ctx, node) if node is not None else None
        if claim is not None:
            self.controller.enqueue(claim.name)

    async def reconcile(self, name: str) -> Result | None:
        claim = self._claims.get(name)
        if claim is None or claim.is_deleting:
            return None
        now = self._ctx.clock.now()
        last = parse_optional_timestamp(claim.status.last_pod_event_time)
        if last is not None and 0 <= now - last < DEDUPE_S:
            return None
        await self._writer.status(claim, fields={"lastPodEventTime": format_timestamp(now)})
        return None


def is_event(change: Changed[Pod]) -> bool:
    """Whether the pod came to its node, ended there, or began to leave it."""
    old, new = change.old, change.new
    if new is None:
        return old is not None and bool(old.spec.node_name) and not old.is_deleting and not is_terminal(old)
    if not new.spec.node_name:
        return False
    if old is None or not old.spec.node_name:
        return True
    return (is_terminal(new) and not is_terminal(old)) or (new.is_deleting and not old.is_deleting)
