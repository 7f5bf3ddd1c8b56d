"""Instance types written down in the KWOK provider's JSON shape, so that a recording can be read like a catalogue.

Beyond KWOK's keys an entry may say `overhead`, and an offering `Unavailable`; both are left out when they say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from pykarpenter.api import labels
from pykarpenter.api.quantity import format_quantities
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.requirements import Requirements


def catalog_entries(types: Iterable[InstanceType]) -> list[dict[str, Any]]:
    return [_entry(item) for item in sorted(types, key=lambda item: item.name)]


def _entry(item: InstanceType) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": item.name,
        "architecture": _first(item.requirements, labels.ARCH, "amd64"),
        "operatingSystems": sorted(item.requirements.get_or_exists(labels.OS).values) or ["linux"],
        "resources": format_quantities(dict(item.capacity)),
        "overhead": format_quantities(dict(item.overhead)),
        "offerings": [_offering(offering) for offering in item.offerings],
    }
    if item.volume_attachment_limits:
        entry["volumeAttachmentLimits"] = dict(item.volume_attachment_limits)
    if item.dynamic_resources:
        entry["dynamicResources"] = msgspec.to_builtins(list(item.dynamic_resources))
    if item.attribute_bindings:
        entry["attributeBindings"] = [
            {"attribute": b.attribute, "devices": [{"driver": d, "device": n} for d, n in b.devices]}
            for b in item.attribute_bindings
        ]
    return entry


def _offering(offering: Offering) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "Price": offering.price,
        "Requirements": [
            {"key": key, "operator": item.operator, "values": sorted(item.values)}
            for key, item in sorted(_plain(offering.requirements).items())
        ],
    }
    if offering.reservation_capacity:
        wanted["ReservationCapacity"] = offering.reservation_capacity
    if not offering.available:
        wanted["Unavailable"] = True
    return wanted


def _plain(requirements: Requirements) -> Mapping[str, Any]:
    return dict(requirements)


def _first(requirements: Requirements, key: str, default: str) -> str:
    return min(requirements.get_or_exists(key).values, default=default)
