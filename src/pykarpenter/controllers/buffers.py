"""Resolves CapacityBuffers into virtual pods (gate CapacityBuffer, controller `capacitybuffer`).

A reference that is not there makes the buffer empty and says so. Anything else that goes wrong keeps the virtual pods
as they are: capacity is not given back because a question failed. Each pass wakes the provisioner, so that a buffer
that real pods moved into is filled again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pykarpenter.api import kinds
from pykarpenter.api.extras import CapacityBuffer
from pykarpenter.api.kinds import Kind
from pykarpenter.api.pods import PodTemplateSpec
from pykarpenter.api.quantity import InvalidQuantity
from pykarpenter.api.workloads import PodTemplate
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.core.buffer_conditions import READY_FOR_PROVISIONING, provisioning_finding, with_findings
from pykarpenter.core.buffers import MAX_REPLICAS, buffer_replicas, virtual_pods
from pykarpenter.core.conditions import Finding, shorten, to_wire
from pykarpenter.kube.errors import ApiError, NotFound
from pykarpenter.runtime.controller import Controller, Result

T = TypeVar("T")

NAME = "capacitybuffer"
PERIOD_S = 30.0
ACTIVE_CAPACITY = "buffer.x-k8s.io/active-capacity"
SCALABLE: dict[str, Kind[Any]] = {
    "Deployment": kinds.DEPLOYMENT,
    "StatefulSet": kinds.STATEFUL_SET,
    "ReplicaSet": kinds.REPLICA_SET,
}


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a buffer's pods are made from; `scale` is the size of the workload it refers to."""

    template: PodTemplateSpec
    scale: int | None = None
    template_name: str = ""
    generation: int | None = None


