"""The eviction subresource: a delete that asks the PodDisruptionBudget first.

A budget that does not allow it is a 429 with the cause DisruptionBudget; more than one budget is a 500, which callers
cannot retry away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykarpenter.kube.errors import ApiError, ServerFault, TooManyRequests
from pykarpenter.sim.store.conditions import find_condition, with_condition
from pykarpenter.sim.store.deletion import check_preconditions
from pykarpenter.sim.store.entries import Entry, Json
from pykarpenter.sim.store.refusals import forbidden
from pykarpenter.sim.store.requests import DeleteRequest
from pykarpenter.sim.store.resources import Resource
from pykarpenter.sim.store.selectors import selector_matches

if TYPE_CHECKING:
    from pykarpenter.sim.store.store import Store

_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
_TOO_MANY_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_PROCESSING_RETRY_S = 10
_MAX_DISRUPTED_PODS = 2000


def evict(store: Store, name: str, namespace: str, request: DeleteRequest) -> None:
    """Deletes a pod if its budget allows; raises TooManyRequests, Conflict, NotFound or ServerFault."""
    pods = store.resource("", "pods")
    pod = store.get(pods, name, namespace)
    if not _needs_no_budget(pod.obj):
        _take_from_budget(store, pod.obj, namespace, request.dry_run)
    check_preconditions(pods, pod.obj, request)
    if request.dry_run:
        return
    marked = store.replace(pods, pod, _with_disruption_target(store, pod.obj), subresource="status")
    store.delete(
        pods,
        name,
        namespace,
        DeleteRequest(
            uid=marked.metadata["uid"], grace_period_s=request.grace_period_s, propagation=request.propagation
        ),
    )


def _needs_no_budget(pod: Json) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _with_disruption_target(store: Store, pod: Json) -> Json:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    return with_condition(pod, condition, store.timestamp())


def _take_from_budget(store: Store, pod: Json, namespace: str, dry_run: bool) -> None:
    budgets = store.resource("policy", "poddisruptionbudgets")
    labels = pod["metadata"].get("labels") or {}
    matching = [
        entry
        for entry in store.table("policy", "poddisruptionbudgets").in_namespace(namespace)
        if selector_matches((entry.obj.get("spec") or {}).get("selector"), labels)
    ]
    if not matching:
        return
    if len(matching) > 1:
        raise ServerFault(_TOO_MANY_BUDGETS)
    budget = matching[0]
    if _is_unhealthy_and_free_to_go(pod, budget.obj):
        return
    _check(budgets, budget)
    if not dry_run:
        store.replace(budgets, budget, _decremented(store, budget.obj, pod["metadata"]["name"]), subresource="status")


def _is_unhealthy_and_free_to_go(pod: Json, budget: Json) -> bool:
    ready = find_condition(pod, "Ready")
    if ready is not None and ready.get("status") == "True":
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(status.get("currentHealthy", 0) >= desired > 0)


def _refusal(cause: str, retry_s: int = 0) -> ApiError:
    error = TooManyRequests(_REFUSED)
    error.details = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    if retry_s:
        error.details["retryAfterSeconds"] = retry_s
        error.retry_after_s = float(retry_s)
    return error


def _check(resource: Resource, budget: Entry) -> None:
    name, status = budget.metadata["name"], budget.obj.get("status") or {}
    if status.get("observedGeneration", 0) < budget.metadata.get("generation", 0):
        raise _refusal(f"The disruption budget {name} is still being processed by the server.", _PROCESSING_RETRY_S)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise forbidden(resource, name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or {}) > _MAX_DISRUPTED_PODS:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden(resource, name, why)
    if allowed == 0:
        raise _refusal(_why_not(name, budget.obj, status))


def _why_not(name: str, budget: Json, status: Json) -> str:
    condition = find_condition(budget, "DisruptionAllowed") or {}
    refused = condition.get("status") == "False" and condition.get("message")
    prefix = f"The disruption budget {name} does not allow evicting pods currently"
    if refused and condition.get("reason") == "SyncFailed":
        return f"{prefix} because it failed sync: {condition['message']}"
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"{prefix} ({condition['reason']}): {condition['message']}" if refused else prefix


def _decremented(store: Store, budget: Json, pod_name: str) -> Json:
    status = dict(budget["status"])
    status["disruptionsAllowed"] -= 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod_name: store.timestamp()}
    budget = {**budget, "status": status}
    if status["disruptionsAllowed"]:
        return budget
    condition = {
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "InsufficientPods",
        "observedGeneration": status.get("observedGeneration", 0),
        "message": "",
    }
    return with_condition(budget, condition, store.timestamp())
