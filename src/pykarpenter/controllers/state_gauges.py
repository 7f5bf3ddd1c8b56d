"""The gauges of the cluster state, with Karpenter's meaning of "synced"."""

from __future__ import annotations

from pykarpenter.controllers.context import Context
from pykarpenter.runtime.controller import Loop
from pykarpenter.runtime.logs import get_logger

PERIOD_S = 5.0
# As Karpenter: a state that stays unsynced is worth a line.
_COMPLAIN_AFTER_S = 30.0


class StateGauges:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._unsynced_since: float | None = None
        self._unserved: list[str] = []
        self._loop = Loop("state", self.step, clock=ctx.clock)
        self._log = get_logger(controller="state")

    async def run(self) -> None:
        await self._loop.run()

    async def step(self) -> float:
        state, metrics, now = self._ctx.state, self._ctx.metrics, self._ctx.clock.monotonic()
        synced = self._ctx.sync.is_done and state.is_synced()
        if synced:
            self._unsynced_since = None
        elif self._unsynced_since is None:
            self._unsynced_since = now
        unsynced_s = 0.0 if self._unsynced_since is None else now - self._unsynced_since
        metrics.gauge("karpenter_cluster_state_node_count", {}, len(state.views()))
        metrics.gauge("karpenter_cluster_state_synced", {}, 1.0 if synced else 0.0)
        metrics.gauge("karpenter_cluster_state_unsynced_time_seconds", {}, unsynced_s)
        self._show_unserved()
        if unsynced_s > _COMPLAIN_AFTER_S:
            waiting = state.unlaunched_claims()
            self._log.info("cluster state is not synced", seconds=round(unsynced_s), nodeclaims=waiting[:5])
        return PERIOD_S

    def _show_unserved(self) -> None:
        unserved = self._ctx.caches.unserved()
        for kind in sorted({*self._unserved, *unserved}):
            self._ctx.metrics.gauge("pykarpenter_degraded", {"what": kind}, 1.0 if kind in unserved else 0.0)
        if unserved and unserved != self._unserved:
            remedy = "apply the CRDs: pykarpenter crds | kubectl apply --server-side -f -"
            self._log.error(
                "kinds are not served any more; nothing is launched or removed", kinds=unserved, remedy=remedy
            )
        self._unserved = unserved
