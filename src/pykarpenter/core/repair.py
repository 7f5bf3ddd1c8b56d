"""When a node condition means that a machine is broken, what to do about it, and how urgent it is.

Decides from a provider's policies, a Node's conditions and the current time. It never looks at pods, pools or
budgets: whether a repair may start is the disruption method's question.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pykarpenter.api import labels
from pykarpenter.api.meta import Condition, find_condition
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.api.timestamps import format_timestamp, parse_optional_timestamp, parse_timestamp

try:  # Policies are written for Go's RE2; Python's own engine accepts all that providers ship today.
    import re2 as _regex
except ImportError:
    import re as _regex

REBOOT = "RebootNode"
REPLACE = "ReplaceNode"
# In the order of how much they disturb.
ACTIONS = (REBOOT, REPLACE)
STATUSES = ("True", "False", "Unknown")

# One rank of urgency for each half hour past the toleration.
AGEING_S = 30 * 60.0
MAX_REBOOTS = 2
REBOOT_MEMORY_S = 24 * 3600.0
# Ours: kept on the claim so that a restart does not allow endless reboots of one faulty machine.
REBOOT_COMMITS = f"{labels.OWN_GROUP}/reboot-commits"


@dataclass(frozen=True, slots=True)
class RepairPolicy:
    """A provider's word on one kind of fault; an empty regex is the fallback for every reason."""

    condition_type: str
    condition_status: str
    reason_regex: str
    toleration_s: float
    termination_grace_period_s: float | None
    priority: int
    action: str

    @property
    def pair(self) -> tuple[str, str]:
        return self.condition_type, self.condition_status


@dataclass(frozen=True, slots=True)
class Match:
    """A policy that a node's condition meets, and from when on it may act."""

    policy: RepairPolicy
    condition: str
    reason: str
    eligible_from: float


@dataclass(frozen=True, slots=True)
class Repair:
    """The merged answer for one node at one instant."""

    action: str
    condition: str
    reason: str
    bound_s: float | None
    score: float
    # A reboot that was turned into a replacement because two did not help.
    escalated: bool = False


class InvalidPolicies(ValueError):
    """Policies that the program must not start with: all problems, one line each."""


class RepairRules:
    """A checked set of policies with its compiled expressions."""

    def __init__(self, policies: Iterable[RepairPolicy]) -> None:
        self.policies = tuple(policies)
        problems = policy_problems(self.policies)
        if problems:
            raise InvalidPolicies("\n".join(problems))
        self._regexes: dict[str, Any] = {p.reason_regex: _regex.compile(p.reason_regex) for p in self.policies}
        self._pairs = frozenset(p.pair for p in self.policies)
        self._fallback = next(p for p in self.policies if not p.reason_regex)
        ranks = sorted({p.priority for p in self.policies})
        self._ranks = {priority: rank for rank, priority in enumerate(ranks)}

    def unhealthy_condition(self, node: Node) -> Condition | None:
        """The first condition whose type and status occur in the set, whatever its age or reason."""
        return next((c for c in node.status.conditions if (c.type, c.status) in self._pairs), None)

    def matches(self, node: Node, claim: NodeClaim | None = None) -> tuple[Match, ...]:
        """Every policy each condition meets; a specific match keeps the fallback out, even inside its toleration."""
        found: list[Match] = []
        for condition in node.status.conditions:
            if (condition.type, condition.status) not in self._pairs:
                continue
            meeting = [p for p in self.policies if self._meets(p, condition)] or [self._fallback]
            since = _fault_since(node, condition, claim)
            found.extend(Match(p, condition.type, condition.reason, since + p.toleration_s) for p in meeting)
        return tuple(found)

    def resolve(self, node: Node, claim: NodeClaim | None, now: float) -> Repair | None:
        """What to do about the node now; None while nothing is wrong or every policy still tolerates it."""
        eligible = [m for m in self.matches(node, claim) if m.eligible_from <= now]
        if not eligible:
            return None
        action = max((m.policy.action for m in eligible), key=ACTIONS.index)
        driving = min(
            (m for m in eligible if m.policy.action == action),
            key=lambda m: (-m.policy.priority, m.eligible_from, m.condition),
        )
        bounds = [m.policy.termination_grace_period_s for m in eligible]
        bound = min((b for b in bounds if b is not None), default=None)
        score = max(self._ranks[m.policy.priority] + (now - m.eligible_from) / AGEING_S for m in eligible)
        escalated = action == REBOOT and claim is not None and len(recent_reboots(claim, now)) >= MAX_REBOOTS
        return Repair(REPLACE if escalated else action, driving.condition, driving.reason, bound, score, escalated)

    def _meets(self, policy: RepairPolicy, condition: Condition) -> bool:
        if policy.pair != (condition.type, condition.status) or not policy.reason_regex:
            return False
        return self._regexes[policy.reason_regex].search(condition.reason) is not None


