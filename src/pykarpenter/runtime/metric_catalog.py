"""Every metric this program has: name, kind, labels, buckets and one line of help, as dashboards know them.

`karpenter_…`, `operator_…`, `controller_runtime_…`, `workqueue_…`, `client_go_…` and `leader_election_…` have
Karpenter's names and labels; `pykarpenter_…` are our own. `docs/metrics.md` is written from this table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

COUNTER, GAUGE, HISTOGRAM, SUMMARY = "counter", "gauge", "histogram", "summary"

# controller-runtime's thresholds, continued to ten minutes.
DURATION_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0),
    *(15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0),
)
RECONCILE_BUCKETS = DURATION_BUCKETS[: DURATION_BUCKETS.index(60.0) + 1]
CLIENT_DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
QUEUE_BUCKETS = tuple(10.0**power for power in range(-8, 4))
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0
LIFETIME_BUCKETS = (
    *(15 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR, 4 * _HOUR, 8 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 3 * _DAY, 5 * _DAY, 7 * _DAY, 14 * _DAY, 21 * _DAY, 30 * _DAY),
)


def doubling(first: float, last: float) -> tuple[float, ...]:
    """Buckets from `first` to `last`, each twice the one before."""
    buckets = [first]
    while buckets[-1] < last:
        buckets.append(buckets[-1] * 2)
    return tuple(buckets)


@dataclass(frozen=True, slots=True)
class Metric:
    """One family. `open_labels` says that providers and label rules add more labels."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = DURATION_BUCKETS
    open_labels: bool = False


def _counter(name: str, labels: str, text: str) -> Metric:
    return Metric(name, COUNTER, tuple(labels.split()), text)


def _gauge(name: str, labels: str, text: str, *, open_labels: bool = False) -> Metric:
    return Metric(name, GAUGE, tuple(labels.split()), text, open_labels=open_labels)


def _histogram(name: str, labels: str, text: str, buckets: tuple[float, ...] = DURATION_BUCKETS) -> Metric:
    return Metric(name, HISTOGRAM, tuple(labels.split()), text, buckets)


def _summary(name: str, labels: str, text: str) -> Metric:
    return Metric(name, SUMMARY, tuple(labels.split()), text)


_DISRUPTED = "reason nodepool capacity_type consolidation_policy termination_mode"
_DECISION = "decision reason consolidation_type"

