"""How a machine is emptied: which pods must leave, in what order, what protects them, and when force is due.

Decides from pods, PodDisruptionBudgets, a deadline and the current time. It never evicts anything itself, and a pod
whose state it cannot read (an unparsable time, for instance) counts as still there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from pykarpenter.api import labels
from pykarpenter.api.duration import InvalidDuration, parse_duration
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodes import Taint
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.api.workloads import PodDisruptionBudget
from pykarpenter.core.selectors import selector_matches
from pykarpenter.core.taints import tolerates

DISRUPTED_TAINT = Taint(key=labels.DISRUPTED_TAINT, effect="NoSchedule")

# A pod that is still there this long past its deletion time hangs on a dead kubelet; it holds up nothing.
STUCK_TERMINATING_S = 60.0
# Kubernetes' default when a pod names no grace period.
DEFAULT_POD_GRACE_S = 30
# An empty node is held this long after the taint: a pod may have been bound just before it.
SETTLE_S = 5.0

_CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})


class Tier(IntEnum):
    """Drain order: a tier starts only when no pod of an earlier one is left."""

    WORKLOAD = 0
    DAEMON = 1
    CRITICAL_WORKLOAD = 2
    CRITICAL_DAEMON = 3


class Protection(StrEnum):
    """What a pod's `karpenter.sh/do-not-disrupt` annotation means at one instant."""

    NONE = "None"
    FOREVER = "Forever"
    UNTIL = "Until"
    ELAPSED = "Elapsed"
    INVALID = "Invalid"


@dataclass(frozen=True, slots=True)
class DoNotDisrupt:
    """The annotation read: `until` is epoch seconds, None while the pod's start is unknown or for other forms."""

    form: Protection
    until: float | None = None
    value: str = ""
    # The value is neither a boolean nor a duration; an operator may choose to protect such pods.
    unparsable: bool = False

    def protects(self, protect_unparsable: bool = False) -> bool:
        if self.form in (Protection.FOREVER, Protection.UNTIL):
            return True
        return protect_unparsable and self.unparsable


_UNPROTECTED = DoNotDisrupt(Protection.NONE)


def do_not_disrupt(pod: Pod, now: float) -> DoNotDisrupt:
    value = pod.metadata.annotations.get(labels.DO_NOT_DISRUPT)
    if value is None:
        return _UNPROTECTED
    if value == "true":
        return DoNotDisrupt(Protection.FOREVER, value=value)
    try:
        duration = parse_duration(value)
    except InvalidDuration:
        return DoNotDisrupt(Protection.INVALID, value=value, unparsable=value != "false")
    if duration <= 0:
        return DoNotDisrupt(Protection.INVALID, value=value)
    started = parse_optional_timestamp(pod.status.start_time)
    if started is None:
        return DoNotDisrupt(Protection.UNTIL, value=value)
    form = Protection.UNTIL if now - started < duration else Protection.ELAPSED
    return DoNotDisrupt(form, started + duration, value)


def is_owned_by(pod: Pod, api_version: str, kind: str) -> bool:
    # A plain loop: every pass asks this of every pod, and a generator costs more than the question.
    for owner in pod.metadata.owner_references:  # noqa: SIM110
        if owner.kind == kind and owner.api_version == api_version:
            return True
    return False


