"""Catalogues of instance types: the built-in KWOK one, the bundled demo one, and files in the KWOK provider's JSON.

What cannot be used is dropped and counted rather than failing the whole catalogue; text that is no catalogue at all
raises CatalogError, which names the file, the place and the remedy.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from pykarpenter.api import labels
from pykarpenter.api.devices import ResourceSliceSpec
from pykarpenter.api.quantity import InvalidQuantity, available, format_units, requested
from pykarpenter.core.instance_types import AttributeBinding, InstanceType, Offering
from pykarpenter.core.requirements import Requirement, Requirements, requirement

DOMAIN = "karpenter.kwok.sh"
INSTANCE_SIZE = f"{DOMAIN}/instance-size"
INSTANCE_FAMILY = f"{DOMAIN}/instance-family"
INSTANCE_CPU = f"{DOMAIN}/instance-cpu"
INSTANCE_MEMORY = f"{DOMAIN}/instance-memory"
RESERVATION_ID = f"{DOMAIN}/reservation-id"
CATALOG_LABELS = (INSTANCE_SIZE, INSTANCE_FAMILY, INSTANCE_CPU, INSTANCE_MEMORY)

# What a KWOK machine keeps for itself, in table units: 100m cpu and 10Mi memory.
OVERHEAD: Mapping[str, int] = {"cpu": 100, "memory": 10 * 2**20}
DEFAULT_PODS = "110"

_KWOK_CPUS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
_KWOK_FAMILIES = (("c", 2), ("s", 4), ("m", 8))
_KWOK_ZONES = ("test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d")
_AWS_SIZE = re.compile(r"\w+\.(nano|micro|small|medium|large|\d*xlarge|metal)")
_BUNDLED = Path(__file__).parent / "catalogues"


class CatalogError(ValueError):
    """A catalogue that cannot be read at all."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """Usable types in the order of the file, and what was dropped from it."""

    types: tuple[InstanceType, ...]
    warnings: tuple[str, ...] = ()
    dropped_types: int = 0
    dropped_offerings: int = 0

    @property
    def label_rules(self) -> labels.LabelRules:
        """KWOK's rules: its own domain is reserved, its labels and every key of an offering are well-known."""
        keys = {key for item in self.types for offering in item.offerings for key in offering.requirements}
        return replace(
            labels.DEFAULT_RULES,
            well_known=labels.WELL_KNOWN | frozenset(CATALOG_LABELS) | frozenset(keys),
            restricted_domains=(labels.GROUP, DOMAIN),
        )


@dataclass(slots=True)
class _Report:
    warnings: list[str] = field(default_factory=list)
    types: int = 0
    offerings: int = 0


def load_catalog(name_or_path: str) -> tuple[InstanceType, ...]:
    """The types of `kwok`, `demo` or a .json/.json.gz file; raises CatalogError."""
    return read_catalog(name_or_path).types


def read_catalog(name_or_path: str) -> Catalog:
    """As `load_catalog`, with what was dropped and the label rules the catalogue brings along."""
    if name_or_path == "kwok":
        return _kwok()
    if name_or_path == "demo":
        for candidate in (_BUNDLED / "demo.json", _BUNDLED / "demo.json.gz"):
            if candidate.exists():
                return parse_catalog(_read(candidate), "demo")
        raise CatalogError("catalogue demo: its data file is missing from this installation")
    return parse_catalog(_read(Path(name_or_path)), name_or_path)


def kwok_catalog() -> tuple[InstanceType, ...]:
    """The 144 types of KWOK's own catalogue."""
    return _kwok().types


@lru_cache(maxsize=1)
def _kwok() -> Catalog:
    entries = [
        _kwok_entry(family, ratio, cpu, os, arch)
        for cpu in _KWOK_CPUS
        for family, ratio in _KWOK_FAMILIES
        for os in ("linux", "windows")
        for arch in ("amd64", "arm64")
    ]
    return parse_entries(entries, "kwok")


