"""The last gate before a write: only the holder of the lease writes, and never for longer than it holds it.

The lease is checked when the request is sent, not when the decision was made: a paused or blocked process wakes up
with plans that another leader may already have replaced (F19, F20). The request gets a time-out below what is left of
the lease, so its effect cannot come after a successor took over. Reads, Events and Leases pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from pykarpenter.api import kinds
from pykarpenter.kube.contract import KubeApi
from pykarpenter.kube.deadline import at_most
from pykarpenter.kube.errors import Fenced, ServerFault
from pykarpenter.kube.gated import GatedApi
from pykarpenter.kube.observer import IGNORE_KUBE, KubeObserver

T = TypeVar("T")

# Kept free at the end of the lease for the answer to travel and for clocks that run at different speeds.
MARGIN_S = 1.0
_UNFENCED = (kinds.EVENT.kind, kinds.LEASE.kind)


class LeaseHolder(Protocol):
    def holds_lease(self) -> bool: ...

    def remaining_s(self) -> float:
        """Seconds until another process may take the lease."""
        ...


class FencedApi(GatedApi):
    """A KubeApi whose writes need the lease; raises Fenced without sending when it is not held."""

    def __init__(self, api: KubeApi, lease: LeaseHolder, observer: KubeObserver = IGNORE_KUBE) -> None:
        super().__init__(api)
        self._lease = lease
        self._observer = observer

    async def _write(self, verb: str, kind: str, send: Callable[[], Awaitable[T]]) -> T:
        if kind in _UNFENCED:
            return await send()
        left = self._lease.remaining_s() - MARGIN_S
        if not self._lease.holds_lease() or left <= 0:
            self._observer.fenced(verb, kind)
            raise Fenced(f"{verb} of {kind} not sent: the leader lease is not held long enough to see it through")
        try:
            with at_most(left):
                async with asyncio.timeout(left):
                    return await send()
        except TimeoutError as error:
            raise ServerFault(f"{verb} of {kind} outlived the leader lease; its outcome is unknown") from error
