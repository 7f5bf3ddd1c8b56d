"""Resources as metrics show them: cpu in cores, everything else in base units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pykarpenter.api.pods import Pod
from pykarpenter.api.quantity import requested
from pykarpenter.core.resources import Resources, add, maximum
from pykarpenter.runtime.gauge_tables import Labels, Series, label_text


def shown(resource: str, amount: int) -> float:
    return amount / 1000 if resource == "cpu" else float(amount)


def by_resource(family: str, labels: Labels, amounts: Mapping[str, int]) -> Iterator[Series]:
    """One series for each resource; `resource_type` comes before the other labels."""
    rest = label_text(labels).removeprefix("{") or "}"
    for resource in sorted(amounts):
        yield family, f'{{resource_type="{resource}",{rest}', shown(resource, amounts[resource])


def pod_limits(pod: Pod) -> Resources:
    """The limits that containers run under; init steps count where they need more."""
    spec = pod.spec
    running = add(*(requested(container.resources.limits) for container in spec.containers))
    sidecars: Resources = {}
    peak: Resources = {}
    for container in spec.init_containers:
        limits = requested(container.resources.limits)
        if container.restart_policy == "Always":
            sidecars = add(sidecars, limits)
            peak = maximum(peak, sidecars)
        else:
            peak = maximum(peak, add(limits, sidecars))
    return maximum(add(running, sidecars), peak)
