"""The provisioning loop: a batch of demand becomes a plan, the plan becomes NodeClaims.

Reads the cluster once, as a frozen snapshot; decides elsewhere (`core.packing`), off the event loop; then promises
capacity, creates, and tells. It never binds pods and never pauses for claims that are not launched yet: their pods
count as placed. A step that fails is logged and tried again with the next batch.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from pykarpenter.api.pods import Pod
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.pod_times import PodTimes
from pykarpenter.controllers.provisioning.batcher import Batcher
from pykarpenter.controllers.provisioning.catalogue import Catalogue
from pykarpenter.controllers.provisioning.creation import ClaimCreator
from pykarpenter.controllers.provisioning.purchases import Purchases
from pykarpenter.controllers.provisioning.reporting import CONTROLLER, PlanReporter
from pykarpenter.core.buffers import is_virtual
from pykarpenter.core.effective_zone import zone_counts
from pykarpenter.core.packing.eligibility import is_provisionable, leaving_pods
from pykarpenter.core.packing_settings import PackingSettings, ShouldStop
from pykarpenter.core.plans import LaunchPlan, claim_name
from pykarpenter.core.reasons import Refusal
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView
from pykarpenter.runtime.controller import Loop
from pykarpenter.runtime.logs import get_logger

# The longest a decision may search; what is placed by then is kept.
SOLVE_TIMEOUT_S = 60.0
# Pools or claims cannot be read at all: look again this often (F33).
_UNSERVED_S = 5.0

Pack = Callable[[ClusterSnapshot, PackingSettings, ShouldStop], LaunchPlan]


class Provisioner:
    """Controller `provisioner`."""

    def __init__(
        self,
        ctx: Context,
        batcher: Batcher,
        times: PodTimes,
        purchases: Purchases,
        creator: ClaimCreator,
        pack: Pack,
    ) -> None:
        self._ctx = ctx
        self._batcher = batcher
        self._purchases = purchases
        self._creator = creator
        self._pack = pack
        self._catalogue = Catalogue(ctx)
        self._reporter = PlanReporter(ctx, times)
        self._settings = ctx.settings.packing(ctx.provider.traits)
        self._plans = 0
        self._loop = Loop(CONTROLLER, self.step, clock=ctx.clock)
        self._log = get_logger(controller=CONTROLLER)

    async def run(self) -> None:
        await self._ctx.sync.wait_first()
        await self._loop.run()

    async def step(self) -> float:
        await self._batcher.wait_batch()
        while self._ctx.caches.unserved():  # noqa: ASYNC110 - pure state
            await asyncio.sleep(_UNSERVED_S)
        await self.provision()
        return 0.0

    async def provision(self) -> LaunchPlan | None:
        """Plan and carry out once; None when there was nothing to plan for."""
        started = self._ctx.clock.monotonic()
        await self._catalogue.refresh()
        snapshot = self._ctx.state.snapshot(self._ctx.clock.now())
        batch = demand(snapshot)
        if not batch:
            return None
        plan_id = self._next_plan_id(snapshot.now)
        self._reporter.found(batch, plan_id, self._ctx.clock.monotonic() - started)
        self._reporter.begun(batch, plan_id)
        whole = snapshot
        snapshot, held = self._without_held(snapshot)
        plan = await self._decide(snapshot, held, plan_id)
        if self._ctx.settings.dry_run:
            self._reporter.would_launch(plan, plan_id)
        else:
            await self._apply(snapshot, plan, plan_id, {pod.key: pod for pod in batch})
        # Only shown, so it comes last: counting the pods of a large cluster takes a while.
        rules = self._ctx.provider.traits.label_rules
        self._reporter.show_zones(await self._ctx.offload(lambda: zone_counts(whole, batch, rules)))
        return plan

    def _without_held(self, snapshot: ClusterSnapshot) -> tuple[ClusterSnapshot, dict[str, Refusal]]:
        """The snapshot without pods for which nothing more is bought now, and why."""
        held = {
            pod.key: refusal
            for pod in snapshot.pods
            if (refusal := self._purchases.hold(pod, snapshot.now)) is not None
        }
        leaving = {
            pod.key: refusal
            for pod in leaving_pods(snapshot)
            if (refusal := self._purchases.hold_leaving(pod, snapshot.now)) is not None
        }
        held |= leaving
        self._ctx.metrics.gauge("pykarpenter_held_pods", {}, len(held))
        if not held:
            return snapshot, held
        pods = tuple(pod for pod in snapshot.pods if pod.key not in held)
        return replace(snapshot, pods=pods, nodes=_without_pods(snapshot.nodes, leaving)), held

    async def _decide(self, snapshot: ClusterSnapshot, held: dict[str, Refusal], plan_id: str) -> LaunchPlan:
        started = self._ctx.clock.monotonic()

        def is_late() -> bool:
            return self._ctx.clock.monotonic() - started > SOLVE_TIMEOUT_S

        plan = await self._ctx.offload(lambda: self._pack(snapshot, self._settings, is_late))
        if held:
            plan = replace(plan, unschedulable={**plan.unschedulable, **held})
        self._reporter.planned(plan, plan_id, self._ctx.clock.monotonic() - started)
        return plan

    async def _apply(self, snapshot: ClusterSnapshot, plan: LaunchPlan, plan_id: str, pods: dict[str, Pod]) -> None:
        until = self._ctx.clock.now() + self._ctx.settings.nomination_s
        for placement in plan.existing:
            if any(key in pods and not is_virtual(pods[key]) for key in placement.pods):
                self._ctx.state.nominate(placement.node, until)
        for index, planned in enumerate(plan.claims):
            name = claim_name(planned.node_pool, plan_id, index)
            self._purchases.planned(name, [pods[key] for key in planned.pods if key in pods])
        outcomes = await self._creator.create_all(plan_id, plan.claims, pods)
        for outcome in outcomes:
            if outcome.refusal is not None:
                self._purchases.withdrawn(outcome.name)
        if snapshot.buffer_pods:
            self._ctx.state.set_buffer_placements(*_buffer_placements(plan, snapshot))
        self._reporter.outcome(snapshot, plan, outcomes, pods)

    def _next_plan_id(self, now: float) -> str:
        """New for each plan of each process, and the same again when a simulation is repeated."""
        self._plans += 1
        return hashlib.sha256(f"{self._ctx.identity}/{now!r}/{self._plans}".encode()).hexdigest()[:16]


def demand(snapshot: ClusterSnapshot) -> list[Pod]:
    """Pods that a plan is asked for: pending ones, those that must leave their nodes, and virtual ones."""
    pending = [pod for pod in snapshot.pods if is_provisionable(pod)]
    return [*pending, *leaving_pods(snapshot), *snapshot.buffer_pods]


def _without_pods(views: tuple[NodeView, ...], keys: Mapping[str, Refusal]) -> tuple[NodeView, ...]:
    """Machines that are going, without these pods; all others are the very same."""
    if not keys:
        return views
    return tuple(
        replace(view, pods=tuple(pod for pod in view.pods if pod.key not in keys)) if view.marked_for_deletion else view
        for view in views
    )


def _buffer_placements(plan: LaunchPlan, snapshot: ClusterSnapshot) -> tuple[dict[str, int], list[str]]:
    """Virtual pods on machines that can take pods now: how many on each, and which."""
    virtual = {pod.key for pod in snapshot.buffer_pods}
    placed = {item.node: [key for key in item.pods if key in virtual] for item in plan.existing}
    ready = {view.name for view in snapshot.nodes if view.node is not None}
    counts = {name: len(keys) for name, keys in placed.items() if keys}
    return counts, [key for name, keys in placed.items() if name in ready for key in keys]
