"""Capacity buffers: how many virtual pods a buffer stands for, and what they look like."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pykarpenter.api import labels
from pykarpenter.api.extras import CapacityBuffer
from pykarpenter.api.meta import Condition, ObjectMeta
from pykarpenter.api.pods import Pod, PodStatus, PodTemplateSpec
from pykarpenter.api.quantity import available
from pykarpenter.core.resources import spec_requests

_LOWEST_PRIORITY = -(2**31)
# One buffer of two thousand million pods, which its schema allows, must not take the memory of the whole program.
MAX_REPLICAS = 10_000


def buffer_replicas(buffer: CapacityBuffer, template: PodTemplateSpec, current: int | None) -> int:
    """The larger of `replicas` and the percentage of the workload, capped by `limits`; limits alone otherwise.

    Never more than `MAX_REPLICAS`.
    """
    spec = buffer.spec
    wanted: list[int] = [spec.replicas] if spec.replicas is not None else []
    if spec.percentage is not None and current is not None:
        share = -(-spec.percentage * current // 100)
        wanted.append(max(share, 1) if spec.percentage > 0 and current > 0 else 0)
    allowed = _allowed(buffer, template)
    if not wanted:
        return 0 if allowed is None else max(0, min(allowed, MAX_REPLICAS))
    bounds = [MAX_REPLICAS] if allowed is None else [MAX_REPLICAS, allowed]
    return max(0, min(max(wanted), *bounds))


def _allowed(buffer: CapacityBuffer, template: PodTemplateSpec) -> int | None:
    if not buffer.spec.limits:
        return None
    requests = spec_requests(template.spec)
    limits = available(buffer.spec.limits)
    counts = [limit // requests[name] for name, limit in limits.items() if requests.get(name, 0) > 0]
    return min(counts, default=MAX_REPLICAS)


def virtual_pods(buffer: CapacityBuffer, template: PodTemplateSpec, replicas: int) -> tuple[Pod, ...]:
    """The pods that a buffer keeps room for: the template's, without node, claims and volumes of their own."""
    kept = [v for v in template.spec.volumes if v.persistent_volume_claim is None and v.ephemeral is None]
    spec = msgspec.structs.replace(template.spec, node_name="", volumes=kept, priority=_LOWEST_PRIORITY)
    # The template's own annotations stay behind: one such as do-not-disrupt would bind a pod that does not exist.
    annotations: Mapping[str, str] = {
        labels.CAPACITY_BUFFER_FAKE_POD: "true",
        labels.CAPACITY_BUFFER_NAME: buffer.name,
        labels.CAPACITY_BUFFER_NAMESPACE: buffer.namespace,
    }
    status = PodStatus(
        phase="Pending", conditions=[Condition(type="PodScheduled", status="False", reason="Unschedulable")]
    )
    return tuple(
        Pod(
            metadata=ObjectMeta(
                name=f"capacity-buffer-{buffer.name}-{index}",
                namespace=buffer.namespace,
                uid=f"{buffer.uid}-{index}",
                labels=template.metadata.labels,
                annotations=dict(annotations),
            ),
            spec=spec,
            status=status,
        )
        for index in range(1, replicas + 1)
    )


def is_virtual(pod: Pod) -> bool:
    """A capacity buffer's pod: it exists in no API, so it gets no events."""
    return pod.metadata.annotations.get(labels.CAPACITY_BUFFER_FAKE_POD) == "true"