def policy_problems(policies: tuple[RepairPolicy, ...]) -> list[str]:
    """Everything wrong with a set of policies; an empty list is a set that can be used."""
    if not policies:
        return ["node repair is on, but the provider has no repair policies; turn the gate NodeRepair off"]
    problems: list[str] = []
    for index, policy in enumerate(policies):
        problems.extend(f"repairPolicies[{index}].{text}" for text in _policy_faults(policy))
    fallbacks = [p for p in policies if not p.reason_regex]
    if len(fallbacks) != 1:
        problems.append(f"exactly one repair policy must have an empty reason regex, found {len(fallbacks)}")
    elif fallbacks[0].action != REPLACE:
        problems.append(f"the policy with the empty reason regex must have action {REPLACE}")
    return problems


def _policy_faults(policy: RepairPolicy) -> list[str]:
    faults: list[str] = []
    if not policy.condition_type:
        faults.append("conditionType: must not be empty")
    if policy.condition_status not in STATUSES:
        faults.append(f"conditionStatus: {policy.condition_status!r} is none of {', '.join(STATUSES)}")
    if policy.toleration_s < 0:
        faults.append(f"tolerationDuration: {policy.toleration_s} must not be negative")
    if policy.termination_grace_period_s is not None and policy.termination_grace_period_s < 0:
        faults.append(f"terminationGracePeriod: {policy.termination_grace_period_s} must not be negative")
    if not 0 <= policy.priority <= 100:
        faults.append(f"priority: {policy.priority} is outside 0..100")
    if policy.action not in ACTIONS:
        faults.append(f"action: {policy.action!r} is none of {', '.join(ACTIONS)}")
    try:
        _regex.compile(policy.reason_regex)
    except _regex.error as error:
        faults.append(f"reasonRegex: {policy.reason_regex!r} does not compile: {error}")
    return faults


def _fault_since(node: Node, condition: Condition, claim: NodeClaim | None) -> float:
    """A back-dated condition never beats the node's age, and a finished reboot starts the toleration anew."""
    times = [
        parse_optional_timestamp(condition.last_transition_time),
        parse_optional_timestamp(node.metadata.creation_timestamp),
    ]
    rebooting = find_condition(claim.status.conditions, "Rebooting") if claim is not None else None
    if rebooting is not None and rebooting.status == "False":
        times.append(parse_optional_timestamp(rebooting.last_transition_time))
    return max((t for t in times if t is not None), default=0.0)


def recent_reboots(claim: NodeClaim, now: float) -> tuple[float, ...]:
    """When this claim was committed to a reboot within the last day, oldest first; unreadable entries count as now."""
    text = claim.metadata.annotations.get(REBOOT_COMMITS, "")
    times: list[float] = []
    for part in filter(None, text.split(",")):
        try:
            times.append(parse_timestamp(part))
        except ValueError:
            times.append(now)
    return tuple(sorted(t for t in times if now - t < REBOOT_MEMORY_S))


def commits_with(claim: NodeClaim, now: float) -> str:
    """The annotation's next value: the recent commits and this one."""
    return ",".join(format_timestamp(t) for t in (*recent_reboots(claim, now), now))
