"""The hash of a NodePool's template: version `v3`, bit for bit the number that Karpenter writes.

A claim whose pool carries another number has drifted, so a single wrong bit would replace a whole fleet on the day
the controller changes. The number covers `spec.template` without `requirements`. Fields that are absent do not
count; explicit `{}` and `[]` do.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from pykarpenter.api.absence import is_absent
from pykarpenter.api.duration import NEVER, parse_duration_ns
from pykarpenter.api.nodepool import NodeClaimTemplate, NodeClaimTemplateSpec, NodeClassReference, NodePool
from pykarpenter.api.nodes import Taint
from pykarpenter.api.timestamps import parse_timestamp

# 64-bit FNV-1: multiply, then xor.
_BASIS = 14695981039346656037
_PRIME = 1099511628211
_MASK = 2**64 - 1

_Fields = Iterable[tuple[str, int | None]]


def nodepool_hash(pool: NodePool) -> str:
    """Decimal text of the hash of the pool's template."""
    return str(_template(pool.spec.template))


def _fnv(data: bytes) -> int:
    value = _BASIS
    for byte in data:
        value = (value * _PRIME & _MASK) ^ byte
    return value


def _text(value: str) -> int:
    return _fnv(value.encode())


def _integer(value: int) -> int:
    return _fnv(struct.pack("<q", value))


def _pair(left: int, right: int) -> int:
    return _fnv(struct.pack("<QQ", left, right))


def _seal(value: int) -> int:
    return _fnv(struct.pack("<Q", value))


def _struct(type_name: str, fields: _Fields) -> int:
    """A struct of the given type; fields that are None are zero and do not count."""
    value = _text(type_name)
    for name, field_hash in fields:
        if field_hash is not None:
            value = _seal(value ^ _pair(_text(name), field_hash))
    return value


def _optional_text(value: str) -> int | None:
    return _text(value) if value else None


def _map(values: Mapping[str, str]) -> int | None:
    if is_absent(values):
        return None
    combined = 0
    for key, value in values.items():
        combined ^= _pair(_text(key), _text(value))
    return _seal(combined)


def _taints(taints: list[Taint]) -> int | None:
    """A list is the xor of its elements and not sealed: equal taints cancel out."""
    if is_absent(taints):
        return None
    combined = 0
    for taint in taints:
        combined ^= _taint(taint)
    return combined


def _taint(taint: Taint) -> int:
    added = None if taint.time_added is None else _struct("Time", [("Time", _time(taint.time_added))])
    return _struct(
        "Taint",
        [
            ("Key", _optional_text(taint.key)),
            ("Value", _optional_text(taint.value)),
            ("Effect", _optional_text(taint.effect)),
            ("TimeAdded", added),
        ],
    )


def _time(text: str) -> int:
    """Go's binary form of a time: version, seconds since the year 1, nanoseconds, zone offset in minutes."""
    moment = parse_timestamp(text)
    seconds = int((datetime.fromtimestamp(int(moment), UTC) - datetime(1, 1, 1, tzinfo=UTC)).total_seconds())
    return _fnv(struct.pack(">BqIh", 1, seconds, 0, 0))


def _template(template: NodeClaimTemplate) -> int:
    metadata = [("Labels", _map(template.metadata.labels)), ("Annotations", _map(template.metadata.annotations))]
    has_metadata = any(value is not None for _, value in metadata)
    return _struct(
        "NodeClaimTemplate",
        [("ObjectMeta", _struct("ObjectMeta", metadata) if has_metadata else None), ("Spec", _spec(template.spec))],
    )


def _spec(spec: NodeClaimTemplateSpec) -> int:
    return _struct(
        "NodeClaimTemplateSpec",
        [
            ("Taints", _taints(spec.taints)),
            ("StartupTaints", _taints(spec.startup_taints)),
            ("NodeClassRef", _class_ref(spec.node_class_ref)),
            ("TerminationGracePeriod", _grace_period(spec.termination_grace_period)),
            ("ExpireAfter", _expire_after(spec.expire_after)),
        ],
    )


def _class_ref(ref: NodeClassReference) -> int:
    fields = [(name, _optional_text(value)) for name, value in (("Kind", ref.kind), ("Name", ref.name))]
    return _struct("NodeClassReference", [*fields, ("Group", _optional_text(ref.group))])


def _grace_period(text: str | None) -> int | None:
    if text is None:
        return None
    nanoseconds = parse_duration_ns(text)
    return _struct("Duration", [("Duration", _integer(nanoseconds) if nanoseconds else None)])


def _expire_after(text: str | None) -> int | None:
    """`Never` counts as absent; `0s` counts, other than in a grace period."""
    if text is None or text == NEVER:
        return None
    return _struct("NillableDuration", [("Duration", _integer(parse_duration_ns(text)))])