NODECLAIMS = (
    _counter("karpenter_nodeclaims_created_total", "reason nodepool min_values_relaxed", "NodeClaims created"),
    _counter("karpenter_nodeclaims_terminated_total", "nodepool capacity_type zone", "NodeClaims terminated"),
    _counter("karpenter_nodeclaims_disrupted_total", _DISRUPTED, "NodeClaims disrupted"),
    _counter("karpenter_pods_disruption_initiated_total", _DISRUPTED, "Reschedulable pods on disrupted NodeClaims"),
    _counter(
        "karpenter_nodeclaims_unhealthy_disrupted_total",
        "condition nodepool capacity_type image_id termination_mode",
        "NodeClaims repaired",
    ),
    _histogram(
        "karpenter_nodeclaims_termination_duration_seconds", "nodepool", "Deletion to removal", doubling(1, 2048)
    ),
    _histogram(
        "karpenter_nodeclaims_instance_termination_duration_seconds",
        "nodepool",
        "Instance deletion to its end",
        doubling(1, 1024),
    ),
)
NODES = (
    _counter("karpenter_nodes_created_total", "nodepool zone", "Nodes created"),
    _counter("karpenter_nodes_terminated_total", "nodepool zone", "Nodes terminated"),
    _counter("karpenter_nodes_drained_total", "nodepool", "Nodes drained"),
    _summary("karpenter_nodes_termination_duration_seconds", "nodepool", "Deletion to removal of nodes"),
    _histogram("karpenter_nodes_lifetime_duration_seconds", "nodepool", "Age of nodes at their end", LIFETIME_BUCKETS),
    _counter("karpenter_nodes_reboots_total", "result", "Reboots in place"),
    _histogram("karpenter_nodes_reboot_duration_seconds", "result", "Reboots, begin to end", doubling(10, 1280)),
    _histogram("karpenter_nodes_reboot_recovery_duration_seconds", "", "Issue to recovery", doubling(10, 1280)),
    *(
        _gauge(f"karpenter_nodes_{name}", "resource_type", text, open_labels=True)
        for name, text in (
            ("allocatable", "Allocatable of nodes"),
            ("total_pod_requests", "Requests of pods on nodes, daemons left out"),
            ("total_pod_limits", "Limits of pods on nodes, daemons left out"),
            ("total_daemon_requests", "Requests of daemon pods on nodes"),
            ("total_daemon_limits", "Limits of daemon pods on nodes"),
            ("system_overhead", "Capacity that is not allocatable"),
        )
    ),
    _gauge("karpenter_nodes_current_lifetime_seconds", "", "Age of nodes", open_labels=True),
    _gauge("karpenter_cluster_utilization_percent", "resource_type", "Requested part of all allocatable"),
)
NODEPOOLS = (
    _gauge("karpenter_nodepools_limit", "resource_type nodepool", "Limits of pools"),
    _gauge("karpenter_nodepools_usage", "resource_type nodepool", "Usage of pools"),
    _gauge("karpenter_nodepools_cost_total", "nodepool", "Hourly price of a pool's machines"),
    _counter("karpenter_nodepools_cost_tracker_errors_total", "nodepool", "Prices that could not be found"),
    _gauge("karpenter_nodepools_allowed_disruptions", "nodepool reason", "Disruptions that budgets allow now"),
    _gauge("karpenter_nodepools_nodes_consuming_budgets", "nodepool reason", "Nodes that use budgets up"),
)
PODS = (
    _gauge(
        "karpenter_pods_state",
        "name namespace owner node scheduled nodepool zone arch capacity_type instance_type phase ready managed",
        "Pods and where they run",
    ),
    _summary("karpenter_pods_startup_duration_seconds", "", "Creation to running"),
    _histogram("karpenter_pods_provisioning_startup_duration_seconds", "", "First seen to running"),
    _histogram("karpenter_pods_scheduling_decision_duration_seconds", "", "First seen to first decision"),
    _histogram("karpenter_pods_bound_duration_seconds", "dynamic_resources", "Creation to binding"),
    _histogram("karpenter_pods_provisioning_bound_duration_seconds", "dynamic_resources", "First seen to binding"),
    _gauge("karpenter_pods_unbound_time_seconds", "name namespace dynamic_resources", "Unbound since creation"),
    _gauge(
        "karpenter_pods_provisioning_unbound_time_seconds",
        "name namespace dynamic_resources",
        "Unbound since first seen",
    ),
    _gauge("karpenter_pods_unstarted_time_seconds", "name namespace", "Not running since creation"),
    _gauge("karpenter_pods_provisioning_unstarted_time_seconds", "name namespace", "Not running since first seen"),
    _gauge("karpenter_pods_provisioning_scheduling_undecided_time_seconds", "name namespace", "Undecided for"),
    _counter("karpenter_pods_eviction_requests_total", "code", "Evictions by answer"),
    _counter("karpenter_pods_drained_total", "reason", "Pods drained"),
    _gauge("karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes", "nodepool", "Left from the last pass"),
    _counter("karpenter_pod_deletion_cost_pod_annotation_writes_total", "result", "Deletion-cost annotations"),
)
SCHEDULER = (
    _histogram("karpenter_scheduler_scheduling_duration_seconds", "controller", "Scheduling passes"),
    _gauge("karpenter_scheduler_unschedulable_pods_count", "controller", "Pods without a place in the last pass"),
    _gauge("karpenter_scheduler_queue_depth", "controller scheduling_id", "Pods left to schedule"),
    _gauge("karpenter_scheduler_unfinished_work_seconds", "controller scheduling_id", "The running pass takes"),
    _gauge("karpenter_scheduler_ignored_pods_count", "", "Pods that scheduling leaves out"),
    _gauge(
        "karpenter_scheduler_pending_pods_by_effective_zone_count",
        "controller zone",
        "Pending pods by the zone they need",
    ),
)
DISRUPTION = (
    _histogram(
        "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
        "reason consolidation_type",
        "Evaluation of a disruption method",
    ),
    _counter("karpenter_voluntary_disruption_decisions_total", _DECISION, "Decisions made"),
    _counter("karpenter_voluntary_disruption_queue_failures_total", _DECISION, "Commands that failed"),
    _counter("karpenter_voluntary_disruption_decisions_by_nodepool_total", f"{_DECISION} nodepool", "By pool"),
    _counter(
        "karpenter_voluntary_disruption_terminate_first_decisions_total",
        "nodepool reason terminate_first_reason",
        "Candidates removed before their replacement",
    ),
    _gauge("karpenter_voluntary_disruption_eligible_nodes", "reason", "Nodes that could be disrupted"),
    _counter("karpenter_voluntary_disruption_consolidation_timeouts_total", "consolidation_type", "Searches cut short"),
    _counter(
        "karpenter_voluntary_disruption_failed_validations_total", "consolidation_type", "Plans dropped at the door"
    ),
    _histogram(
        "karpenter_consolidation_score",
        "decision nodepool policy",
        "Savings against disturbance",
        (0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0),
    ),
    _counter("karpenter_consolidation_moves_total", "decision nodepool policy", "Moves judged"),
)
STATE_AND_CLOUD = (
    _gauge("karpenter_build_info", "version goversion goarch commit", "Always 1"),
    _gauge("karpenter_cluster_state_node_count", "", "Nodes known"),
    _gauge("karpenter_cluster_state_synced", "", "1 when state holds all that the cluster has"),
    _gauge("karpenter_cluster_state_unsynced_time_seconds", "", "Not synced for"),
    _histogram(
        "karpenter_cloudprovider_duration_seconds",
        "controller method provider",
        "Calls to the provider",
        CLIENT_DEFAULT_BUCKETS,
    ),
    _counter(
        "karpenter_cloudprovider_errors_total",
        "controller method provider error nodepool",
        "Provider calls that failed",
    ),
)
FRAMEWORK = (
    _counter("controller_runtime_reconcile_total", "controller result", "Reconciles by result"),
    _counter("controller_runtime_reconcile_errors_total", "controller", "Reconciles that failed"),
    _counter("controller_runtime_terminal_reconcile_errors_total", "controller", "Failures that are not retried"),
    _counter("controller_runtime_reconcile_panics_total", "controller", "Failures nobody expected: defects"),
    _counter("controller_runtime_reconcile_timeouts_total", "controller", "Reconciles cut short"),
    _histogram("controller_runtime_reconcile_time_seconds", "controller", "Reconcile time", RECONCILE_BUCKETS),
    _gauge("controller_runtime_max_concurrent_reconciles", "controller", "Workers a controller may use"),
    _gauge("controller_runtime_active_workers", "controller", "Workers in use"),
    _counter("controller_runtime_conversion_webhook_panics_total", "", "Always 0: there are no webhooks"),
    _gauge("workqueue_depth", "controller name", "Keys in line"),
    _counter("workqueue_adds_total", "controller name", "Keys added"),
    _histogram("workqueue_queue_duration_seconds", "controller name", "Wait in line", QUEUE_BUCKETS),
    _histogram("workqueue_work_duration_seconds", "controller name", "Work on a key", QUEUE_BUCKETS),
    _gauge("workqueue_unfinished_work_seconds", "controller name", "Keys at work have taken, in sum"),
    _gauge("workqueue_longest_running_processor_seconds", "controller name", "The longest at work has taken"),
    _counter("workqueue_retries_total", "controller name", "Keys added with back-off"),
    _counter("client_go_request_total", "code method", "Requests to the API server"),
    _histogram(
        "client_go_request_duration_seconds",
        "verb group version kind subresource",
        "Answers of the API server",
        CLIENT_DEFAULT_BUCKETS,
    ),
    _gauge("leader_election_master_status", "name", "1 while this process leads"),
    _counter("leader_election_slowpath_total", "name", "Renewals that had to read the lease again"),
)
OWN = (
    _histogram("pykarpenter_loop_lag_seconds", "", "How late the event loop runs", CLIENT_DEFAULT_BUCKETS),
    _counter("pykarpenter_watch_restarts_total", "kind reason", "Watches begun anew"),
    _gauge("pykarpenter_watch_lag_seconds", "kind", "Age of the newest object when its creation was heard"),
    _counter("pykarpenter_event_anomalies_total", "kind anomaly", "Watch events out of order or repeated"),
    _counter("pykarpenter_undecodable_objects_total", "kind", "Objects set aside because they do not fit their type"),
    _counter("pykarpenter_fenced_writes_total", "verb kind", "Writes not sent because the lease is not held"),
    _counter("pykarpenter_events_dropped_total", "reason", "Events not written"),
    _gauge("pykarpenter_clock_skew_seconds", "", "The API server's clock is ahead by"),
    _counter("pykarpenter_rate_limited_seconds_total", "", "Time that requests waited for the client's rate limit"),
    _gauge("pykarpenter_catalogue_age_seconds", "nodepool", "Time since the provider last listed the pool's types"),
    _counter(
        "pykarpenter_catalogue_rejected_total", "nodepool reason", "Listed types and offerings not used as listed"
    ),
    _gauge("pykarpenter_plan_price_per_hour", "", "What the machines of the last plan with new machines cost, $/h"),
    _gauge("pykarpenter_plan_lower_bound_per_hour", "", "What no fleet for the same pods could undercut, $/h"),
    _gauge(
        "pykarpenter_fleet_optimality_gap", "", "How far the fleet's price is above its lower bound, as a share of it"
    ),
    _gauge("pykarpenter_held_pods", "", "Pending pods for which nothing more is bought now"),
    _gauge("pykarpenter_orphan_instances", "", "Instances without a NodeClaim"),
    _counter("pykarpenter_absence_unconfirmed_total", "", "Absences that a second look did not confirm"),
    _counter("pykarpenter_identity_conflicts_total", "kind", "Objects that claim the same identity"),
    _counter("pykarpenter_foreign_skipped_total", "what", "Messages about machines that are not ours, left alone"),
    _gauge("pykarpenter_degraded", "what", "1 while something the program reads from cannot be reached"),
    _counter("karpenter_interruption_received_messages_total", "message_type", "Announced interruptions acted upon"),
)

