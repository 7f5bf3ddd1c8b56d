"""Decodes pods so that what they have from their workload is kept once: 100,000 watched pods must fit into memory.

Pods of one workload have the same spec but for the node's name and an injected volume's random name. Their spec is
therefore compared, as JSON text with holes, with the specs already seen of the same owner; on a match it is not
decoded at all. A unique spec (a DaemonSet pod names its node, a StatefulSet pod its claim) is decoded and still shares
its equal parts. What varies without meaning to us is dropped: annotations of others, volumes without a claim,
conditions nobody reads. Shared parts must never be changed; wire types are frozen, and pods are touched here only
before anybody else has seen them.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import force_setattr

from pykarpenter.api.meta import ObjectMeta, OwnerReference
from pykarpenter.api.pods import Pod, PodSpec, PodStatus
from pykarpenter.core.recent import Recent

_NO_TEXT: dict[str, str] = {}
_NO_ITEMS: list[Any] = []
_NO_RAW = Raw(b"")
_NODE_NAME = b'"nodeName":"'
# The admission controller of service accounts adds a volume with this name and a random suffix to every pod.
_INJECTED = b"kube-api-access-"
_SUFFIX_LENGTH = 5
# What stays when workloads come and go: those that some pod of the last two generations had. A generation is so many
# pods, and more where more workloads live on, so that those in use are met in each.
_LEAST_PODS = 8_192
_PODS_PER_WORKLOAD = 4
_MAX_WORKLOADS = 16_384
# Starting over with short texts when full keeps their lookup a single dictionary access.
_MAX_TEXTS = 131_072
_MAX_VARIANTS = 4
_UNREAD_CONDITIONS = frozenset({"PodReadyToStartContainers", "Initialized", "ContainersReady"})
_SPEC_FIELDS = PodSpec.__struct_fields__
_ENCODE = msgspec.json.Encoder().encode
_SPEC = msgspec.json.Decoder(PodSpec)
_TEXTS = msgspec.json.Decoder(dict[str, str])
_OWNERS = msgspec.json.Decoder(list[OwnerReference])


class InternedMeta(ObjectMeta):
    """Metadata whose shared parts come from the decoder as JSON text and leave as the usual types."""

    labels: Raw = _NO_RAW  # type: ignore[assignment]
    annotations: Raw = _NO_RAW  # type: ignore[assignment]
    owner_references: Raw = _NO_RAW  # type: ignore[assignment]


class InternedPod(Pod):
    """A pod as decoded; `PodInterner.finish` must see it before anybody else does."""

    metadata: InternedMeta = InternedMeta()
    spec: Raw = _NO_RAW  # type: ignore[assignment]


class _Hole(Enum):
    """What stands between two pieces of a spec's text."""

    NODE = auto()
    SUFFIX = auto()
    END = auto()


class _Shape:
    """A spec and the pieces of its text, to be recognised in other pods without decoding."""

    __slots__ = ("_pieces", "spec")

    def __init__(self, text: bytes, spec: PodSpec) -> None:
        self.spec = spec
        self._pieces = _pieces(text)

    def matched_node(self, text: bytes) -> str | None:
        """The name of the node in `text`, empty if it has none; None when the text has another shape."""
        at = 0
        node = ""
        for piece, length, hole in self._pieces:
            if not text.startswith(piece, at):
                return None
            at += length
            if hole is _Hole.SUFFIX:
                at += _SUFFIX_LENGTH
            elif hole is _Hole.NODE:
                end = text.find(b'"', at)
                node = text[at:end].decode()
                at = end
        return node if at == len(text) else None


def _pieces(text: bytes) -> list[tuple[bytes, int, _Hole]]:
    holes: list[tuple[int, int, _Hole]] = []
    at = text.find(_INJECTED)
    while at >= 0:
        begin = at + len(_INJECTED)
        holes.append((begin, begin + _SUFFIX_LENGTH, _Hole.SUFFIX))
        at = text.find(_INJECTED, begin)
    at = text.find(_NODE_NAME)
    if at >= 0:
        begin = at + len(_NODE_NAME)
        holes.append((begin, text.index(b'"', begin), _Hole.NODE))
    holes.sort(key=lambda hole: hole[0])
    pieces = []
    last = 0
    for begin, end, hole in holes:
        pieces.append((text[last:begin], begin - last, hole))
        last = end
    return [*pieces, (text[last:], len(text) - last, _Hole.END)]


class _Workload:
    """What is known of one owner's pods."""

    __slots__ = ("owners", "shapes")

    def __init__(self, owners: list[OwnerReference]) -> None:
        self.owners = owners
        self.shapes: list[_Shape] = []


def keeps_annotation(key: str) -> bool:
    """Annotations of pods that decisions may read; the rest is per-pod noise of others."""
    domain = key.partition("/")[0]
    return domain.endswith(("karpenter.sh", "kubernetes.io", "x-k8s.io")) and domain != "kubectl.kubernetes.io"


