"""What people hear of a plan: events on pods and pools, metrics, and log lines tied by the plan's id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pykarpenter.api import kinds
from pykarpenter.api.pods import Pod
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.identity import pod_reference
from pykarpenter.controllers.pod_times import PodTimes
from pykarpenter.controllers.provisioning.creation import Outcome, shortened
from pykarpenter.core.buffers import is_virtual
from pykarpenter.core.plans import LaunchPlan
from pykarpenter.core.reasons import Refusal, Why
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView
from pykarpenter.kube.events import reference_to
from pykarpenter.runtime.logs import get_logger

CONTROLLER = "provisioner"
FAILED_WINDOW_S = 300.0
EMPTY_POOL_WINDOW_S = 60.0


class PlanReporter:
    def __init__(self, ctx: Context, times: PodTimes) -> None:
        self._ctx = ctx
        self._times = times
        self._zones_shown: tuple[str, ...] = ()
        self._pods_found: tuple[str, ...] = ()
        self._log = get_logger(controller=CONTROLLER)

    def found(self, pods: Sequence[Pod], plan_id: str, duration_s: float) -> None:
        """Said once for the same pods: those that nothing can be bought for come back with every pass."""
        names = tuple(pod.key for pod in pods)
        say = self._log.debug if names == self._pods_found else self._log.info
        self._pods_found = names
        say(
            "found provisionable pod(s)",
            Pods=shortened(names),
            pods=len(names),
            duration=f"{duration_s * 1000:.3f}ms",
            plan=plan_id,
        )

    def begun(self, pods: Sequence[Pod], plan_id: str) -> None:
        """A pass over these pods runs from now on; `planned` ends it."""
        labelled = {"controller": CONTROLLER, "scheduling_id": plan_id}
        self._ctx.passes.put(
            CONTROLLER,
            [("karpenter_scheduler_queue_depth", labelled, len(pods))],
            [("karpenter_scheduler_unfinished_work_seconds", labelled, self._ctx.clock.now())],
        )

    def show_zones(self, counts: Mapping[str, int]) -> None:
        """How many waiting pods need which zone; zones that are offered no more fall to zero."""
        for zone, count in {**dict.fromkeys(self._zones_shown, 0), **counts}.items():
            labelled = {"controller": CONTROLLER, "zone": zone}
            self._ctx.metrics.gauge("karpenter_scheduler_pending_pods_by_effective_zone_count", labelled, count)
        self._zones_shown = tuple(counts)

    def planned(self, plan: LaunchPlan, plan_id: str, duration_s: float) -> None:
        self._ctx.passes.drop(CONTROLLER)
        metrics = self._ctx.metrics
        metrics.observe("karpenter_scheduler_scheduling_duration_seconds", {"controller": CONTROLLER}, duration_s)
        metrics.gauge(
            "karpenter_scheduler_unschedulable_pods_count", {"controller": CONTROLLER}, len(plan.unschedulable)
        )
        metrics.gauge("karpenter_scheduler_ignored_pods_count", {}, len(plan.ignored))
        if plan.claims:
            self._log.info(
                "computed new nodeclaim(s) to fit pod(s)",
                nodeclaims=len(plan.claims),
                pods=sum(len(claim.pods) for claim in plan.claims),
                plan=plan_id,
                **self._cost(plan),
            )

    def _cost(self, plan: LaunchPlan) -> dict[str, str]:
        """Price, bound and gap for the log line, as far as they are known; the gauges get the same numbers."""
        known: dict[str, str] = {}
        price, bound = plan.price_per_hour, plan.lower_bound
        if price is not None:
            self._ctx.metrics.gauge("pykarpenter_plan_price_per_hour", {}, price)
            known["price-per-hour"] = f"{price:.4f}"
        if bound is not None:
            self._ctx.metrics.gauge("pykarpenter_plan_lower_bound_per_hour", {}, bound)
            known["lower-bound"] = f"{bound:.4f}"
        if price and bound:
            known["gap"] = f"{(price / bound - 1) * 100:.1f}%"
        return known

    def would_launch(self, plan: LaunchPlan, plan_id: str) -> None:
        """Dry run: what a plan would create, and why pods are left out."""
        for claim in plan.claims:
            self._log.info(
                "would create nodeclaim, but this is a dry run",
                NodePool=claim.node_pool,
                pods=len(claim.pods),
                plan=plan_id,
                **{"instance-types": shortened(claim.instance_types)},
            )
        for key in sorted(plan.unschedulable):
            self._log.info("could not schedule pod", Pod=key, error=plan.unschedulable[key].text(), plan=plan_id)

    def outcome(
        self, snapshot: ClusterSnapshot, plan: LaunchPlan, outcomes: Sequence[Outcome], pods: Mapping[str, Pod]
    ) -> None:
        """Tell every pod what was decided about it."""
        now = self._ctx.clock.now()
        views = {view.name: view for view in snapshot.nodes}
        for placement in plan.existing:
            view = views.get(placement.node)
            for key in placement.pods:
                self._nominated(pods.get(key), _place(view) if view is not None else f"node/{placement.node}", now)
        for outcome in outcomes:
            for key in outcome.planned.pods:
                if outcome.claim is not None:
                    self._nominated(pods.get(key), f"nodeclaim/{outcome.name}", now)
                elif outcome.refusal is not None:
                    self._failed(pods.get(key), outcome.refusal, now)
        for refusals in (plan.unschedulable, plan.ignored):
            for key in sorted(refusals):
                if refusals[key].why is not Why.OPTED_OUT:
                    self._failed(pods.get(key), refusals[key], now)
        for name in sorted(plan.empty_pools):
            self._empty_pool(name, plan.empty_pools[name])

    def _nominated(self, pod: Pod | None, place: str, now: float) -> None:
        if pod is None or is_virtual(pod):
            return
        self._decided(pod, now)
        text = f"Pod should schedule on: {place}"
        self._ctx.recorder.publish(pod_reference(pod), "Normal", "Nominated", text, dedupe=(pod.uid, place))

    def _failed(self, pod: Pod | None, refusal: Refusal, now: float) -> None:
        if pod is None or is_virtual(pod):
            return
        self._decided(pod, now)
        self._ctx.recorder.publish(
            pod_reference(pod),
            "Warning",
            "FailedScheduling",
            f"Failed to schedule pod, {refusal.text()}",
            dedupe=(pod.uid,),
            window_s=FAILED_WINDOW_S,
        )

    def _decided(self, pod: Pod, now: float) -> None:
        waited = self._times.decided(pod, now)
        if waited is not None:
            self._ctx.metrics.observe("karpenter_pods_scheduling_decision_duration_seconds", {}, waited)

    def _empty_pool(self, name: str, refusal: Refusal) -> None:
        pool = self._ctx.state.node_pool(name)
        if pool is not None:
            self._ctx.recorder.publish(
                reference_to(kinds.NODE_POOL, pool),
                "Warning",
                "NoCompatibleInstanceTypes",
                refusal.text(),
                dedupe=(pool.uid,),
                window_s=EMPTY_POOL_WINDOW_S,
            )


def _place(view: NodeView) -> str:
    parts = [f"nodeclaim/{view.claim.name}"] if view.claim is not None else []
    if view.node is not None:
        parts.append(f"node/{view.node.name}")
    return ", ".join(parts)
