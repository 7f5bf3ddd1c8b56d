"""Workloads to the pods their controllers would make: for manifests that were never applied to a cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pykarpenter.api.meta import Condition, ObjectMeta, OwnerReference
from pykarpenter.api.pods import PersistentVolumeClaimVolumeSource, Pod, PodSpec, PodStatus, PodTemplateSpec, Volume
from pykarpenter.api.storage import PersistentVolumeClaim, PersistentVolumeClaimSpec
from pykarpenter.api.workloads import (
    Deployment,
    Job,
    ReplicaSet,
    ReplicaSpec,
    ReplicationController,
    StatefulSet,
)
from pykarpenter.core.packing.daemons import with_limits_as_requests

UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable")
PENDING = PodStatus(phase="Pending", conditions=[UNSCHEDULABLE])
GATED = PodStatus(
    phase="Pending", conditions=[Condition(type="PodScheduled", status="False", reason="SchedulingGated")]
)
HASH_LABEL = "pod-template-hash"

Workload = Deployment | ReplicaSet | StatefulSet | ReplicationController | Job


@dataclass(slots=True)
class Expansion:
    """What the controllers of one workload would create."""

    pods: list[Pod] = field(default_factory=list)
    claims: list[PersistentVolumeClaim] = field(default_factory=list)
    replica_sets: list[ReplicaSet] = field(default_factory=list)


def expand(workload: Workload, claim_templates: list[Mapping[str, Any]] | None = None) -> Expansion:
    """The pods of a workload, named `<workload>-<i>` from 0, and what comes with them."""
    made = Expansion()
    template = workload.spec.template
    owner = _owner(workload)
    if isinstance(workload, Deployment):
        template, owner = _revision(workload, template, made)
    spec = with_limits_as_requests(template.spec)
    for index in range(_replicas(workload)):
        name = f"{workload.name}-{index}"
        own = _with_claims(spec, workload, index, claim_templates or [], made)
        made.claims += ephemeral_claims(own, name, workload.namespace)
        made.pods.append(
            Pod(
                metadata=ObjectMeta(
                    name=name,
                    namespace=workload.namespace,
                    uid=f"{workload.uid}-{index:08d}",
                    labels=template.metadata.labels,
                    annotations=template.metadata.annotations,
                    owner_references=[owner],
                ),
                spec=own,
                status=GATED if own.scheduling_gates else PENDING,
            )
        )
    return made


def _replicas(workload: Workload) -> int:
    if isinstance(workload, Job):
        if workload.spec.suspend:
            return 0
        parallelism = 1 if workload.spec.parallelism is None else workload.spec.parallelism
        completions = workload.spec.completions
        return parallelism if completions is None else min(parallelism, completions)
    return 1 if workload.spec.replicas is None else workload.spec.replicas


def _owner(workload: Workload) -> OwnerReference:
    version, kind = _IDENTITY[type(workload)]
    return OwnerReference(api_version=version, kind=kind, name=workload.name, uid=workload.uid, controller=True)


_IDENTITY: dict[type, tuple[str, str]] = {
    Deployment: ("apps/v1", "Deployment"),
    ReplicaSet: ("apps/v1", "ReplicaSet"),
    StatefulSet: ("apps/v1", "StatefulSet"),
    ReplicationController: ("v1", "ReplicationController"),
    Job: ("batch/v1", "Job"),
}


def _revision(
    deployment: Deployment, template: PodTemplateSpec, made: Expansion
) -> tuple[PodTemplateSpec, OwnerReference]:
    """The ReplicaSet in between, whose hash label tells revisions apart."""
    digest = hashlib.sha256(msgspec.json.encode(template)).hexdigest()[:10]
    labelled = {**template.metadata.labels, HASH_LABEL: digest}
    template = msgspec.structs.replace(template, metadata=msgspec.structs.replace(template.metadata, labels=labelled))
    selector = deployment.spec.selector
    if selector is not None:
        selector = msgspec.structs.replace(selector, match_labels={**selector.match_labels, HASH_LABEL: digest})
    meta = ObjectMeta(
        name=f"{deployment.name}-{digest}", namespace=deployment.namespace, uid=f"{deployment.uid}-{digest}"
    )
    made.replica_sets.append(ReplicaSet(metadata=meta, spec=ReplicaSpec(selector=selector)))
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=meta.name, uid=meta.uid, controller=True)
    return template, owner


def _with_claims(
    spec: PodSpec, workload: Workload, index: int, templates: list[Mapping[str, Any]], made: Expansion
) -> PodSpec:
    """The spec with the volumes that a StatefulSet's claim templates give its pod."""
    if not templates:
        return spec
    volumes = list(spec.volumes)
    for template in templates:
        base = msgspec.convert(template, PersistentVolumeClaim)
        name = f"{base.name}-{workload.name}-{index}"
        meta = ObjectMeta(name=name, namespace=workload.namespace, uid=f"{workload.uid}-{name}")
        made.claims.append(PersistentVolumeClaim(metadata=meta, spec=base.spec))
        volumes = [volume for volume in volumes if volume.name != base.name]
        source = PersistentVolumeClaimVolumeSource(claim_name=name)
        volumes.append(Volume(name=base.name, persistent_volume_claim=source))
    return msgspec.structs.replace(spec, volumes=volumes)


def ephemeral_claims(spec: PodSpec, pod: str, namespace: str) -> list[PersistentVolumeClaim]:
    """The claims that are made for a pod with volumes of its own."""
    found = []
    for volume in spec.volumes:
        if volume.ephemeral is None or volume.ephemeral.volume_claim_template is None:
            continue
        wanted = volume.ephemeral.volume_claim_template.spec
        name = f"{pod}-{volume.name}"
        found.append(
            PersistentVolumeClaim(
                metadata=ObjectMeta(name=name, namespace=namespace, uid=name),
                spec=PersistentVolumeClaimSpec(storage_class_name=wanted.storage_class_name if wanted else None),
            )
        )
    return found


def pending_pod(pod: Pod) -> Pod:
    """A pod from a file: without status it is one that the scheduler gave up on; limits fill requests."""
    spec = with_limits_as_requests(pod.spec)
    waiting = not spec.node_name and pod.status.phase in ("", "Pending") and not pod.status.conditions
    status = (GATED if spec.scheduling_gates else PENDING) if waiting else pod.status
    if spec.node_name and not status.phase:
        status = PodStatus(phase="Running")
    return msgspec.structs.replace(pod, spec=spec, status=status)
