"""Brings claims and instances back together: machines nobody claims are deleted, claims without a machine too.

A listing is a rumour. Absence and orphanhood must be seen in two listings at least 10 s apart, and what can be asked
for directly is asked for before anything is deleted. A listing that fails changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pykarpenter.api import kinds
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.cloud.errors import NodeClaimNotFound
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.identity import NODES_BY_PROVIDER_ID, is_managed_claim, is_managed_node
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.core.lifecycle import REGISTERED
from pykarpenter.kube.contract import DeleteOptions, Preconditions, list_all
from pykarpenter.kube.errors import Conflict, NotFound
from pykarpenter.runtime.controller import Loop
from pykarpenter.runtime.logs import get_logger
from pykarpenter.runtime.slices import in_slices

NAME = "nodeclaim.garbagecollection"
FIRST_PERIOD_S = 10.0
PERIOD_S = 120.0
# How long after the start the quick rounds go on: what a crash left behind shows up then.
FIRST_FOR_S = 120.0
CONFIRM_S = 10.0
ORPHAN_AGE_S = 30.0
PARALLEL = 20


class GarbageCollection:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._writer = ClaimWriter(ctx)
        # First sight of something wrong, monotonic seconds: instances by providerID, claims by UID.
        self._orphans: dict[str, float] = {}
        self._absent: dict[str, float] = {}
        self._started: float | None = None
        self._log = get_logger(controller=NAME)
        self._loop = Loop(NAME, self.step, clock=ctx.clock)

    async def run(self) -> None:
        await self._loop.run()

    async def step(self) -> float:
        now = self._ctx.clock.monotonic()
        if self._started is None:
            self._started = now
        if self._ctx.caches.unserved():
            # Read-only while a kind is not served (F33): what belongs together cannot be told.
            return FIRST_PERIOD_S
        # Instances first: whatever was launched before the listing has its claim in the list that follows.
        instances = await self._ctx.provider.list_instances()
        claims = await list_all(self._ctx.api, kinds.NODE_CLAIM)
        await self._collect_claims(claims, instances)
        await self._collect_instances(claims, instances)
        unsure = bool(self._orphans or self._absent)
        return FIRST_PERIOD_S if unsure or now - self._started < FIRST_FOR_S else PERIOD_S

    def _confirmed(self, seen: dict[str, float], found: list[str]) -> list[str]:
        """Remember first sightings, forget what is well again; answers what was seen twice, far enough apart."""
        now = self._ctx.clock.monotonic()
        for key in [key for key in seen if key not in found]:
            del seen[key]
        for key in found:
            seen.setdefault(key, now)
        return [key for key in found if now - seen[key] >= CONFIRM_S]

    async def _each(self, collect: Callable[[NodeClaim], Awaitable[None]], found: list[NodeClaim]) -> None:
        """So many at once; one that fails is told, tried again in the next round and holds up no other."""
        free = asyncio.Semaphore(PARALLEL)

        async def one(item: NodeClaim) -> None:
            async with free:
                await collect(item)

        for error in await asyncio.gather(*(one(item) for item in found), return_exceptions=True):
            if isinstance(error, Exception):
                self._log.error("collecting failed, trying again", error=error)

    async def _collect_claims(self, claims: list[NodeClaim], instances: list[NodeClaim]) -> None:
        """Claims whose machine is gone, unless its kubelet is alive and says otherwise."""
        there = {view.status.provider_id for view in instances if not view.is_deleting}
        suspects = {
            claim.uid: claim
            async for claim in in_slices(claims)
            if is_managed_claim(claim, self._ctx.provider.traits)
            and not claim.is_deleting
            and condition_status(claim.status.conditions, REGISTERED) == "True"
            and claim.status.provider_id not in there
        }
        confirmed = self._confirmed(self._absent, list(suspects))
        if len(confirmed) < len(suspects):
            unconfirmed = len(suspects) - len(confirmed)
            self._ctx.metrics.count("pykarpenter_absence_unconfirmed_total", {}, unconfirmed)
        await self._each(self._collect_claim, [suspects[uid] for uid in confirmed])

    async def _collect_claim(self, claim: NodeClaim) -> None:
        if not await self._is_gone(claim):
            return
        self._log.info("deleting nodeclaim without instance", nodeclaim=claim.name)
        await self._writer.give_up(claim, "garbage_collected")
        self._absent.pop(claim.uid, None)

    async def _is_gone(self, claim: NodeClaim) -> bool:
        """Asks the provider for this one instance and the API server for its Node; any doubt keeps the claim."""
        try:
            await self._ctx.provider.get(claim.status.provider_id)
            return False
        except NodeClaimNotFound:
            pass
        try:
            node = await self._ctx.api.get(kinds.NODE, claim.status.node_name)
        except NotFound:
            return True
        if node.spec.provider_id != claim.status.provider_id:
            return True
        return condition_status(node.status.conditions, "Ready") != "True"

    async def _collect_instances(self, claims: list[NodeClaim], instances: list[NodeClaim]) -> None:
        """Machines that no claim knows, by providerID or by the UID they were launched for."""
        uids = {claim.uid for claim in claims}
        provider_ids = {claim.status.provider_id for claim in claims}
        orphans = {
            view.status.provider_id: view
            async for view in in_slices(instances)
            if not view.is_deleting and view.uid not in uids and view.status.provider_id not in provider_ids
        }
        self._ctx.metrics.gauge("pykarpenter_orphan_instances", {}, len(orphans))
        confirmed = [orphans[key] for key in self._confirmed(self._orphans, list(orphans))]
        await self._each(self._collect_instance, [view for view in confirmed if self._is_old_enough(view)])

    def _is_old_enough(self, view: NodeClaim) -> bool:
        created = parse_optional_timestamp(view.metadata.creation_timestamp)
        if created is None:
            # Of unknown age: as old as we have known it.
            return self._ctx.clock.monotonic() - self._orphans[view.status.provider_id] >= ORPHAN_AGE_S
        return self._ctx.clock.now() - created >= ORPHAN_AGE_S

    async def _collect_instance(self, view: NodeClaim) -> None:
        """A Node of the machine goes first and drains; the machine follows in a later round."""
        provider_id = view.status.provider_id
        waiting = False
        for node in self._ctx.caches.of(kinds.NODE).index(NODES_BY_PROVIDER_ID, provider_id):
            if is_managed_node(node, self._ctx.provider.traits):
                waiting = await self._delete_node(node) or waiting
        if waiting:
            return
        self._log.info("deleting instance without nodeclaim", provider_id=provider_id)
        try:
            await self._ctx.provider.delete(view)
        except NodeClaimNotFound:
            self._orphans.pop(provider_id, None)

    async def _delete_node(self, node: Node) -> bool:
        """Whether the Node is still there afterwards, draining."""
        if not node.is_deleting:
            try:
                expected = Preconditions(uid=node.uid, resource_version=node.metadata.resource_version)
                await self._ctx.api.delete(kinds.NODE, node.name, options=DeleteOptions(expected))
            except NotFound:
                return False
            except Conflict:
                # Newer than what we have seen (S9), or another Node of that name: looked at again in the next round.
                return True
        return bool(node.metadata.finalizers)
