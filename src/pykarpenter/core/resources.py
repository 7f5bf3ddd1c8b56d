"""Exact resource arithmetic over integer tables, and what a pod asks for.

Amounts are integers: cpu in milli, everything else in base units. An absent resource is zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykarpenter.api.meta import find_condition
from pykarpenter.api.pods import Container, ContainerStatus, Pod, PodSpec
from pykarpenter.api.quantity import requested

Resources = dict[str, int]

_POD_LEVEL_PREFIXES = ("hugepages-",)
_POD_LEVEL = ("cpu", "memory")


def add(*parts: Mapping[str, int]) -> Resources:
    total: Resources = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def subtract(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """left − right over the union of their resources; results may be negative."""
    result = dict(left)
    for name, amount in right.items():
        result[name] = result.get(name, 0) - amount
    return result


def maximum(*parts: Mapping[str, int]) -> Resources:
    result: Resources = {}
    for part in parts:
        for name, amount in part.items():
            if amount > result.get(name, amount - 1):
                result[name] = amount
    return result


def total(parts: Iterable[Mapping[str, int]]) -> Resources:
    return add(*parts)


def fits(request: Mapping[str, int], available: Mapping[str, int]) -> bool:
    """Whether the request fits; a negative availability of anything fits nothing."""
    if any(amount < 0 for amount in available.values()):
        return False
    return all(amount <= available.get(name, 0) for name, amount in request.items())


def pod_requests(pod: Pod) -> Resources:
    """What the pod needs on a node: containers, init steps, sidecars, pod-level requests, overhead, and one pod.

    While a resize is in flight a container counts what it has and what it wants, whichever is larger.
    """
    statuses = {status.name: status for status in pod.status.container_statuses}
    statuses.update({status.name: status for status in pod.status.init_container_statuses})
    if not statuses:
        return spec_requests(pod.spec)
    resize = find_condition(pod.status.conditions, "PodResizePending")
    infeasible = resize is not None and resize.reason == "Infeasible"
    return _sum_requests(pod.spec, statuses, infeasible)


def spec_requests(spec: PodSpec) -> Resources:
    """The requests of a pod that has not started."""
    return _sum_requests(spec, {}, False)


def _sum_requests(spec: PodSpec, statuses: Mapping[str, ContainerStatus], infeasible: bool) -> Resources:
    running = add(*(_container_requests(c, statuses, infeasible) for c in spec.containers))
    sidecars: Resources = {}
    peak_init: Resources = {}
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            sidecars = add(sidecars, _container_requests(container, statuses, infeasible))
            peak_init = maximum(peak_init, sidecars)
        else:
            peak_init = maximum(peak_init, add(requested(container.resources.requests), sidecars))
    result = maximum(add(running, sidecars), peak_init)
    if spec.resources is not None:
        for name, amount in requested(spec.resources.requests).items():
            if name in _POD_LEVEL or name.startswith(_POD_LEVEL_PREFIXES):
                result[name] = amount
    result = add(result, requested(spec.overhead))
    result["pods"] = 1
    return result


def _container_requests(container: Container, statuses: Mapping[str, ContainerStatus], infeasible: bool) -> Resources:
    wanted = requested(container.resources.requests)
    status = statuses.get(container.name)
    if status is None:
        return wanted
    actual = requested(status.resources.requests) if status.resources is not None else {}
    allocated = requested(status.allocated_resources)
    if not actual and not allocated:
        return wanted
    return maximum(actual, allocated) if infeasible else maximum(wanted, actual, allocated)