def _kwok_entry(family: str, ratio: int, cpu: int, os: str, arch: str) -> dict[str, Any]:
    memory = cpu * ratio
    price = 0.025 * cpu + 0.001 * (memory * 2**30 / 1e9)
    prices = ((labels.SPOT, price * 0.7), (labels.ON_DEMAND, price))
    return {
        "name": f"{family}-{cpu}x-{arch}-{os}",
        "architecture": arch,
        "operatingSystems": [os],
        "resources": {
            "cpu": str(cpu),
            "memory": f"{memory}Gi",
            "pods": str(min(16 * cpu, 1024)),
            "ephemeral-storage": "20Gi",
        },
        "offerings": [
            {
                "Price": amount,
                "Requirements": [
                    {"key": labels.CAPACITY_TYPE, "operator": "In", "values": [capacity_type]},
                    {"key": labels.ZONE, "operator": "In", "values": [zone]},
                ],
            }
            for zone in _KWOK_ZONES
            for capacity_type, amount in prices
        ],
    }


def _read(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    except (OSError, EOFError, UnicodeDecodeError, gzip.BadGzipFile) as error:
        raise CatalogError(f"catalogue {path}: cannot be read ({error}); give kwok, demo or a .json file") from error


def parse_catalog(text: str, source: str) -> Catalog:
    """Parse the JSON list of a catalogue; raises CatalogError."""
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as error:
        raise CatalogError(f"catalogue {source}: line {error.lineno}: not JSON ({error.msg})") from error
    if not isinstance(entries, list):
        raise CatalogError(f"catalogue {source}: expected a list of instance types, found {type(entries).__name__}")
    return parse_entries(entries, source)


def parse_entries(entries: Sequence[Any], source: str) -> Catalog:
    """Types from decoded JSON entries; raises CatalogError when an entry has the wrong shape."""
    report = _Report()
    types: dict[str, InstanceType] = {}
    for index, entry in enumerate(entries):
        place = f"catalogue {source}: entry {index}"
        if not isinstance(entry, dict):
            raise CatalogError(f"{place}: expected an object with name, resources and offerings, found {entry!r}")
        item = _type(_lowered(entry), place, report)
        if item is None:
            report.types += 1
        elif item.name in types:
            report.types += 1
            report.warnings.append(f"{place}: instance type {item.name!r} occurs twice; the first one is used")
        else:
            types[item.name] = item
    return Catalog(tuple(types.values()), tuple(report.warnings), report.types, report.offerings)


def _lowered(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key).lower(): value for key, value in entry.items()}


def _type(entry: Mapping[str, Any], place: str, report: _Report) -> InstanceType | None:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise CatalogError(f"{place}: name: {name!r}: every instance type needs a name")
    place = f"{place} ({name})"
    capacity = _capacity(entry.get("resources"), place)
    offerings = tuple(
        offering
        for index, raw in enumerate(_list(entry.get("offerings"), f"{place}: offerings"))
        if (offering := _offering(raw, f"{place}: offering {index}", report)) is not None
    )
    if capacity.get("cpu", 0) <= 0 or not offerings:
        missing = "no cpu" if capacity.get("cpu", 0) <= 0 else "no usable offering"
        report.warnings.append(f"{place}: dropped, it has {missing}")
        return None
    return InstanceType(
        name=name,
        requirements=_type_requirements(name, entry, capacity, offerings),
        offerings=offerings,
        capacity=capacity,
        overhead=_overhead(entry.get("overhead"), place),
        volume_attachment_limits=_counts(entry.get("volumeattachmentlimits"), f"{place}: volumeAttachmentLimits"),
        dynamic_resources=_slices(entry.get("dynamicresources"), f"{place}: dynamicResources"),
        attribute_bindings=_bindings(entry.get("attributebindings"), f"{place}: attributeBindings"),
    )


def _capacity(raw: Any, place: str) -> dict[str, int]:
    if not isinstance(raw, dict):
        raise CatalogError(f"{place}: resources: {raw!r}: expected quantities such as cpu and memory")
    try:
        capacity = available({"pods": DEFAULT_PODS, **raw})
    except (InvalidQuantity, TypeError) as error:
        raise CatalogError(f"{place}: resources: {error}") from error
    for resource, amount in capacity.items():
        if amount < 0:
            raise CatalogError(f"{place}: resources.{resource}: {raw[resource]!r}: must not be negative")
    return capacity


def _overhead(raw: Any, place: str) -> dict[str, int]:
    """KWOK's own reserve, unless a recording names another."""
    if raw is None:
        return dict(OVERHEAD)
    if not isinstance(raw, dict):
        raise CatalogError(f"{place}: overhead: {raw!r}: expected quantities such as cpu and memory")
    try:
        return requested(raw)
    except (InvalidQuantity, TypeError) as error:
        raise CatalogError(f"{place}: overhead: {error}") from error