class Missing(Exception):
    """A reference to something that does not exist; `reason` is the condition's."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Unresolved(Exception):
    """A reference that cannot be served, or an answer that was refused: tried again."""


class CapacityBuffers:
    def __init__(self, ctx: Context, wake: Callable[[str], None]) -> None:
        self._ctx = ctx
        self._wake = wake
        self._buffers = ctx.caches.of(kinds.CAPACITY_BUFFER)
        self.controller: Controller[str] = Controller(NAME, self.reconcile, clock=ctx.clock, workers=10)
        ctx.caches.subscribe(kinds.CAPACITY_BUFFER, self._buffer_changed)
        ctx.caches.subscribe(kinds.POD_TEMPLATE, self._template_changed)
        for kind in SCALABLE.values():
            ctx.caches.subscribe(kind, partial(self._workload_changed, kind.kind))

    async def run(self) -> None:
        await self.controller.run()

    def _buffer_changed(self, change: Changed[CapacityBuffer]) -> None:
        buffer = change.new or change.old
        old = change.old
        if buffer is None:
            return
        if change.new is None or old is None or old.metadata.generation != buffer.metadata.generation:
            self.controller.enqueue(buffer.key)

    def _template_changed(self, change: Changed[PodTemplate]) -> None:
        template = change.new or change.old
        for buffer in self._buffers.values():
            reference = buffer.spec.pod_template_ref
            same = template is not None and reference is not None and reference.name == template.name
            if template is not None and same and buffer.namespace == template.namespace:
                self.controller.enqueue(buffer.key)

    def _workload_changed(self, kind: str, change: Changed[Any]) -> None:
        """Its template or its scale may be another; its status, which changes all the time, says nothing."""
        old, workload = change.old, change.new or change.old
        if workload is None:
            return
        if old is not None and change.new is not None and old.metadata.generation == workload.metadata.generation:
            return
        for buffer in self._buffers.values():
            reference = buffer.spec.scalable_ref
            if reference is None or buffer.namespace != workload.namespace:
                continue
            if (reference.kind, reference.name) == (kind, workload.name):
                self.controller.enqueue(buffer.key)

    async def reconcile(self, key: str) -> Result | None:
        buffer = self._buffers.get(key)
        if buffer is None or buffer.is_deleting:
            self._drop(key)
            return None
        if buffer.spec.provisioning_strategy not in ("", ACTIVE_CAPACITY):
            # Somebody else's to serve, also when it was ours before.
            self._drop(key)
            return None
        try:
            resolved = await self._resolve(buffer)
            replicas = buffer_replicas(buffer, resolved.template, resolved.scale)
        except Missing as missing:
            self._drop(key)
            finding = Finding(READY_FOR_PROVISIONING, "False", missing.reason, shorten(str(missing)))
            await self._write(buffer, finding, {"replicas": 0}, [])
        except (Unresolved, InvalidQuantity) as error:
            finding = Finding(READY_FOR_PROVISIONING, "False", "ResolutionFailed", shorten(str(error)))
            await self._write(buffer, finding, {}, [])
            return Result(requeue=True)
        else:
            await self._provide(buffer, resolved, replicas)
        return Result(requeue_after_s=PERIOD_S)

    async def _resolve(self, buffer: CapacityBuffer) -> Resolved:
        """Raises Missing for a reference to nothing, Unresolved for one that cannot be served or asked for."""
        named = buffer.spec.pod_template_ref
        if named is not None:
            found = await self._get(kinds.POD_TEMPLATE, named.name, buffer.namespace, "PodTemplateNotFound")
            return Resolved(found.template, None, found.name, found.metadata.generation)
        reference = buffer.spec.scalable_ref
        if reference is None:
            raise Unresolved("spec: neither podTemplateRef nor scalableRef is set")
        kind: Any = SCALABLE.get(reference.kind) if reference.api_group in ("", "apps") else None
        if kind is None:
            raise Unresolved(
                f"spec.scalableRef: {reference.api_group}/{reference.kind} cannot be served; "
                f"use one of {', '.join(sorted(SCALABLE))}"
            )
        workload = await self._get(kind, reference.name, buffer.namespace, "ScalableRefNotFound")
        scale = 1 if workload.spec.replicas is None else workload.spec.replicas
        return Resolved(workload.spec.template, scale)

    async def _get(self, kind: Kind[T], name: str, namespace: str, missing: str) -> T:
        try:
            return await self._ctx.api.get(kind, name, namespace)
        except NotFound as error:
            raise Missing(missing, f"{kind.kind} {name!r} does not exist") from error
        except ApiError as error:
            raise Unresolved(f"{kind.kind} {name!r} cannot be read: {error}") from error

    async def _provide(self, buffer: CapacityBuffer, resolved: Resolved, replicas: int) -> None:
        pods = virtual_pods(buffer, resolved.template, replicas)
        if pods:
            self._ctx.state.set_buffer_pods(buffer.key, pods)
        else:
            self._drop(buffer.key)
        fields: dict[str, Any] = {"replicas": replicas, "provisioningStrategy": ACTIVE_CAPACITY}
        if resolved.template_name:
            fields["podTemplateRef"] = {"name": resolved.template_name}
            fields["podTemplateGeneration"] = resolved.generation or 0
        note = f"room is kept for {MAX_REPLICAS} pods at most" if replicas == MAX_REPLICAS else ""
        finding = Finding(READY_FOR_PROVISIONING, "True", "Resolved", note)
        await self._write(buffer, finding, fields, [pod.key for pod in pods])
        self._wake(buffer.uid)

    def _drop(self, key: str) -> None:
        self._ctx.state.set_buffer_pods(key, ())
        if not self._ctx.state.has_buffer_pods:
            # Without demand no plan is made that would say that nothing is placed any more.
            self._ctx.state.set_buffer_placements({})
        self._wake(key)

    async def _write(self, buffer: CapacityBuffer, finding: Finding, fields: dict[str, Any], keys: list[str]) -> None:
        ready = finding.status == "True"
        provisioning = provisioning_finding(ready, keys, self._ctx.state.placed_buffer_pods)
        present = buffer.status.conditions
        now = self._ctx.clock.now()
        after = with_findings(present, buffer.metadata, now, [finding, provisioning])
        if after == present and not _differs(buffer, fields):
            return
        body = {
            "metadata": {"resourceVersion": buffer.metadata.resource_version},
            "status": {**fields, "conditions": to_wire(after)},
        }
        await self._ctx.api.patch(kinds.CAPACITY_BUFFER, buffer.name, body, buffer.namespace, subresource="status")


def _differs(buffer: CapacityBuffer, fields: dict[str, Any]) -> bool:
    status = buffer.status
    named = status.pod_template_ref.name if status.pod_template_ref is not None else ""
    shown = {
        "replicas": status.replicas,
        "provisioningStrategy": status.provisioning_strategy,
        "podTemplateGeneration": status.pod_template_generation,
        "podTemplateRef": {"name": named},
    }
    return any(shown[key] != value for key, value in fields.items())