class PodInterner:
    """Finishes decoded pods; all that pass through one interner share their equal parts."""

    def __init__(self) -> None:
        self._workloads: Recent[bytes, _Workload] = Recent(_MAX_WORKLOADS)
        # Labels, annotations and container statuses by their JSON text.
        self._values: Recent[bytes, Any] = Recent(_MAX_WORKLOADS)
        self._texts: dict[str, str] = {}
        # Pods that are still to come in this generation.
        self._left = _LEAST_PODS

    def finish(self, pod: InternedPod) -> Pod:
        """The pod itself, whole and made of shared parts; msgspec.ValidationError when a part does not decode."""
        self._left -= 1
        if self._left < 0:
            self._turn()
        if len(self._texts) >= _MAX_TEXTS:
            self._texts = {}
        meta = pod.metadata
        labels = bytes(meta.labels)
        owners = bytes(meta.owner_references)
        # Pods without an owner that carry the same labels are usually of one making, too.
        workload = self._workloads.get(owners or labels) or self._new_workload(owners, labels)
        self._finish_metadata(meta, labels, bytes(meta.annotations), workload)
        force_setattr(pod, "spec", self._spec(bytes(pod.spec), workload))
        self._finish_status(pod.status)
        return pod

    def _turn(self) -> None:
        """Let go of workloads that are gone, as far as can be seen from here; a mistake costs only some sharing."""
        self._left = _LEAST_PODS + _PODS_PER_WORKLOAD * self._workloads.turn()
        self._values.turn()

    def _new_workload(self, owners: bytes, labels: bytes) -> _Workload:
        workload = _Workload(_OWNERS.decode(owners) if owners and owners != b"null" else _NO_ITEMS)
        return self._workloads.put(owners or labels, workload)

    def _finish_metadata(self, meta: ObjectMeta, labels: bytes, annotations: bytes, workload: _Workload) -> None:
        share = self._texts.setdefault
        force_setattr(meta, "labels", self._value(labels, _TEXTS, _NO_TEXT))
        force_setattr(meta, "owner_references", workload.owners)
        force_setattr(meta, "annotations", self._annotations(annotations) if annotations else _NO_TEXT)
        force_setattr(meta, "namespace", share(meta.namespace, meta.namespace))
        force_setattr(meta, "generate_name", share(meta.generate_name, meta.generate_name))
        created = meta.creation_timestamp
        if created is not None:
            force_setattr(meta, "creation_timestamp", share(created, created))

    def _value(self, text: bytes, decoder: msgspec.json.Decoder[Any], empty: Any) -> Any:
        if not text or text == b"null":
            return empty
        found = self._values.get(text)
        return self._values.put(text, decoder.decode(text)) if found is None else found

    def _annotations(self, text: bytes) -> dict[str, str]:
        if b"karpenter.sh/" not in text and b"kubernetes.io/" not in text and b"x-k8s.io/" not in text:
            return _NO_TEXT
        kept = {key: value for key, value in _TEXTS.decode(text).items() if keeps_annotation(key)}
        return self._shared(kept) if kept else _NO_TEXT

    def _shared(self, value: Any) -> Any:
        text = _ENCODE(value)
        found = self._values.get(text)
        return self._values.put(text, value) if found is None else found

    def _spec(self, text: bytes, workload: _Workload) -> PodSpec:
        if not text:
            return PodSpec()
        for shape in workload.shapes:
            node = shape.matched_node(text)
            if node is not None:
                return self._on_node(shape.spec, node)
        spec = _SPEC.decode(text)
        node = spec.node_name
        force_setattr(spec, "node_name", "")
        self._share_parts(spec, workload)
        if len(workload.shapes) < _MAX_VARIANTS:
            workload.shapes.append(_Shape(text, spec))
        return self._on_node(spec, node)

    def _on_node(self, spec: PodSpec, node: str) -> PodSpec:
        if not node:
            return spec
        bound: PodSpec = spec.__copy__()  # type: ignore[attr-defined]
        force_setattr(bound, "node_name", self._texts.setdefault(node, node))
        return bound

    def _share_parts(self, spec: PodSpec, workload: _Workload) -> None:
        claims = [volume for volume in spec.volumes if volume.persistent_volume_claim or volume.ephemeral]
        force_setattr(spec, "volumes", claims)
        for name in _SPEC_FIELDS:
            value = getattr(spec, name)
            if isinstance(value, list | dict) and not value:
                force_setattr(spec, name, _NO_ITEMS if isinstance(value, list) else _NO_TEXT)
        if workload.shapes:
            first = workload.shapes[0].spec
            for name in _SPEC_FIELDS:
                value = getattr(first, name)
                if getattr(spec, name) == value:
                    force_setattr(spec, name, value)

    def _finish_status(self, status: PodStatus) -> None:
        share = self._texts.setdefault
        kept = [condition for condition in status.conditions if condition.type not in _UNREAD_CONDITIONS]
        for condition in kept:
            force_setattr(condition, "type", share(condition.type, condition.type))
            force_setattr(condition, "status", share(condition.status, condition.status))
            when = condition.last_transition_time
            if when is not None:
                force_setattr(condition, "last_transition_time", share(when, when))
            if condition.reason:
                force_setattr(condition, "reason", share(condition.reason, condition.reason))
                force_setattr(condition, "message", share(condition.message, condition.message))
        force_setattr(status, "conditions", kept)
        force_setattr(status, "phase", share(status.phase, status.phase))
        started = status.start_time
        if started is not None:
            force_setattr(status, "start_time", share(started, started))
        containers = status.container_statuses
        if containers:
            force_setattr(status, "container_statuses", self._shared(containers))
