"""What disruption says about itself: events, metrics, log lines, and one audit record for each disruptive write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pykarpenter.api import kinds
from pykarpenter.api.nodes import ObjectReference
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.identity import claim_reference, node_reference, pod_reference
from pykarpenter.core.disruption.blockers import Notice
from pykarpenter.core.disruption.commands import (
    CONSOLIDATION_TYPES,
    Command,
    Decision,
    DisruptionPlan,
    Method,
    MethodRun,
    Reason,
    Target,
)
from pykarpenter.kube.events import reference_to
from pykarpenter.runtime.logs import get_logger
from pykarpenter.runtime.slices import in_slices

ALLOWED = "karpenter_nodepools_allowed_disruptions"
CONSUMING = "karpenter_nodepools_nodes_consuming_budgets"


def snake(text: str) -> str:
    """`WhenEmptyOrUnderutilized` as `when_empty_or_underutilized`, `KWOKUnhealthy` as `kwok_unhealthy`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text).lower()


class Reports:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._log = get_logger(controller="disruption")
        self._audit = get_logger(controller="disruption", audit=True)
        # Costs that cannot be read and were told, so that a pod is named once.
        self._told_costs: frozenset[tuple[str, str, str]] = frozenset()
        self._pools_shown: set[str] = set()
        # What keeps each method from deciding, so that it is told when it comes and not in every pass.
        self._told_obstacles: dict[Method, str] = {}
        # Shown as zero from the start, so that an alert on them has something to stand on.
        for kind in ("multi", "single"):
            ctx.metrics.count(
                "karpenter_voluntary_disruption_consolidation_timeouts_total", {"consolidation_type": kind}, 0
            )

    # Events.

    async def publish(self, notices: Sequence[Notice]) -> None:
        async for notice in in_slices(notices):
            for target in self._references(notice):
                self._ctx.recorder.publish(
                    target,
                    "Warning" if notice.warning else "Normal",
                    notice.reason,
                    notice.message,
                    dedupe=(target.kind, target.name, notice.message),
                    window_s=notice.window_s,
                )

    def unreadable_costs(self, found: Iterable[tuple[str, str, str]]) -> None:
        """Pods whose cost annotation counts nothing because it is no number."""
        now = dict.fromkeys(found)
        for pod, annotation, value in now:
            if (pod, annotation, value) not in self._told_costs:
                problem = "is no 32-bit number and counts as 0; write a whole number such as 100"
                self._log.error("pod cost cannot be read", Pod=pod, annotation=annotation, value=value, problem=problem)
        self._told_costs = frozenset(now)

    def _references(self, notice: Notice) -> list[ObjectReference]:
        caches = self._ctx.caches
        if notice.kind == "Pod":
            pod = caches.of(kinds.POD).get(notice.name)
            return [pod_reference(pod)] if pod is not None else []
        if notice.kind == "NodePool":
            pool = caches.of(kinds.NODE_POOL).get(notice.name)
            return [reference_to(kinds.NODE_POOL, pool)] if pool is not None else []
        node = caches.of(kinds.NODE).get(notice.name) if notice.kind == "Node" else None
        claim = caches.of(kinds.NODE_CLAIM).get(notice.claim) if notice.claim else None
        found = [node_reference(node)] if node is not None else []
        return [*found, claim_reference(claim)] if claim is not None else found

    def launching(self, claim_name: str, reason: Reason, *, waiting: bool) -> None:
        claim = self._ctx.caches.of(kinds.NODE_CLAIM).get(claim_name)
        if claim is None:
            return
        target = claim_reference(claim)
        message = f"Launching NodeClaim: {reason}"
        self._ctx.recorder.publish(target, "Normal", "DisruptionLaunching", message, dedupe=(claim.uid, reason))
        if waiting:
            message = "Waiting on readiness to continue disruption"
            self._ctx.recorder.publish(target, "Normal", "DisruptionWaitingReadiness", message, dedupe=(claim.uid,))

    def terminating(self, target: Target, reason: Reason) -> None:
        node = self._ctx.caches.of(kinds.NODE).get(target.node)
        claim = self._ctx.caches.of(kinds.NODE_CLAIM).get(target.claim)
        pairs = [("Node", node_reference(node))] if node is not None else []
        pairs += [("NodeClaim", claim_reference(claim))] if claim is not None else []
        for kind, found in pairs:
            message = f"Disrupting {kind}: {reason}"
            self._ctx.recorder.publish(found, "Normal", "DisruptionTerminating", message, dedupe=(found.name, message))

    # One pass.

    async def plan(self, plan: DisruptionPlan) -> None:
        """What every pass says, whether or not it found something."""
        for run in plan.runs:
            await self.publish(run.notices)
            self._run(run)
        for (pool, reason), (allowed, consuming) in plan.allowances.items():
            labels = {"nodepool": pool, "reason": reason.lower()}
            self._ctx.metrics.gauge(ALLOWED, labels, allowed)
            self._ctx.metrics.gauge(CONSUMING, labels, consuming)
        pools = {pool for pool, _ in plan.allowances}
        for gone in sorted(self._pools_shown - pools):
            for name in (ALLOWED, CONSUMING):
                self._ctx.metrics.forget(name, {"nodepool": gone})
        self._pools_shown = pools

    def _run(self, run: MethodRun) -> None:
        metrics, reason = self._ctx.metrics, run.reason.lower()
        metrics.gauge("karpenter_voluntary_disruption_eligible_nodes", {"reason": reason}, run.eligible)
        kind = _consolidation_type(run)
        if run.timed_out:
            metrics.count("karpenter_voluntary_disruption_consolidation_timeouts_total", {"consolidation_type": kind})
        for pool, approved, score in run.scores:
            labels = {"decision": "approved" if approved else "rejected", "nodepool": pool, "policy": "Balanced"}
            metrics.count("karpenter_consolidation_moves_total", labels)
            if score != float("inf"):
                metrics.observe("karpenter_consolidation_score", labels, score)
        labels = {"reason": reason, "consolidation_type": kind}
        metrics.observe("karpenter_voluntary_disruption_decision_evaluation_duration_seconds", labels, run.seconds)
        if run.error and self._told_obstacles.get(run.method) != run.error:
            self._log.info("disruption method waits", method=str(run.method), why=run.error)
        self._told_obstacles[run.method] = run.error

    def validation_failed(self, command: Command, failure: str, message: str) -> None:
        labels = {"consolidation_type": command.consolidation_type}
        self._ctx.metrics.count("karpenter_voluntary_disruption_failed_validations_total", labels)
        self._log.info("abandoned disruption", command=command.id, failure=failure, blocker=message)

    # Commands.

    def started(self, command: Command, replacements: Iterable[str]) -> None:
        labels = {
            "decision": str(command.decision),
            "reason": command.reason.lower(),
            "consolidation_type": command.consolidation_type,
        }
        self._ctx.metrics.count("karpenter_voluntary_disruption_decisions_total", labels)
        for pool in sorted({target.pool for target in command.targets}):
            self._ctx.metrics.count(
                "karpenter_voluntary_disruption_decisions_by_nodepool_total", {**labels, "nodepool": pool}
            )
        if command.decision is Decision.TERMINATE_FIRST:
            self._ctx.metrics.count(
                "karpenter_voluntary_disruption_terminate_first_decisions_total",
                {
                    "nodepool": command.targets[0].pool,
                    "reason": command.reason.lower(),
                    "terminate_first_reason": command.terminate_first_reason,
                },
            )
        if command.repair_condition:
            self._log.info(
                "selected repair policy",
                command=command.id,
                condition=command.repair_condition,
                action=str(command.decision),
                bound_s=command.targets[0].drain_bound_s,
                **{"reboot-escalated": command.escalated},
            )
        self._log.info("disrupting node(s)", **self._facts(command, replacements))

    def would_start(self, command: Command) -> None:
        """Dry run: the same line, saying that nothing was done."""
        self._log.info("would disrupt node(s), but this is a dry run", **self._facts(command, ()))

    def _facts(self, command: Command, replacements: Iterable[str]) -> Mapping[str, object]:
        names = list(replacements)
        facts: dict[str, object] = {
            "command": command.id,
            "reason": str(command.reason),
            "decision": str(command.decision),
            "disrupted-node-count": len(command.targets),
            "replacement-node-count": len(command.replacements),
            "pod-count": command.pod_count,
            "disrupted-nodes": [
                {
                    "Node": target.node,
                    "NodeClaim": target.claim,
                    "capacity-type": target.capacity_type,
                    "instance-type": target.instance_type,
                }
                for target in command.targets
            ],
            "replacement-nodes": [
                {
                    "NodeClaim": names[index] if index < len(names) else "",
                    "capacity-type": claim.choice.capacity_type,
                    "instance-types": ", ".join(claim.instance_types[:5]),
                }
                for index, claim in enumerate(command.replacements)
            ],
        }
        if command.saving is not None:
            facts["saving-per-hour"] = round(command.saving, 6)
        if command.escalated:
            facts["reboot-escalated"] = True
        if command.repair_condition:
            facts["condition"] = command.repair_condition
        return facts

    def given_up(self, command: Command, why: str, uninitialized: int) -> None:
        labels = {
            "decision": str(command.decision),
            "reason": command.reason.lower(),
            "consolidation_type": command.consolidation_type,
        }
        if uninitialized:
            self._ctx.metrics.count("karpenter_voluntary_disruption_queue_failures_total", labels, uninitialized)
        self._log.error("gave up disruption, nodes are back in service", command=command.id, why=why)

    def disrupted(self, command: Command, target: Target) -> None:
        """Counted once for each machine that is really deleted or rebooted."""
        policy = snake(target.consolidation_policy) if command.consolidation_type else ""
        labels = {
            "reason": command.reason.lower(),
            "nodepool": target.pool,
            "capacity_type": target.capacity_type,
            "consolidation_policy": policy,
            "termination_mode": target.termination_mode,
        }
        self._ctx.metrics.count("karpenter_nodeclaims_disrupted_total", labels)
        self._ctx.metrics.count("karpenter_pods_disruption_initiated_total", labels, len(target.pods))
        if command.reason is Reason.UNHEALTHY:
            mode = target.termination_mode
            if target.drain_bound_s is not None:
                mode = "forceful" if target.drain_bound_s <= 0 else "eventual"
            self._ctx.metrics.count(
                "karpenter_nodeclaims_unhealthy_disrupted_total",
                {
                    "condition": snake(command.repair_condition),
                    "nodepool": target.pool,
                    "capacity_type": target.capacity_type,
                    "image_id": target.image_id,
                    "termination_mode": mode,
                },
            )

    def audit(self, action: str, command: Command, target: Target, preconditions: Mapping[str, str]) -> None:
        """Who, why, under which plan and preconditions a machine was touched."""
        self._audit.info(
            action,
            who="disruption",
            why=f"{command.reason}/{command.decision}",
            plan=command.id,
            Node=target.node,
            NodeClaim=target.claim,
            preconditions=dict(preconditions),
        )


def _consolidation_type(run: MethodRun) -> str:
    return CONSOLIDATION_TYPES.get(run.method, "")
