"""Which pods leave a node, in what order, and what holds them."""

from __future__ import annotations

import pytest

from pykarpenter.api import labels
from pykarpenter.api.meta import Condition, LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference
from pykarpenter.api.pods import Pod, PodSpec, PodStatus, Toleration
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.api.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from pykarpenter.core.draining import (
    Protection,
    blocking_budgets,
    do_not_disrupt,
    drain_step,
    forced_grace_s,
    is_evictable,
    is_force_due,
    is_reschedulable,
    is_waiting,
    needs_replacement_capacity,
)

NOW = 1_767_225_600.0


def pod(
    name: str = "p",
    *,
    owner: tuple[str, str] | None = None,
    priority_class: str = "",
    phase: str = "Running",
    deleted_at: float | None = None,
    grace: int | None = None,
    annotation: str | None = None,
    started_at: float | None = None,
    tolerates_all: bool = False,
    ready: str = "True",
) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            labels={"app": "web"},
            annotations={} if annotation is None else {labels.DO_NOT_DISRUPT: annotation},
            deletion_timestamp=None if deleted_at is None else format_timestamp(deleted_at),
            owner_references=[] if owner is None else [OwnerReference(api_version=owner[0], kind=owner[1])],
        ),
        spec=PodSpec(
            priority_class_name=priority_class,
            termination_grace_period_seconds=grace,
            tolerations=[Toleration(operator="Exists")] if tolerates_all else [],
        ),
        status=PodStatus(
            phase=phase,
            start_time=None if started_at is None else format_timestamp(started_at),
            conditions=[Condition(type="Ready", status=ready)],
        ),
    )


DAEMON = ("apps/v1", "DaemonSet")
CRITICAL = "system-cluster-critical"


@pytest.mark.promise("API-3.4.5")
@pytest.mark.promise("DIS-14.4")
def test_pods_leave_in_four_tiers() -> None:
    """A log shipper must outlive the workload it reads, and the network all of them."""
    pods = [
        pod("critical-daemon", owner=DAEMON, priority_class="system-node-critical"),
        pod("critical", priority_class=CRITICAL),
        pod("daemon", owner=DAEMON),
        pod("web"),
    ]
    order: list[list[str]] = []
    while pods:
        leaving = [p.name for p in drain_step(pods, NOW).evict]
        order.append(leaving)
        pods = [p for p in pods if p.name not in leaving]
    assert order == [["web"], ["daemon"], ["critical"], ["critical-daemon"]]


@pytest.mark.promise("API-3.4.5")
def test_a_tier_waits_for_terminating_pods_of_the_one_before() -> None:
    """An evicted pod still runs until it is gone, and daemons serve it until then."""
    step = drain_step([pod("web", deleted_at=NOW + 20), pod("daemon", owner=DAEMON)], NOW)
    assert step.evict == ()
    assert [p.name for p in step.waiting] == ["daemon", "web"]


@pytest.mark.promise("API-3.4.4")
@pytest.mark.parametrize(
    ("candidate", "waits"),
    [
        (pod(), True),
        (pod(phase="Succeeded"), False),
        (pod(phase="Failed"), False),
        (pod(owner=("v1", "Node")), False),
        (pod(tolerates_all=True), False),
        (pod(deleted_at=NOW - 60), True),
        (pod(deleted_at=NOW - 61), False),
        (pod(annotation="true"), True),
    ],
)
def test_a_drain_waits_only_for_pods_that_can_and_must_leave(candidate: Pod, waits: bool) -> None:
    """Mirror pods, finished pods and pods stuck on a dead kubelet would hold a node forever."""
    assert is_waiting(candidate, NOW) is waits


@pytest.mark.promise("API-3.4.9")
def test_protected_pods_stall_the_drain_and_are_not_evicted() -> None:
    """do-not-disrupt promises that the pod runs to its end."""
    step = drain_step([pod("busy", annotation="true"), pod("daemon", owner=DAEMON)], NOW)
    assert step.evict == ()
    assert not step.done


@pytest.mark.promise("API-3.4.7")
def test_force_starts_when_the_grace_period_would_pass_the_deadline() -> None:
    """All pods must be gone at the deadline, so a long grace period starts earlier."""
    deadline = NOW + 100
    slow = pod(grace=60)
    assert not is_force_due(slow, deadline, deadline - 60)
    assert is_force_due(slow, deadline, deadline - 59.5)
    assert not is_force_due(slow, None, deadline)
    assert not is_force_due(pod(), deadline, deadline - 30)
    assert is_force_due(pod(), deadline, deadline - 29)


@pytest.mark.promise("API-3.4.7")
def test_a_terminating_pod_is_forced_only_when_it_would_outlive_the_deadline() -> None:
    """A pod that goes in time is left to finish; one evicted with a long grace is cut short."""
    deadline = NOW + 10
    assert is_force_due(pod(deleted_at=NOW + 300), deadline, NOW)
    assert not is_force_due(pod(deleted_at=NOW + 5), deadline, NOW)
    assert not is_force_due(pod(deleted_at=NOW + 21), deadline, NOW + 20), "already deleted with one second left"


