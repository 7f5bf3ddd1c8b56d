"""Pools of devices, from published ResourceSlices or from the slice templates of an instance type.

A pool is named by driver and pool name; only the slices of its highest generation count. A pool whose slices are not
all there is incomplete, one that contradicts itself is invalid: neither gives devices, and both say why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from pykarpenter.api.devices import (
    CapacityRequestPolicy,
    CapacityRequestRange,
    Device,
    DeviceAttribute,
    ResourceSliceSpec,
)
from pykarpenter.api.labels import DEFAULT_RULES, LabelRules
from pykarpenter.api.quantity import parse_quantity
from pykarpenter.core.devices.cel_values import as_quantity, semver
from pykarpenter.core.devices.placing import ANYWHERE, Term, terms_of

# Where a pool's devices are: published in the cluster, or promised by an instance type.
PUBLISHED = "published"
PROMISED = "promised"

AttributeValue = tuple[str, str | int | bool]
Amount = Fraction
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class PoolId(NamedTuple):
    origin: str
    driver: str
    name: str


class DeviceId(NamedTuple):
    origin: str
    driver: str
    pool: str
    name: str

    @property
    def text(self) -> str:
        return "/".join(part for part in self[1:] if part)


class CounterId(NamedTuple):
    pool: PoolId
    counter_set: str
    counter: str


@dataclass(frozen=True, slots=True)
class Policy:
    """How much of a dimension one request may take: one of some values, or steps within a range."""

    default: Amount | None
    values: tuple[Amount, ...]
    low: Amount
    step: Amount
    high: Amount | None


@dataclass(frozen=True, slots=True)
class Capacity:
    value: Amount
    policy: Policy | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """For which machines a slice or a device is there."""

    node_name: str = ""
    # None: the machine's own, or one node's; otherwise any of the terms must hold.
    terms: tuple[Term, ...] | None = None

    @property
    def is_local(self) -> bool:
        return self.terms is None


@dataclass(frozen=True, slots=True, eq=False)
class PoolDevice:
    """One device, names qualified by the driver where they lack a domain."""

    id: DeviceId
    scope: Scope
    attributes: Mapping[str, AttributeValue]
    capacity: Mapping[str, Capacity]
    counters: tuple[tuple[CounterId, Amount], ...] = ()
    multiple: bool = False
    tainted: str = ""
    # Devices alike in this are alike to every search.
    shape: tuple[object, ...] = ()
    _cel: dict[str, Any] = field(default_factory=dict)

    def cel_data(self) -> dict[str, Any]:
        """The device as selectors see it; made once."""
        if not self._cel:
            attributes: dict[str, dict[str, Any]] = {}
            for name, (kind, value) in self.attributes.items():
                domain, _, short = name.partition("/")
                attributes.setdefault(domain, {})[short] = semver(str(value)) if kind == "version" else value
            capacity: dict[str, dict[str, Any]] = {}
            for name, item in self.capacity.items():
                domain, _, short = name.partition("/")
                capacity.setdefault(domain, {})[short] = as_quantity(item.value)
            self._cel.update(
                driver=self.id.driver,
                attributes=attributes,
                capacity=capacity,
                allowMultipleAllocations=self.multiple,
            )
        return self._cel


@dataclass(slots=True, eq=False)
class Pool:
    """The devices of one pool; with a problem it has none."""

    id: PoolId
    devices: tuple[PoolDevice, ...] = ()
    counters: dict[CounterId, Amount] = field(default_factory=dict)
    # Scopes of all its slices: an unusable pool still concerns the machines it is for.
    scopes: tuple[Scope, ...] = ()
    problem: str = ""


class _Invalid(ValueError):
    pass


def qualified(name: str, driver: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


def gather(
    slices: Iterable[ResourceSliceSpec], origin: str = PUBLISHED, rules: LabelRules = DEFAULT_RULES
) -> list[Pool]:
    """The pools of these slices, by driver and name."""
    members: dict[PoolId, list[ResourceSliceSpec]] = {}
    for item in slices:
        members.setdefault(PoolId(origin, item.driver, item.pool.name), []).append(item)
    return [_pool(pool, listed, rules) for pool, listed in sorted(members.items())]


def _pool(pool: PoolId, slices: Sequence[ResourceSliceSpec], rules: LabelRules) -> Pool:
    newest = max(item.pool.generation for item in slices)
    current = [item for item in slices if item.pool.generation == newest]
    made = Pool(pool)
    try:
        made.scopes = tuple(_scope(item, pool.origin, rules) for item in current if item.devices)
        declared = current[0].pool.resource_slice_count
        # What an instance type promises is whole by definition.
        if pool.origin == PUBLISHED and len(current) != declared:
            made.problem = f"incomplete: {len(current)} of {declared} slices of generation {newest} are published"
            return made
        made.counters = _counters(pool, current)
        made.devices = tuple(_devices(pool, current, made.counters, rules))
    except (ValueError, OverflowError) as error:
        made.problem, made.devices = f"invalid: {error}", ()
    return made


def _scope(item: ResourceSliceSpec | Device, origin: str, rules: LabelRules) -> Scope:
    if item.node_selector is not None:
        return Scope(terms=terms_of(item.node_selector, rules))
    if item.all_nodes and origin == PUBLISHED:
        return Scope(terms=ANYWHERE)
    return Scope(node_name=item.node_name or "")


def _counters(pool: PoolId, slices: Sequence[ResourceSliceSpec]) -> dict[CounterId, Amount]:
    found: dict[CounterId, Amount] = {}
    names: set[str] = set()
    for item in slices:
        for counter_set in item.shared_counters:
            if counter_set.name in names:
                raise _Invalid(f"counter set {counter_set.name!r} occurs twice")
            names.add(counter_set.name)
            for name, counter in counter_set.counters.items():
                found[CounterId(pool, counter_set.name, name)] = parse_quantity(counter.value)
    return found


def _devices(
    pool: PoolId, slices: Sequence[ResourceSliceSpec], counters: Mapping[CounterId, Amount], rules: LabelRules
) -> list[PoolDevice]:
    found: dict[str, PoolDevice] = {}
    for item in slices:
        shared = _scope(item, pool.origin, rules)
        for device in item.devices:
            if device.name in found:
                raise _Invalid(f"device {device.name!r} occurs twice")
            scope = _scope(device, pool.origin, rules) if item.per_device_node_selection else shared
            found[device.name] = _device(pool, device, scope, counters)
    return list(found.values())


def _device(pool: PoolId, device: Device, scope: Scope, counters: Mapping[CounterId, Amount]) -> PoolDevice:
    consumed: list[tuple[CounterId, Amount]] = []
    for consumption in device.consumes_counters:
        for name, counter in consumption.counters.items():
            key = CounterId(pool, consumption.counter_set, name)
            if key not in counters:
                raise _Invalid(f"device {device.name!r} consumes the unknown counter {key.counter_set}/{name}")
            consumed.append((key, parse_quantity(counter.value)))
    blocking = [taint for taint in device.taints if taint.effect in ("NoSchedule", "NoExecute")]
    values = {qualified(name, pool.driver): _value(item) for name, item in device.attributes.items()}
    return PoolDevice(
        id=DeviceId(pool.origin, pool.driver, pool.name, device.name),
        scope=scope,
        # A kind of value that is not known yet reads as no attribute.
        attributes={name: value for name, value in values.items() if value is not None},
        capacity={
            qualified(name, pool.driver): Capacity(parse_quantity(item.value), _policy(item.request_policy))
            for name, item in device.capacity.items()
        },
        counters=tuple(consumed),
        multiple=bool(device.allow_multiple_allocations),
        tainted=f"{blocking[0].key}:{blocking[0].effect}" if blocking else "",
        shape=(
            pool.driver,
            pool if consumed else "",
            id(scope),
            _encode([device.attributes, device.capacity, device.consumes_counters, bool(blocking)]),
        ),
    )


def _policy(item: CapacityRequestPolicy | None) -> Policy | None:
    if item is None:
        return None
    limits = item.valid_range or CapacityRequestRange()
    return Policy(
        default=None if item.default is None else parse_quantity(item.default),
        values=tuple(sorted(parse_quantity(value) for value in item.valid_values)),
        low=parse_quantity(limits.min or 0),
        step=parse_quantity(limits.step or 0),
        high=None if limits.max is None else parse_quantity(limits.max),
    )


def _value(item: DeviceAttribute) -> AttributeValue | None:
    for kind, value in (
        ("int", item.int_value),
        ("bool", item.bool_value),
        ("string", item.string_value),
        ("version", item.version_value),
    ):
        if value is not None:
            if kind == "version":
                semver(str(value))
            return kind, value
    return None
