"""Keeps the back-off of pools whose replacements failed: in memory at once, on the NodePool for the next process."""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.controllers.context import Context
from pykarpenter.core.disruption import back_off
from pykarpenter.core.disruption.back_off import BackOff
from pykarpenter.kube.errors import ApiError
from pykarpenter.runtime.logs import get_logger


class PoolBackOff:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._known: dict[str, BackOff] = {}
        self._log = get_logger(controller="disruption")

    def until(self) -> dict[str, float]:
        """Pools that wait, with the time from which they are tried again."""
        now = self._ctx.clock.now()
        found = {pool.name: self._current(pool.name) for pool in self._ctx.state.node_pools()}
        # A pool that comes again under the name of one that is gone begins anew.
        self._known = {name: item for name, item in self._known.items() if name in found}
        return {name: item.until for name, item in found.items() if item.until > now}

    async def failed(self, pools: list[str]) -> None:
        for name in pools:
            pool = self._ctx.state.node_pool(name)
            if pool is None:
                continue
            before = self._current(name)
            after = back_off.failed(before, pool, self._ctx.clock.now())
            if after != before:
                self._known[name] = after
                self._log.info("replacements of nodepool wait", NodePool=name, failures=after.failures)
                await self._write(name, after.text())

    async def succeeded(self, pools: list[str]) -> None:
        for name in pools:
            if self._current(name).failures:
                self._known[name] = BackOff()
                await self._write(name, None)

    def _current(self, name: str) -> BackOff:
        known = self._known.get(name)
        if known is not None:
            return known
        pool = self._ctx.state.node_pool(name)
        return back_off.read(pool) if pool is not None else BackOff()

    async def _write(self, name: str, value: str | None) -> None:
        """Lost writes cost one early retry after a restart, so they are not repeated."""
        try:
            await self._ctx.api.patch(
                kinds.NODE_POOL, name, {"metadata": {"annotations": {back_off.ANNOTATION: value}}}
            )
        except ApiError as error:
            self._log.error("writing back-off failed", NodePool=name, error=error)