def is_terminal(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def is_active(pod: Pod) -> bool:
    return not is_terminal(pod) and not pod.is_deleting


def is_mirror(pod: Pod) -> bool:
    """A static pod's mirror: owned by its Node, it lives as long as the kubelet does."""
    return is_owned_by(pod, "v1", "Node")


def is_daemon(pod: Pod) -> bool:
    return is_owned_by(pod, "apps/v1", "DaemonSet")


def is_critical(pod: Pod) -> bool:
    return pod.spec.priority_class_name in _CRITICAL


def tolerates_disruption(pod: Pod) -> bool:
    """Such a pod would be put back on the same node, so draining leaves it alone."""
    return any(tolerates(toleration, DISRUPTED_TAINT) for toleration in pod.spec.tolerations)


def is_reschedulable(pod: Pod) -> bool:
    """Whether the pod, or its successor of the same name, needs room elsewhere once its node goes."""
    comes_back = pod.is_deleting and is_owned_by(pod, "apps/v1", "StatefulSet")
    return (is_active(pod) or comes_back) and not is_daemon(pod) and not is_mirror(pod)


def is_returning(pod: Pod) -> bool:
    """It has ended and uses nothing, but its StatefulSet makes it anew under the same name once it is gone."""
    return is_terminal(pod) and is_reschedulable(pod)


def is_evictable(pod: Pod, now: float, protect_unparsable: bool = False) -> bool:
    if not is_active(pod) or is_mirror(pod) or tolerates_disruption(pod):
        return False
    return not do_not_disrupt(pod, now).protects(protect_unparsable)


def is_stuck_terminating(pod: Pod, now: float) -> bool:
    deleted = parse_optional_timestamp(pod.metadata.deletion_timestamp)
    return deleted is not None and now > deleted + STUCK_TERMINATING_S


def is_waiting(pod: Pod, now: float) -> bool:
    """Whether a drain must wait for this pod; protected pods are waited for although they are not evicted."""
    if is_terminal(pod) or is_mirror(pod) or tolerates_disruption(pod):
        return False
    return not is_stuck_terminating(pod, now)


def tier(pod: Pod) -> Tier:
    daemon, critical = is_daemon(pod), is_critical(pod)
    if critical:
        return Tier.CRITICAL_DAEMON if daemon else Tier.CRITICAL_WORKLOAD
    return Tier.DAEMON if daemon else Tier.WORKLOAD


def grace_period_s(pod: Pod) -> int:
    own = pod.spec.termination_grace_period_seconds
    return DEFAULT_POD_GRACE_S if own is None else own


def is_force_due(pod: Pod, deadline: float | None, now: float) -> bool:
    """Whether the pod must be deleted now to be gone by the deadline, past every protection.

    A pod that already terminates in time is left to it, so that a pass does not repeat the delete.
    """
    if deadline is None or is_terminal(pod):
        return False
    deleted = parse_optional_timestamp(pod.metadata.deletion_timestamp)
    if deleted is not None:
        return deleted > max(deadline, now + 1)
    return now > deadline - grace_period_s(pod)


def forced_grace_s(deadline: float, now: float) -> int:
    """The grace a forced delete still leaves: whole seconds to the deadline, at least one."""
    return max(1, math.floor(deadline - now))


@dataclass(frozen=True, slots=True)
class DrainStep:
    """What one look at a draining node asks for; `waiting` holds every pod the drain is not done with."""

    evict: tuple[Pod, ...]
    force: tuple[Pod, ...]
    waiting: tuple[Pod, ...]

    @property
    def done(self) -> bool:
        return not self.waiting


def drain_step(
    pods: Iterable[Pod], now: float, deadline: float | None = None, protect_unparsable: bool = False
) -> DrainStep:
    """The pods to evict (of the first tier that is not empty) and to force (of any tier), ordered by key."""
    waiting = sorted((p for p in pods if is_waiting(p, now)), key=lambda p: p.key)
    force = tuple(p for p in waiting if is_force_due(p, deadline, now))
    forced = {p.uid for p in force}
    first = min((tier(p) for p in waiting), default=None)
    evict = tuple(
        p for p in waiting if p.uid not in forced and tier(p) == first and is_evictable(p, now, protect_unparsable)
    )
    return DrainStep(evict, force, tuple(waiting))


def matching_budgets(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> list[PodDisruptionBudget]:
    return [
        b for b in budgets if b.namespace == pod.namespace and selector_matches(b.spec.selector, pod.metadata.labels)
    ]


def blocking_budgets(
    pod: Pod, budgets: Sequence[PodDisruptionBudget], now: float, protect_unparsable: bool = False
) -> list[PodDisruptionBudget]:
    """The budgets that stop a voluntary disruption of this pod; empty when none does.

    Several matching budgets block whatever they allow, because the Eviction API refuses to choose. A pod that the
    drain would not evict is never blocked by a budget.
    """
    if not budgets or not is_evictable(pod, now, protect_unparsable):
        return []
    matching = matching_budgets(pod, budgets)
    if len(matching) != 1:
        return matching
    only = matching[0]
    not_ready = condition_status(pod.status.conditions, "Ready") == "False"
    if only.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" and not_ready:
        return []
    return matching if only.status.disruptions_allowed <= 0 else []


def is_fully_blocking(budget: PodDisruptionBudget) -> bool:
    """Whether the budget's own spec never lets a pod go, whatever its status says."""
    if budget.spec.max_unavailable in (0, "0", "0%"):
        return True
    return budget.spec.min_available == "100%"


def needs_replacement_capacity(
    pod: Pod, budgets: Sequence[PodDisruptionBudget], now: float, protect_unparsable: bool = False
) -> bool:
    """Whether capacity should be planned for a pod of a node that is going: it will really leave that node."""
    if not is_reschedulable(pod) or do_not_disrupt(pod, now).protects(protect_unparsable):
        return False
    return not any(is_fully_blocking(b) for b in matching_budgets(pod, budgets))
