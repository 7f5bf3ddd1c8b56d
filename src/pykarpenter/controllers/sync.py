"""The first look: controllers that create or remove machines act only on a complete picture.

After this process became the leader, everything that its predecessor wrote must have been seen: the API server is
asked for the NodeClaims and Nodes it has, and all of them must have been observed. Claims without a machine get a
while to launch, so that a restart in the middle of a launch does not plan for the same pods again; a claim that never
launches holds nobody up (F14). Later nothing waits: an un-launched claim is capacity on its way.
"""

from __future__ import annotations

import asyncio

from pykarpenter.api import kinds
from pykarpenter.cloud.provider import ProviderTraits
from pykarpenter.kube.contract import KubeApi, list_all
from pykarpenter.kube.errors import ApiError
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.logs import get_logger
from pykarpenter.state.cluster import ClusterState

# As long as Karpenter waits before it complains about an unsynced state.
LAUNCH_GRACE_S = 30.0
POLL_S = 0.2
_RETRY_S = 1.0


class FirstSync:
    """Opens once; the operator runs `run` when it leads, the others wait."""

    def __init__(self, api: KubeApi, state: ClusterState, traits: ProviderTraits, clock: Clock) -> None:
        self._api = api
        self._state = state
        self._kinds = {(kind.group, kind.kind) for kind in traits.node_classes}
        self._clock = clock
        self._done = asyncio.Event()
        self._log = get_logger(controller="state")

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    async def wait_first(self) -> None:
        await self._done.wait()

    async def run(self) -> None:
        claims, nodes = await self._live_names()
        while self._state.missing(claims, nodes):
            await asyncio.sleep(POLL_S)
            # What the server had may have gone meanwhile, and then it is never seen.
            claims, nodes = await self._live_names()
        deadline = self._clock.monotonic() + LAUNCH_GRACE_S
        while self._state.unlaunched_claims() and self._clock.monotonic() < deadline:  # noqa: ASYNC110 - pure state
            await asyncio.sleep(POLL_S)
        left = self._state.unlaunched_claims()
        if left:
            self._log.info("going on without nodeclaim(s) that are not launched", nodeclaims=len(left), first=left[0])
        self._done.set()

    async def _live_names(self) -> tuple[list[str], list[str]]:
        while True:
            try:
                claims = await list_all(self._api, kinds.NODE_CLAIM)
                nodes = await list_all(self._api, kinds.NODE)
            except (ApiError, OSError, TimeoutError) as error:
                self._log.error("listing for the first sync failed", error=error)
                await asyncio.sleep(_RETRY_S)
                continue
            managed = [
                claim.name
                for claim in claims
                if (claim.spec.node_class_ref.group, claim.spec.node_class_ref.kind) in self._kinds
            ]
            return managed, [node.name for node in nodes]
