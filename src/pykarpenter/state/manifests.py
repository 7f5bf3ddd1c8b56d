"""A snapshot from manifests: what the cluster would look like if they were applied to it.

Used wherever a decision is made on files instead of a live cluster. Reads documents, never files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pykarpenter.api import kinds
from pykarpenter.api.extras import CapacityBuffer, NodeOverlay
from pykarpenter.api.kinds import Kind
from pykarpenter.api.labels import BIND_COMPLETED, DEFAULT_RULES, LabelRules
from pykarpenter.api.manifests import Document, decode
from pykarpenter.api.meta import Condition, ObjectMeta
from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import PodTemplateSpec
from pykarpenter.api.storage import PersistentVolumeClaim, StorageClass
from pykarpenter.api.validation import errors, validate_node_overlay, validate_node_pool
from pykarpenter.api.workload_problems import has_pods, quantity_problems, time_problems, workload_problems
from pykarpenter.api.workloads import PodTemplate
from pykarpenter.core.buffers import buffer_replicas, virtual_pods
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.overlays import apply_overlays
from pykarpenter.core.snapshot import ClusterSnapshot
from pykarpenter.state.cluster import ClusterState
from pykarpenter.state.workloads import HASH_LABEL, Expansion, Workload, ephemeral_claims, expand, pending_pod

WORKLOADS = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job")
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
# Everything that a snapshot can be made of.
READ_KINDS: tuple[Kind[Any], ...] = (
    kinds.POD,
    kinds.NODE,
    kinds.NAMESPACE,
    kinds.SERVICE,
    kinds.PVC,
    kinds.PV,
    kinds.POD_TEMPLATE,
    kinds.REPLICATION_CONTROLLER,
    kinds.DEPLOYMENT,
    kinds.REPLICA_SET,
    kinds.STATEFUL_SET,
    kinds.DAEMON_SET,
    kinds.JOB,
    kinds.PDB,
    kinds.PRIORITY_CLASS,
    kinds.STORAGE_CLASS,
    kinds.CSI_NODE,
    kinds.RESOURCE_CLAIM,
    kinds.RESOURCE_CLAIM_TEMPLATE,
    kinds.RESOURCE_SLICE,
    kinds.DEVICE_CLASS,
    kinds.NODE_POOL,
    kinds.NODE_CLAIM,
    kinds.NODE_OVERLAY,
    kinds.CAPACITY_BUFFER,
)
_BY_KIND: dict[tuple[str, str], Kind[Any]] = {(kind.group, kind.kind): kind for kind in READ_KINDS}
_READY = Condition(type="Ready", status="True")


@dataclass(slots=True)
class ManifestCluster:
    """Objects gathered from documents, to be made into a snapshot."""

    # True for a recording of a real cluster: its workloads already have their pods.
    recorded: bool = False
    objects: dict[str, list[Any]] = field(default_factory=dict)
    classes: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    claim_templates: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    documents: dict[int, Document] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    recording: Mapping[str, Any] | None = None
    _places: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, document: Document, strict: bool = False) -> None:
        """Take in one document; raises ManifestError."""
        if document.kind == "ClusterSnapshot":
            self.recorded = True
            self.recording = document.data
            return
        kind = _BY_KIND.get((document.group, document.kind))
        if kind is None:
            self._other(document, strict)
            return
        item = _named(decode(document, kind), kind)
        self._check(document)
        if document.kind == "StatefulSet":
            self.claim_templates[item.key] = _claim_templates(document)
        self.documents[id(item)] = document
        self._keep(kind, item)

    def _keep(self, kind: Kind[Any], item: Any) -> None:
        """Like applying it: an object that is written twice is there once, as it was written last."""
        if (kind.kind, item.key) in self._places:
            self.objects[kind.kind][self._places[kind.kind, item.key]] = item
            self.warnings.append(f"{kind.kind} {item.key} is in the input more than once; the last one counts")
            return
        listed = self.objects.setdefault(kind.kind, [])
        self._places[kind.kind, item.key] = len(listed)
        listed.append(item)

    def _other(self, document: Document, strict: bool) -> None:
        if document.kind.endswith("NodeClass"):
            self.classes.setdefault((document.group, document.kind), set()).add(document.name)
        elif strict:
            raise document.error("kind", document.kind, "is not read by this command; remove it or leave out --strict")
        else:
            self.skipped[document.kind] += 1

    @staticmethod
    def _check(document: Document) -> None:
        spec = document.data.get("spec")
        problems = [
            *workload_problems(document.group, document.kind, document.data),
            *time_problems(document.data),
        ]
        if not has_pods(document.group, document.kind) and isinstance(spec, dict):
            problems += quantity_problems(spec.get("limits"), "spec.limits")
        status = document.data.get("status")
        if isinstance(status, dict) and document.kind in ("Node", "NodeClaim"):
            for name in ("capacity", "allocatable"):
                problems += quantity_problems(status.get(name), f"status.{name}")
        for problem in problems:
            raise document.error(problem.path, problem.value, problem.message)

    # The snapshot.

    def snapshot(
        self, types: tuple[InstanceType, ...], now: float, rules: LabelRules = DEFAULT_RULES
    ) -> ClusterSnapshot:
        """The cluster with everything applied, every pool offering these types; raises ManifestError."""
        state = ClusterState()
        self._pools(state, types, rules)
        expansions = self._expansions()
        self._pods(state, expansions)
        self._volumes(state, expansions)
        for node in self.objects.get("Node", []):
            state.observe(kinds.NODE, None, node if self.recorded else _described(node))
        for kind in _PLAIN:
            for item in self.objects.get(kind.kind, []):
                state.observe(kind, None, item)
        for expansion in expansions:
            for item in expansion.replica_sets:
                state.observe(kinds.REPLICA_SET, None, item)
        self._buffers(state)
        return state.snapshot(now)

    def _pools(self, state: ClusterState, types: tuple[InstanceType, ...], rules: LabelRules) -> None:
        overlays: list[NodeOverlay] = self.objects.get("NodeOverlay", [])
        for overlay in overlays:
            for problem in errors(validate_node_overlay(overlay, rules)):
                raise self.documents[id(overlay)].error(problem.path, problem.value, problem.message)
        for pool in self.objects.get("NodePool", []):
            self._check_pool(pool, rules)
            ready = pool
            if not pool.status.conditions:
                ready = msgspec.structs.replace(pool, status=msgspec.structs.replace(pool.status, conditions=[_READY]))
            state.observe(kinds.NODE_POOL, None, ready)
            overlaid = apply_overlays(pool, types, overlays, rules)
            for name, (reason, message) in sorted(overlaid.rejected.items()):
                self.warnings.append(f"nodeoverlay {name}: {reason}: {message}")
            state.set_instance_types(pool.name, overlaid.types)

    def _check_pool(self, pool: NodePool, rules: LabelRules) -> None:
        document = self.documents[id(pool)]
        reference = pool.spec.template.spec.node_class_ref
        names = self.classes.get((reference.group, reference.kind))
        if names is not None and reference.name not in names:
            known = ", ".join(sorted(names))
            raise document.error(
                "spec.template.spec.nodeClassRef.name", reference.name, f"no such {reference.kind}; there is {known}"
            )
        problems = [p for p in errors(validate_node_pool(pool, rules)) if "nodeClassRef" not in p.path]
        for problem in problems:
            raise document.error(problem.path, problem.value, problem.message)

    def _expansions(self) -> list[Expansion]:
        if self.recorded:
            return []
        owners = {o.uid for kind in ("Pod", "ReplicaSet") for i in self.objects.get(kind, []) for o in _owners(i)}
        deployments = {item.uid for item in self.objects.get("Deployment", [])}
        rolled_out = self._rolled_out()
        found = []
        for kind in WORKLOADS:
            workloads: list[Workload] = self.objects.get(kind, [])
            for workload in workloads:
                managed = any(owner.uid in deployments for owner in _owners(workload))
                if managed or workload.uid in owners or (kind == "Deployment" and workload.key in rolled_out):
                    continue
                found.append(expand(workload, self.claim_templates.get(workload.key)))
        return found

    def _rolled_out(self) -> set[str]:
        """Deployments whose pods are in the input; the ReplicaSet in between is often left out of a dump."""
        found = set()
        for pod in self.objects.get("Pod", []):
            for owner in _owners(pod):
                suffix = f"-{pod.metadata.labels.get(HASH_LABEL, '')}"
                if owner.kind == "ReplicaSet" and owner.name.endswith(suffix):
                    found.add(f"{pod.namespace}/{owner.name.removesuffix(suffix)}")
        return found

    def _pods(self, state: ClusterState, expansions: list[Expansion]) -> None:
        listed = [pod if self.recorded else pending_pod(pod) for pod in self.objects.get("Pod", [])]
        for pod in [*listed, *(pod for expansion in expansions for pod in expansion.pods)]:
            state.observe(kinds.POD, None, pod)
            if pod.spec.scheduling_gates and not pod.spec.node_name and not self.recorded:
                self.warnings.append(f"pod {pod.key} waits for its scheduling gates; it is not planned for")

    def _volumes(self, state: ClusterState, expansions: list[Expansion]) -> None:
        classes: dict[str, StorageClass] = {c.name: c for c in self.objects.get("StorageClass", [])}
        default = next((n for n, c in classes.items() if c.metadata.annotations.get(_DEFAULT_CLASS) == "true"), "")
        made = [claim for expansion in expansions for claim in expansion.claims]
        for pod in self.objects.get("Pod", []):
            made += ephemeral_claims(pod.spec, pod.name, pod.namespace)
        listed: list[PersistentVolumeClaim] = self.objects.get("PersistentVolumeClaim", [])
        # A claim that is written down, perhaps bound already, is the one that the workload's pods find.
        claims = {claim.key: claim for claim in [*made, *listed]}
        for claim in claims.values():
            if not self.recorded:
                claim = _bound(claim) if claim.spec.volume_name else self._with_class(claim, classes, default)
            state.observe(kinds.PVC, None, claim)
        for item in classes.values():
            state.observe(kinds.STORAGE_CLASS, None, item)

    def _with_class(
        self, claim: PersistentVolumeClaim, classes: dict[str, StorageClass], default: str
    ) -> PersistentVolumeClaim:
        wanted = claim.spec.storage_class_name
        name = (default or "standard") if wanted is None else wanted
        if name and name not in classes:
            self.warnings.append(f"storageclass {name} is not in the input; taken as WaitForFirstConsumer")
            classes[name] = StorageClass(metadata=ObjectMeta(name=name), volume_binding_mode="WaitForFirstConsumer")
        return msgspec.structs.replace(claim, spec=msgspec.structs.replace(claim.spec, storage_class_name=name))

    def _buffers(self, state: ClusterState) -> None:
        for buffer in self.objects.get("CapacityBuffer", []):
            template, current = self._buffer_template(buffer)
            if template is None:
                self.warnings.append(f"capacitybuffer {buffer.key}: what it refers to is not in the input; skipped")
                continue
            replicas = buffer_replicas(buffer, template, current)
            state.set_buffer_pods(buffer.key, virtual_pods(buffer, template, replicas))

    def _buffer_template(self, buffer: CapacityBuffer) -> tuple[PodTemplateSpec | None, int | None]:
        if buffer.spec.pod_template_ref is not None:
            wanted = f"{buffer.namespace}/{buffer.spec.pod_template_ref.name}"
            templates: list[PodTemplate] = self.objects.get("PodTemplate", [])
            return next((t.template for t in templates if t.key == wanted), None), None
        reference = buffer.spec.scalable_ref
        if reference is None:
            return None, None
        wanted = f"{buffer.namespace}/{reference.name}"
        for item in self.objects.get(reference.kind, []) if reference.kind in WORKLOADS else []:
            if item.key == wanted:
                return item.spec.template, 1 if item.spec.replicas is None else item.spec.replicas
        return None, None


_PLAIN: tuple[Kind[Any], ...] = (
    kinds.NODE_CLAIM,
    kinds.DAEMON_SET,
    kinds.PDB,
    kinds.NAMESPACE,
    kinds.PV,
    kinds.CSI_NODE,
    kinds.RESOURCE_CLAIM,
    kinds.RESOURCE_CLAIM_TEMPLATE,
    kinds.DEVICE_CLASS,
    kinds.RESOURCE_SLICE,
    kinds.SERVICE,
    kinds.REPLICA_SET,
    kinds.STATEFUL_SET,
    kinds.REPLICATION_CONTROLLER,
)


def _claim_templates(document: Document) -> list[Mapping[str, Any]]:
    """A StatefulSet's claim templates, as written; raises ManifestError when they are none."""
    spec = document.data.get("spec")
    found = spec.get("volumeClaimTemplates", []) if isinstance(spec, dict) else []
    path = "spec.volumeClaimTemplates"
    if not isinstance(found, list):
        raise document.error(path, found, "expected a list of claims")
    for index, template in enumerate(found):
        try:
            named = bool(msgspec.convert(template, PersistentVolumeClaim).name)
        except msgspec.ValidationError as error:
            raise document.error(f"{path}[{index}]", template, str(error).replace("`", "")) from error
        if not named:
            raise document.error(f"{path}[{index}].metadata.name", None, "every claim template needs a name")
    return found


