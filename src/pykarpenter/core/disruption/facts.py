"""What a command relies on, compared with what the API server says at the moment of a write.

The snapshot a command was decided on may be seconds or minutes old, and a watch may lag. Before each taint, launch
and delete the machine, its claim, its pods and their budgets are read live; any difference that matters is a blocker
and the command is dropped. Nothing here forgives: what cannot be read is handled by the caller as a failed read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pykarpenter.api import labels
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.api.workloads import PodDisruptionBudget
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.commands import Method, Target
from pykarpenter.core.draining import blocking_budgets, do_not_disrupt, is_active, is_reschedulable
from pykarpenter.core.reasons import Why


@dataclass(frozen=True, slots=True, eq=False)
class LiveMachine:
    """A machine as the API server has it now; None is certain absence."""

    node: Node | None
    claim: NodeClaim | None
    pods: Sequence[Pod] = ()
    pdbs: Sequence[PodDisruptionBudget] = ()


def changed(method: Method, target: Target, live: LiveMachine, now: float, protect_unparsable: bool) -> Blocker | None:
    """What stands against touching the machine now; None when every fact still holds."""
    return (
        _identity(target, live)
        or _node_protection(method, live)
        or _pod_protection(target, live, now, protect_unparsable)
        or _unplanned_pod(target, live)
    )


def changed_before_delete(
    method: Method, target: Target, live: LiveMachine, now: float, protect_unparsable: bool
) -> Blocker | None:
    """As `changed`, for a machine that has been tainted: exhausted budgets are left to the drain, which waits."""
    without_budgets = LiveMachine(live.node, live.claim, live.pods)
    return changed(method, target, without_budgets, now, protect_unparsable)


def _identity(target: Target, live: LiveMachine) -> Blocker | None:
    node, claim = live.node, live.claim
    if node is None or node.uid != target.node_uid:
        return _gone("node", target.node)
    if claim is None or claim.uid != target.claim_uid:
        return _gone("NodeClaim", target.claim)
    if node.is_deleting or claim.is_deleting:
        return Blocker(Why.MARKED_FOR_DELETION, f"node {target.node} is already being deleted")
    if condition_status(claim.status.conditions, "Rebooting") == "True":
        return Blocker(Why.REBOOTING, f"node {target.node} is rebooting")
    return None


def _gone(kind: str, name: str) -> Blocker:
    return Blocker(Why.CHANGED, f"{kind} {name} is gone or another of that name")


def _node_protection(method: Method, live: LiveMachine) -> Blocker | None:
    if method is Method.REPAIR or live.node is None:
        return None
    if live.node.metadata.annotations.get(labels.DO_NOT_DISRUPT) == "true":
        message = f'disruption is blocked through the "{labels.DO_NOT_DISRUPT}" annotation'
        return Blocker(Why.NODE_DO_NOT_DISRUPT, message, (f"Node {live.node.name}",))
    return None


def _pod_protection(target: Target, live: LiveMachine, now: float, protect_unparsable: bool) -> Blocker | None:
    if target.waives_protection:
        return None
    for pod in live.pods:
        if is_active(pod) and do_not_disrupt(pod, now).protects(protect_unparsable):
            message = f'pod has "{labels.DO_NOT_DISRUPT}" annotation (Pod={pod.key})'
            return Blocker(Why.POD_DO_NOT_DISRUPT, message, (f"Pod {pod.key}",))
    for pod in live.pods:
        budgets = blocking_budgets(pod, live.pdbs, now, protect_unparsable)
        if is_active(pod) and budgets:
            names = ", ".join(budget.key for budget in budgets)
            message = f"PDB prevents pod evictions (PodDisruptionBudget=[{names}], Pod={pod.key})"
            return Blocker(Why.PDB, message, (f"Pod {pod.key}",))
    return None


def _unplanned_pod(target: Target, live: LiveMachine) -> Blocker | None:
    """A pod that no room was planned for; static pools replace machines whatever runs on them."""
    if target.static:
        return None
    planned = set(target.pods.values())
    for pod in live.pods:
        if is_reschedulable(pod) and pod.uid not in planned:
            return Blocker(Why.CHANGED, f"pod {pod.key} came to node {target.node} meanwhile", (f"Pod {pod.key}",))
    return None
