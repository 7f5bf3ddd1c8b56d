"""What disruption says about itself: events, metrics with their labels, the log line, and the hand-off of a reboot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import find_condition
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.core.repair import REBOOT_COMMITS
from pykarpenter.runtime import logs
from pykarpenter.runtime.feature_gates import FeatureGates
from pykarpenter.runtime.settings import Settings
from tests.controllers.disruption_steps import (
    SMALL,
    begin,
    drift_all,
    half_full,
    hold,
    make_sick,
    nodes_left,
    one_node_each,
    tainted,
)
from tests.controllers.world import World, is_true, story

VOLUNTARY = "karpenter_voluntary_disruption_"
REPAIR = Settings(feature_gates=FeatureGates(node_repair=True))


def counted(world: World, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """The sums of one counter by its labels."""
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for metric, labels_, amount in world.metrics.counts:
        if metric == name and amount:
            key = tuple(sorted(labels_.items()))
            found[key] = found.get(key, 0.0) + amount
    return found


def one(world: World, name: str) -> tuple[dict[str, str], float]:
    ((key, amount),) = counted(world, name).items()
    return dict(key), amount


def last(world: World, name: str, **wanted: str) -> float:
    """The last value of a gauge with exactly these labels."""
    return next(value for metric, found, value in reversed(world.metrics.labelled) if (metric, found) == (name, wanted))


@pytest.mark.promise("DIS-16.1", "DIS-16.2", "DIS-16.3")
def test_consolidation_is_counted_announced_and_logged_as_dashboards_expect() -> None:
    """Metric names, lower-case reasons, snake-case policies, event texts and the fields of the log line."""
    lines: list[str] = []

    async def main(world: World) -> None:
        logs.configure("info", clock=world.clock, write=lines.append)
        await begin(world)
        await half_full(world, 3)
        await nodes_left(world, 1, 900)
        await world.until_running("web", 3)
        await hold(world, 20)
        labels_ = {"decision": "delete", "reason": "underutilized", "consolidation_type": "multi"}
        assert one(world, f"{VOLUNTARY}decisions_total") == (labels_, 1)
        assert one(world, f"{VOLUNTARY}decisions_by_nodepool_total") == ({**labels_, "nodepool": "default"}, 1)
        disrupted = {
            "reason": "underutilized",
            "nodepool": "default",
            "capacity_type": "on-demand",
            "consolidation_policy": "when_empty_or_underutilized",
            "termination_mode": "graceful",
        }
        assert one(world, "karpenter_nodeclaims_disrupted_total") == (disrupted, 2)
        assert one(world, "karpenter_pods_disruption_initiated_total") == (disrupted, 2)
        assert last(world, f"{VOLUNTARY}eligible_nodes", reason="empty") == 0
        for reason in ("empty", "drifted", "underutilized", "unhealthy"):
            assert last(world, "karpenter_nodepools_allowed_disruptions", nodepool="default", reason=reason) == 1
            assert last(world, "karpenter_nodepools_nodes_consuming_budgets", nodepool="default", reason=reason) == 0
        took = f"{VOLUNTARY}decision_evaluation_duration_seconds"
        kinds_ = {tuple(sorted(found.items())) for name, found, _ in world.metrics.labelled if name == took}
        assert {dict(k)["consolidation_type"] for k in kinds_} == {"empty", "multi", "single", ""}
        told = {e.message for e in await world.events("DisruptionTerminating")}
        assert told == {"Disrupting Node: Underutilized", "Disrupting NodeClaim: Underutilized"}

    try:
        story(main)
    finally:
        logs.silence()
    (entry,) = [json.loads(line) for line in lines if '"disrupting node(s)"' in line]
    assert (entry["decision"], entry["reason"], entry["pod-count"]) == ("delete", "Underutilized", 2)
    assert (entry["disrupted-node-count"], entry["replacement-node-count"]) == (2, 0)
    assert len(entry["disrupted-nodes"]) == 2
    assert entry["replacement-nodes"] == []


@pytest.mark.promise("DIS-16.2", "DIS-17.6")
def test_lost_replacement_is_counted_under_its_real_type() -> None:
    """Q6: the decision is no consolidation type."""

    async def main(world: World) -> None:
        await begin(world, consolidateAfter="Never")
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "60s"}})
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        (old,) = await world.claims()
        await drift_all(world)

        async def replacement() -> list[NodeClaim]:
            return [c for c in await world.claims() if c.name != old.name and is_true(c, "Launched")]

        (new,) = await world.until(replacement)
        await hold(world, 5)
        told = await world.events("DisruptionLaunching") + await world.events("DisruptionWaitingReadiness")
        assert {(e.involved_object.name, e.message) for e in told} == {
            (new.name, "Launching NodeClaim: Drifted"),
            (new.name, "Waiting on readiness to continue disruption"),
        }
        await world.api.delete(kinds.NODE_CLAIM, new.name)
        await hold(world, 10)
        labels_ = {"decision": "replace", "reason": "drifted", "consolidation_type": ""}
        assert one(world, f"{VOLUNTARY}queue_failures_total") == (labels_, 1)
        assert counted(world, "karpenter_nodeclaims_disrupted_total") == {}

    story(main)


@pytest.mark.promise("DIS-16.2")
def test_failed_second_look_is_counted_and_told_on_the_node() -> None:
    """The user sees why the announced consolidation did not come."""

    async def main(world: World) -> None:
        await begin(world, requirements=SMALL)
        await world.deployment("web", 3, cpu="1")
        await world.until_running("web", 3)
        (node,) = await world.nodes()
        await world.scale("web", 1)

        async def announced() -> list[Any]:
            return await world.events("ConsolidationCandidate")

        await world.until(announced, 120)
        for pod in await world.pods("web"):
            patch = {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: "true"}}}
            await world.api.patch(kinds.POD, pod.name, patch, pod.namespace)
        await hold(world, 30)
        assert one(world, f"{VOLUNTARY}failed_validations_total") == ({"consolidation_type": "single"}, 1)
        told = await world.events("ConsolidationRejected")
        assert {e.involved_object.kind for e in told} == {"Node", "NodeClaim"}
        assert all("churn" in e.message for e in told)
        assert not tainted(await world.api.get(kinds.NODE, node.name))

    story(main)


@pytest.mark.promise("DIS-16.2")
def test_repair_is_counted_by_its_condition_and_its_drain_bound() -> None:
    """Snake case, the mode of the bound, no consolidation policy."""

    async def main(world: World) -> None:
        await begin(world, consolidateAfter="Never")
        nodes = await one_node_each(world, 5)
        await make_sick(world, nodes[0].name, "KWOKUnhealthy", world.clock.now())

        async def gone() -> bool:
            return nodes[0].name not in {n.name for n in await world.nodes()}

        await world.until(gone, 900)
        labels_, amount = one(world, "karpenter_nodeclaims_unhealthy_disrupted_total")
        assert amount == 1
        assert {key: labels_[key] for key in ("condition", "nodepool", "termination_mode")} == {
            "condition": "kwok_unhealthy",
            "nodepool": "default",
            "termination_mode": "eventual",
        }
        disrupted, _ = one(world, "karpenter_nodeclaims_disrupted_total")
        assert (disrupted["reason"], disrupted["consolidation_policy"]) == ("unhealthy", "")
        assert disrupted["termination_mode"] == "graceful"

    story(main, settings=REPAIR)


@pytest.mark.promise("DIS-7.4.2", "DIS-7.4.3", "DIS-17.13")
def test_reboot_is_handed_over_by_annotation_and_conditions_and_counted_as_a_disruption() -> None:
    """Nothing is tainted, marked or replaced by the queue; the machine uses every budget meanwhile."""

    async def main(world: World) -> None:
        await begin(world, consolidateAfter="Never")
        nodes = await one_node_each(world, 5)
        known = {claim.name for claim in await world.claims()}
        (old,) = [c for c in await world.claims() if c.status.node_name == nodes[0].name]
        await make_sick(world, nodes[0].name, "KWOKRebootRequired", world.clock.now())

        async def handed_over() -> NodeClaim | None:
            claim = await world.api.get(kinds.NODE_CLAIM, old.name)
            return claim if is_true(claim, "Rebooting") else None

        claim = await world.until(handed_over, 300)
        requested = find_condition(claim.status.conditions, "Rebooting")
        assert requested is not None
        assert requested.message == "rebooting for KWOKRebootRequired/Injected"
        reason = find_condition(claim.status.conditions, "DisruptionReason")
        assert reason is not None and (reason.status, reason.reason) == ("True", "Unhealthy")
        assert claim.metadata.annotations[labels.REBOOT_TERMINATION_GRACE_PERIOD] == "1m0s"
        assert len(claim.metadata.annotations[REBOOT_COMMITS].split(",")) == 1
        assert not tainted(await world.api.get(kinds.NODE, nodes[0].name))
        decided, _ = one(world, f"{VOLUNTARY}decisions_total")
        assert decided == {"decision": "reboot", "reason": "unhealthy", "consolidation_type": ""}
        disrupted, amount = one(world, "karpenter_nodeclaims_disrupted_total")
        assert (disrupted["reason"], amount) == ("unhealthy", 1)
        assert {c.name for c in await world.claims()} == known

        async def counts() -> bool:
            found = [v for n, k, v in world.metrics.labelled if n.endswith("nodes_consuming_budgets")]
            return 1 in found

        await world.until(counts, 30)

    story(main, settings=REPAIR)


@pytest.mark.promise("DIS-2.5")
def test_loop_looks_again_at_once_after_success_and_else_after_ten_seconds() -> None:
    """An idle cluster is looked at every ten seconds; two empty machines go one right after the other."""

    async def main(world: World) -> None:
        await begin(world, budgets=[{"nodes": "1"}])
        await one_node_each(world, 2)
        await world.scale("web", 0)
        await nodes_left(world, 0, 120)
        before = len(world.metrics.labelled)
        await hold(world, 60)
        passes = [n for n, found, _ in world.metrics.labelled[before:] if found == {"reason": "empty"}]
        assert 5 <= len(passes) <= 7

    story(main)


@pytest.mark.promise("DIS-2.2", "DIS-17.11")
def test_pools_that_are_not_ready_are_told_once_and_by_name() -> None:
    """It is a state of the cluster, not an error of the program, and a line every ten seconds hides all others."""
    lines: list[str] = []

    async def main(world: World) -> None:
        logs.configure("info", clock=world.clock, write=lines.append)
        await begin(world, budgets=[{"nodes": "0"}])
        await half_full(world, 3)
        await world.api.delete(kinds.KWOK_NODE_CLASS, "default")
        await hold(world, 30)
        lines.clear()
        await world.api.patch(kinds.NODE_POOL, "default", {"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}})
        await hold(world, 120)
        records = [json.loads(line) for line in lines]
        waits = [r for r in records if r["message"] == "disruption method waits"]
        assert [r["method"] for r in waits] == ["multi-node-consolidation", "single-node-consolidation"]
        assert all('nodepool "default" is not ready: ' in r["why"] for r in waits)
        assert not [r for r in records if r["level"] == "ERROR" and r.get("controller") == "disruption"]

    story(main)