def _type_requirements(
    name: str, entry: Mapping[str, Any], capacity: Mapping[str, int], offerings: Sequence[Offering]
) -> Requirements:
    cpu = format_units("cpu", capacity["cpu"])
    matched = _AWS_SIZE.fullmatch(name)
    parts = re.split("[.-]", name, maxsplit=1)
    systems = [str(os) for os in entry.get("operatingsystems") or ["linux"]]
    single = {
        labels.INSTANCE_TYPE: [name],
        labels.ARCH: [str(entry.get("architecture") or "amd64")],
        labels.OS: systems,
        labels.ZONE: [offering.zone for offering in offerings],
        labels.CAPACITY_TYPE: [offering.capacity_type for offering in offerings],
        INSTANCE_SIZE: [matched.group(1) if matched else cpu],
        INSTANCE_FAMILY: [parts[0] if len(parts) > 1 else name[:1]],
        INSTANCE_CPU: [cpu],
        INSTANCE_MEMORY: [format_units("memory", capacity.get("memory", 0))],
    }
    return Requirements(Requirement(key, frozenset(values)) for key, values in single.items())


def _offering(raw: Any, place: str, report: _Report) -> Offering | None:
    if not isinstance(raw, dict):
        raise CatalogError(f"{place}: expected an object with Price and Requirements, found {raw!r}")
    entry = _lowered(raw)
    items: list[Requirement] = []
    for wanted in _list(entry.get("requirements"), f"{place}: Requirements"):
        if not isinstance(wanted, dict):
            raise CatalogError(f"{place}: Requirements: expected key, operator and values, found {wanted!r}")
        fields = _lowered(wanted)
        try:
            items.append(requirement(str(fields.get("key")), str(fields.get("operator")), fields.get("values") or []))
        except ValueError as error:
            raise CatalogError(f"{place}: Requirements: {error}") from error
    capacity = entry.get("reservationcapacity") or 0
    requirements = Requirements(items)
    offering = Offering(
        requirements=requirements,
        price=_price(entry.get("price")),
        # Only recordings say so: KWOK's own files are always available.
        available=entry.get("unavailable") is not True,
        reservation_capacity=capacity if isinstance(capacity, int) and capacity > 0 else 0,
        reservation_id=_reservation_id(requirements),
    )
    if not offering.zone or not offering.capacity_type:
        report.offerings += 1
        missing = labels.CAPACITY_TYPE if offering.zone else labels.ZONE
        report.warnings.append(f"{place}: dropped, it needs exactly one value of {missing}")
        return None
    return offering


def _reservation_id(requirements: Requirements) -> str:
    values = requirements.get_or_exists(RESERVATION_ID).values
    return min(values) if len(values) == 1 else ""


def _price(raw: Any) -> float | None:
    """A usable price, or None: the offering can be launched but takes no part in cost decisions."""
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    return float(raw) if math.isfinite(raw) and raw >= 0 else None


def _list(raw: Any, place: str) -> list[Any]:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise CatalogError(f"{place}: expected a list, found {raw!r}")
    return raw


def _counts(raw: Any, place: str) -> dict[str, int]:
    if raw is None:
        return {}
    if not isinstance(raw, dict) or not all(isinstance(count, int) and count >= 0 for count in raw.values()):
        raise CatalogError(f"{place}: {raw!r}: expected a CSI driver and a count each")
    return {str(driver): count for driver, count in raw.items()}


def _slices(raw: Any, place: str) -> tuple[ResourceSliceSpec, ...]:
    try:
        return tuple(msgspec.convert(_list(raw, place), list[ResourceSliceSpec]))
    except msgspec.ValidationError as error:
        raise CatalogError(f"{place}: {error}") from error


def _bindings(raw: Any, place: str) -> tuple[AttributeBinding, ...]:
    """Devices that will agree in an attribute: `{attribute, devices: [{driver, device}, ...]}`."""
    found = []
    for item in _list(raw, place):
        try:
            devices = tuple((str(device["driver"]), str(device["device"])) for device in item["devices"])
            found.append(AttributeBinding(str(item["attribute"]), devices))
        except (KeyError, TypeError) as error:
            message = f"{place}: {item!r}: expected an attribute and devices with driver and device each"
            raise CatalogError(message) from error
    return tuple(found)
