"""How far the fleet is from the optimum, refreshed in the background: a gauge, and a line when all is quiet."""

from __future__ import annotations

from pykarpenter.controllers.context import Context
from pykarpenter.controllers.disruption.loop import DisruptionLoop
from pykarpenter.core.disruption.candidates import World
from pykarpenter.core.disruption.fleet_savings import fleet_bound
from pykarpenter.core.disruption.settings import DisruptionSettings
from pykarpenter.core.packing.what_if import WhatIfBase
from pykarpenter.runtime.controller import Loop
from pykarpenter.runtime.logs import get_logger

NAME = "disruption.gap"
REFRESH_S = 900.0


class FleetGap:
    """Decides nothing; looks again only when the cluster changed."""

    def __init__(self, ctx: Context, settings: DisruptionSettings, disruption: DisruptionLoop) -> None:
        self._ctx = ctx
        self._settings = settings
        self._disruption = disruption
        self._revision = -1
        self._told = ""
        self._loop = Loop(NAME, self.step, clock=ctx.clock)
        self._log = get_logger(controller=NAME)

    async def run(self) -> None:
        await self._ctx.sync.wait_first()
        await self._loop.run()

    async def step(self) -> float:
        """One look; the seconds until the next."""
        revision = self._ctx.state.consolidation_revision
        if revision != self._revision:
            self._revision = revision
            await self._look()
        return REFRESH_S

    async def _look(self) -> None:
        snapshot = self._ctx.state.snapshot(self._ctx.clock.now())
        packing = self._ctx.settings.packing(self._ctx.provider.traits)

        def answer() -> tuple[float, float] | None:
            return fleet_bound(World(snapshot, self._settings), WhatIfBase(snapshot, packing))

        found = await self._ctx.offload(answer)
        if found is None or found[1] <= 0:
            return
        price, bound = found
        gap = max(0.0, price / bound - 1)
        self._ctx.metrics.gauge("pykarpenter_fleet_optimality_gap", {}, gap)
        text = f"within {gap:.1%} of the optimum, nothing worth moving"
        if self._disruption.quiet and text != self._told:
            self._told = text
            self._log.info(text, price_per_hour=round(price, 4), lower_bound=round(bound, 4))