@pytest.mark.promise("API-3.4.7")
@pytest.mark.promise("DIS-14.4")
def test_forced_deletes_ignore_tiers_and_protection() -> None:
    """At the deadline nothing may hold the machine."""
    pods = [pod("busy", annotation="true", grace=3600), pod("dns", priority_class=CRITICAL, grace=3600), pod("web")]
    step = drain_step(pods, NOW, deadline=NOW + 600)
    assert [p.name for p in step.force] == ["busy", "dns"]
    assert [p.name for p in step.evict] == ["web"]


@pytest.mark.promise("API-3.4.7")
@pytest.mark.parametrize(("left", "grace"), [(10.9, 10), (1.0, 1), (0.2, 1), (-500.0, 1)])
def test_a_forced_delete_leaves_whole_seconds_and_at_least_one(left: float, grace: int) -> None:
    """Zero would make the API server drop the pod before its containers stop."""
    assert forced_grace_s(NOW + left, NOW) == grace


@pytest.mark.parametrize(
    ("value", "started_at", "form", "protects"),
    [
        ("true", None, Protection.FOREVER, True),
        ("4h", NOW - 3600, Protection.UNTIL, True),
        ("4h", None, Protection.UNTIL, True),
        ("1h30m", NOW - 5400, Protection.ELAPSED, False),
        ("false", NOW, Protection.INVALID, False),
        ("0s", NOW, Protection.INVALID, False),
        ("-5m", NOW, Protection.INVALID, False),
        ("yes", NOW, Protection.INVALID, False),
        (None, NOW, Protection.NONE, False),
    ],
)
def test_b27_do_not_disrupt_reads_true_or_a_positive_duration(
    value: str | None, started_at: float | None, form: Protection, protects: bool
) -> None:
    """Anything else protects nothing, and is worth a warning rather than a guess."""
    read = do_not_disrupt(pod(annotation=value, started_at=started_at), NOW)
    assert read.form is form
    assert read.protects() is protects


@pytest.mark.parametrize(("value", "protects"), [("yes", True), ("false", False), ("0s", False), ("-1h", False)])
def test_b27_the_operator_may_protect_unparsable_values_but_never_refusals(value: str, protects: bool) -> None:
    """`false`, zero and negative values say no; only text that cannot be read is given the benefit of the doubt."""
    assert do_not_disrupt(pod(annotation=value, started_at=NOW), NOW).protects(protect_unparsable=True) is protects


def budget(allowed: int = 0, **spec: object) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name="b", namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "web"}), **spec),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


@pytest.mark.promise("API-3.4.11")
def test_budgets_block_when_they_allow_nothing_or_when_several_match() -> None:
    """The Eviction API would refuse both, so planning such a disruption only makes noise."""
    assert blocking_budgets(pod(), [budget(0)], NOW)
    assert not blocking_budgets(pod(), [budget(1)], NOW)
    assert blocking_budgets(pod(), [budget(1), budget(1)], NOW)
    assert not blocking_budgets(pod(ready="False"), [budget(0, unhealthy_pod_eviction_policy="AlwaysAllow")], NOW)
    assert blocking_budgets(pod(), [budget(0, unhealthy_pod_eviction_policy="AlwaysAllow")], NOW)
    assert not blocking_budgets(pod(owner=("v1", "Node")), [budget(0)], NOW)


@pytest.mark.promise("API-3.4.11")
def test_an_empty_selector_matches_all_pods_and_an_absent_one_none() -> None:
    """policy/v1 reads `selector: {}` as every pod of the namespace."""
    everything = PodDisruptionBudget(
        metadata=ObjectMeta(namespace="default"), spec=PodDisruptionBudgetSpec(selector=LabelSelector())
    )
    nothing = PodDisruptionBudget(metadata=ObjectMeta(namespace="default"))
    other = PodDisruptionBudget(
        metadata=ObjectMeta(namespace="default"),
        spec=PodDisruptionBudgetSpec(
            selector=LabelSelector(
                match_expressions=[LabelSelectorRequirement(key="app", operator="NotIn", values=["web"])]
            )
        ),
    )
    assert blocking_budgets(pod(), [everything], NOW)
    assert not blocking_budgets(pod(), [nothing, other], NOW)


@pytest.mark.promise("API-3.4.12")
def test_replacement_capacity_is_planned_only_for_pods_that_will_leave() -> None:
    """A machine bought for a pod that stays where it is would stand empty."""
    assert needs_replacement_capacity(pod(), [budget(0)], NOW)
    assert needs_replacement_capacity(pod(owner=("apps/v1", "StatefulSet"), deleted_at=NOW), [], NOW)
    assert not needs_replacement_capacity(pod(deleted_at=NOW), [], NOW)
    assert not needs_replacement_capacity(pod(owner=DAEMON), [], NOW)
    assert not needs_replacement_capacity(pod(annotation="true"), [], NOW)
    assert not needs_replacement_capacity(pod(), [budget(5, max_unavailable="0%")], NOW)
    assert not needs_replacement_capacity(pod(), [budget(5, min_available="100%")], NOW)
    assert not is_reschedulable(pod(owner=("v1", "Node")))
    assert not is_evictable(pod(deleted_at=NOW), NOW)
