"""Writes pod deletion costs (controllers `pod.deletioncost` and `pod.deletioncost.queue`), behind their gate.

With the gate off, values that an earlier process wrote are removed once; users' own values are never touched.
"""

from __future__ import annotations

from pykarpenter.api import kinds, labels
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.provisioning.catalogue import Catalogue
from pykarpenter.core.disruption.candidates import World
from pykarpenter.core.disruption.deletion_costs import WRITTEN, CostPlan, CostWrite, clean_up, plan_costs
from pykarpenter.core.disruption.settings import DisruptionSettings
from pykarpenter.kube.errors import Conflict, Forbidden, NotFound
from pykarpenter.runtime.controller import Controller, Loop, Result
from pykarpenter.runtime.logs import get_logger

PERIOD_S = 60.0
# A pass whose cluster did not change is left out, but not for longer than this.
REFRESH_S = 300.0
_PENDING = "karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes"
_WRITES = "karpenter_pod_deletion_cost_pod_annotation_writes_total"


class PodDeletionCosts:
    """Ranks nodes once a minute and hands the writes to the queue."""

    def __init__(self, ctx: Context, settings: DisruptionSettings) -> None:
        self._ctx = ctx
        self._settings = settings
        self._catalogue = Catalogue(ctx)
        self._writes: dict[str, CostWrite] = {}
        self._pools_shown: set[str] = set()
        self._done_at = (-1, 0.0)
        self._is_clean = False
        self._loop = Loop("pod.deletioncost", self.step, clock=ctx.clock)
        self.queue: Controller[str] = Controller(
            "pod.deletioncost.queue",
            self.write,
            clock=ctx.clock,
            workers=ctx.settings.workers(100, 5000),
            backoff=(0.1, 10.0),
        )
        self._log = get_logger(controller="pod.deletioncost")

    async def run(self) -> None:
        await self._ctx.sync.wait_first()
        await self._loop.run()

    async def step(self) -> float:
        if not self._settings.pod_deletion_cost:
            self._clean_up()
            return PERIOD_S
        revision, now = self._ctx.state.consolidation_revision, self._ctx.clock.now()
        last_revision, last_at = self._done_at
        if revision == last_revision and now - last_at < REFRESH_S:
            return PERIOD_S
        await self._catalogue.refresh()
        snapshot = self._ctx.state.snapshot(now)
        settings = self._settings
        plan: CostPlan = await self._ctx.offload(lambda: plan_costs(World(snapshot, settings)))
        self._enqueue(plan.writes)
        waiting = dict(plan.waiting)
        pools = {pool.name for pool in snapshot.node_pools}
        for pool in sorted(pools):
            self._ctx.metrics.gauge(_PENDING, {"nodepool": pool}, waiting.get(pool, 0))
        for gone in sorted(self._pools_shown - pools):
            self._ctx.metrics.forget(_PENDING, {"nodepool": gone})
        self._pools_shown = pools
        if not plan.waiting:
            self._done_at = (revision, now)
        return PERIOD_S

    def _clean_up(self) -> None:
        if not self._is_clean:
            writes = clean_up(self._ctx.state.views())
            self._is_clean = not writes
            self._enqueue(writes)

    def _enqueue(self, writes: list[CostWrite] | tuple[CostWrite, ...]) -> None:
        for item in writes:
            key = f"{item.namespace}/{item.name}"
            self._writes[key] = item
            self.queue.enqueue(key)

    async def write(self, key: str) -> Result | None:
        """The latest value wins; a pod that changed or left meanwhile is looked at again in the next pass."""
        item = self._writes.pop(key, None)
        if item is None or self._ctx.settings.dry_run:
            return None
        value = None if item.value is None else str(item.value)
        meta = {"uid": item.uid, "resourceVersion": item.resource_version}
        body = {"metadata": {**meta, "annotations": {labels.POD_DELETION_COST: value, WRITTEN: value}}}
        try:
            await self._ctx.api.patch(kinds.POD, item.name, body, item.namespace)
        except Conflict:
            self._count("skipped_conflict")
        except NotFound:
            self._count("skipped_notfound")
        except Forbidden as error:
            self._count("error")
            self._log.error("not allowed to patch pods; the gate's role is missing", error=error)
        except Exception:
            self._count("error")
            self._writes.setdefault(key, item)
            raise
        else:
            self._count("updated")
        return None

    def _count(self, result: str) -> None:
        self._ctx.metrics.count(_WRITES, {"result": result})


class CostQueue:
    """The queue of a `PodDeletionCosts`, as a controller of its own."""

    def __init__(self, costs: PodDeletionCosts) -> None:
        self._queue = costs.queue

    async def run(self) -> None:
        await self._queue.run()