# Kinds whose conditions and deletions are shown; a provider's classes are among them.
STATUS_KINDS = ("nodeclaim", "nodepool", "node", "capacitybuffer")
CLASS_KINDS = ("kwoknodeclass", "simnodeclass")
_CONDITION_BUCKETS = doubling(0.5, 8192)


def status_metrics(kind: str, extra: tuple[str, ...] = ()) -> tuple[Metric, ...]:
    """The condition and termination families of one kind (`nodeclaim`, `nodepool`, …), with its extra labels."""
    prefix = f"operator_{kind}"
    identity = f"namespace name {' '.join(extra)}".strip()
    families = (
        _gauge(f"{prefix}_status_condition_count", f"{identity} type status reason", "Conditions held"),
        _gauge(f"{prefix}_status_condition_current_status_seconds", f"{identity} type status reason", "Held for"),
        _counter(f"{prefix}_status_condition_transitions_total", "type status reason", "Transitions"),
        _histogram(
            f"{prefix}_status_condition_transition_seconds",
            "type status to_status",
            "Time in the state that was left",
            _CONDITION_BUCKETS,
        ),
        _gauge(f"{prefix}_termination_current_time_seconds", identity, "Deleting for"),
        _histogram(f"{prefix}_termination_duration_seconds", "", "Deletion to removal", _CONDITION_BUCKETS),
    )
    return tuple(replace(family, open_labels=True) for family in families)


def deprecated_status_metrics() -> tuple[Metric, ...]:
    """The same without a kind in the name, as older dashboards ask for them; group and kind are labels."""
    families = status_metrics("<kind>")
    return tuple(
        replace(
            family,
            name=family.name.replace("operator_<kind>_", "operator_"),
            labels=("group", "kind", *family.labels),
            open_labels=False,
            help=f"{family.help} (deprecated: ask for the kind's own)",
        )
        for family in families
    )


CATALOG: dict[str, Metric] = {
    metric.name: metric
    for group in (
        NODECLAIMS,
        NODES,
        NODEPOOLS,
        PODS,
        SCHEDULER,
        DISRUPTION,
        STATE_AND_CLOUD,
        FRAMEWORK,
        OWN,
        *(status_metrics(kind) for kind in (*STATUS_KINDS, *CLASS_KINDS)),
        deprecated_status_metrics(),
    )
    for metric in group
}