def _described(node: Node) -> Node:
    """A node as its cloud would describe it: an identity, and everything allocatable unless said otherwise."""
    spec, status = node.spec, node.status
    if not spec.provider_id:
        spec = msgspec.structs.replace(spec, provider_id=f"file:///{node.name}")
    if not status.allocatable:
        status = msgspec.structs.replace(status, allocatable=status.capacity)
    return msgspec.structs.replace(node, spec=spec, status=status)


def _bound(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    """A claim that names its volume, as the binder leaves it; one whose status says that it still waits is left so."""
    if claim.status.phase not in ("", "Bound"):
        return claim
    annotations = {**claim.metadata.annotations, BIND_COMPLETED: "yes"}
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=annotations))


def _owners(item: Any) -> list[Any]:
    found: list[Any] = item.metadata.owner_references
    return found


def _named(item: Any, kind: Kind[Any]) -> Any:
    """The object with the identity that a cluster would have given it."""
    meta = item.metadata
    namespace = (meta.namespace or "default") if kind.namespaced else ""
    name = meta.name or f"{meta.generate_name}0"
    uid = meta.uid or f"{kind.kind.lower()}-{namespace}-{name}"
    if (namespace, name, uid) == (meta.namespace, meta.name, meta.uid):
        return item
    return msgspec.structs.replace(
        item, metadata=msgspec.structs.replace(meta, namespace=namespace, name=name, uid=uid)
    )


def gather(documents: Iterable[Document], strict: bool = False) -> ManifestCluster:
    """All documents of an input; raises ManifestError at the first that cannot be used."""
    cluster = ManifestCluster()
    for document in documents:
        cluster.add(document, strict)
    return cluster
