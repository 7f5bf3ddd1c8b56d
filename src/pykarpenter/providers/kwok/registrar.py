"""Machines whose Node lets itself be waited for (`nodeRegistrationDelay`): launched, listed, not registered yet.

Held in memory only. After a restart the provider reads the claims that were launched and have no Node, and puts
them back here; a crash can therefore delay a registration but never lose or double one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.kube.errors import ApiError
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.logs import get_logger

RETRY_S = 1.0


@dataclass(slots=True)
class _Waiting:
    claim: NodeClaim
    view: NodeClaim
    due: float


class Registrar:
    """Calls back for each machine when its delay is over, again and again until that succeeds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, _Waiting] = {}
        self._changed = asyncio.Event()
        self._log = get_logger(controller="kwok.registrar")

    def register_after(self, claim: NodeClaim, view: NodeClaim, delay_s: float) -> None:
        """Register once the delay is over; a repeated launch does not start it anew."""
        self._waiting.setdefault(view.status.provider_id, _Waiting(claim, view, self._clock.monotonic() + delay_s))
        self._changed.set()

    def forget(self, provider_id: str) -> None:
        self._waiting.pop(provider_id, None)

    def pending(self, provider_id: str) -> NodeClaim | None:
        found = self._waiting.get(provider_id)
        return found.view if found is not None else None

    def all_pending(self) -> list[NodeClaim]:
        return [self._waiting[key].view for key in sorted(self._waiting)]

    async def run(self, register: Callable[[NodeClaim], Awaitable[None]]) -> None:
        """Work until cancelled; `register` must be safe to repeat."""
        while True:
            self._changed.clear()
            now = self._clock.monotonic()
            for provider_id in sorted(key for key, item in self._waiting.items() if item.due <= now):
                await self._register(provider_id, register)
            await self._wait_until_due()

    async def _register(self, provider_id: str, register: Callable[[NodeClaim], Awaitable[None]]) -> None:
        item = self._waiting.get(provider_id)
        if item is None:
            return
        try:
            await register(item.claim)
        except ApiError as error:
            self._log.error("registering a node failed, trying again", error=error, nodeclaim=item.claim.name)
            item.due = self._clock.monotonic() + RETRY_S
        else:
            # Not before it is done: until the Node exists this is the only place that knows the machine.
            self._waiting.pop(provider_id, None)

    async def _wait_until_due(self) -> None:
        due = min((item.due for item in self._waiting.values()), default=None)
        timeout = None if due is None else max(0.0, due - self._clock.monotonic())
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            pass
