"""Writes the `demo` catalogue: a made-up but realistic cloud, in the JSON shape of the KWOK provider.

Run once; the result is a data file. The seed is fixed, so a second run writes the same bytes. Prices are uneven on
purpose: a cost that follows cpu exactly would make every packing look equally good.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

SEED = 20260115
ZONES = ("demo-1a", "demo-1b", "demo-1c")
TARGET = Path(__file__).parents[1] / "src/pykarpenter/cloud/catalogues/demo.json"

SIZES = {
    "large": 2,
    "xlarge": 4,
    "2xlarge": 8,
    "4xlarge": 16,
    "8xlarge": 32,
    "12xlarge": 48,
    "16xlarge": 64,
    "24xlarge": 96,
}
UPTO_16 = tuple(SIZES)[:7]


@dataclass(frozen=True)
class Family:
    """A line of machines: GiB for each vCPU, $/h for each vCPU on demand, and where it is sold."""

    name: str
    gib_per_cpu: float
    price_per_cpu: float
    arch: str = "amd64"
    sizes: tuple[str, ...] = tuple(SIZES)
    zones: tuple[str, ...] = ZONES
    disk_gib: int = 50


FAMILIES = (
    Family("c6", 2, 0.0425),
    Family("c7", 2, 0.0446, sizes=UPTO_16),
    Family("c7g", 2, 0.0363, arch="arm64", sizes=UPTO_16),
    Family("m6", 4, 0.0480),
    Family("m7", 4, 0.0504, sizes=UPTO_16, zones=("demo-1a", "demo-1b")),
    Family("m7g", 4, 0.0408, arch="arm64", sizes=UPTO_16),
    Family("r6", 8, 0.0630),
    Family("r7g", 8, 0.0536, arch="arm64", sizes=UPTO_16),
    Family("i4", 8, 0.0858, sizes=("large", "xlarge", "2xlarge", "4xlarge"), disk_gib=900),
)


@dataclass(frozen=True)
class Machine:
    """A type that is listed one by one rather than by family."""

    name: str
    cpu: int
    gib: int
    price: float
    gpus: int = 0
    zones: tuple[str, ...] = ZONES
    arch: str = "amd64"


SINGLES = (
    Machine("t4.small", 1, 2, 0.0395),
    Machine("t4.medium", 2, 4, 0.0790),
    Machine("t4g.small", 1, 2, 0.0330, arch="arm64"),
    Machine("t4g.medium", 2, 4, 0.0660, arch="arm64"),
    Machine("x2.2xlarge", 8, 128, 0.834, zones=("demo-1a", "demo-1c")),
    Machine("x2.8xlarge", 32, 512, 3.336, zones=("demo-1a", "demo-1c")),
    Machine("g4.xlarge", 4, 16, 0.526, 1),
    Machine("g4.2xlarge", 8, 32, 0.752, 1),
    Machine("g4.4xlarge", 16, 64, 1.204, 1),
    Machine("g4.12xlarge", 48, 192, 3.912, 4, ("demo-1a", "demo-1b")),
    Machine("g4.24xlarge", 96, 384, 7.824, 8, ("demo-1a",)),
    Machine("g6.xlarge", 4, 16, 0.805, 1, ("demo-1a", "demo-1b")),
    Machine("g6.2xlarge", 8, 32, 0.978, 1, ("demo-1a", "demo-1b")),
    Machine("g6.8xlarge", 32, 128, 2.014, 2, ("demo-1a", "demo-1b")),
    Machine("g6.12xlarge", 48, 192, 4.602, 4, ("demo-1b",)),
    Machine("g6.48xlarge", 192, 768, 13.350, 8, ("demo-1b",)),
    Machine("p4.24xlarge", 96, 1152, 32.773, 8, ("demo-1b", "demo-1c")),
)


def pods_for(cpu: int) -> int:
    return {1: 11, 2: 29}.get(cpu, 58 if cpu <= 8 else 110 if cpu < 32 else 250)


def offerings(rng: random.Random, price: float, zones: tuple[str, ...]) -> list[dict[str, object]]:
    """On demand at one price everywhere; spot cheaper by a different share in each zone, and not sold in all."""
    result: list[dict[str, object]] = []
    for zone in zones:
        result.append(offering(round(price, 4), zone, "on-demand"))
        share = rng.uniform(0.27, 0.68)
        if rng.random() > 0.08:
            result.append(offering(round(price * share, 4), zone, "spot"))
    return result


def offering(price: float, zone: str, capacity_type: str) -> dict[str, object]:
    return {
        "Price": price,
        "Available": True,
        "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
        ],
    }


def entry(name: str, arch: str, resources: dict[str, str], sold: list[dict[str, object]]) -> dict[str, object]:
    return {
        "name": name,
        "offerings": sold,
        "architecture": arch,
        "operatingSystems": ["linux"],
        "resources": resources,
    }


def catalogue() -> list[dict[str, object]]:
    rng = random.Random(SEED)
    result: list[dict[str, object]] = []
    for family in FAMILIES:
        for size in family.sizes:
            cpu = SIZES[size]
            price = family.price_per_cpu * cpu * rng.uniform(0.95, 1.06)
            resources = {
                "cpu": str(cpu),
                "memory": f"{int(cpu * family.gib_per_cpu)}Gi",
                "pods": str(pods_for(cpu)),
                "ephemeral-storage": f"{family.disk_gib}Gi",
            }
            sold = offerings(rng, price, family.zones)
            result.append(entry(f"{family.name}.{size}", family.arch, resources, sold))
    for machine in SINGLES:
        resources = {
            "cpu": str(machine.cpu),
            "memory": f"{machine.gib}Gi",
            "pods": str(pods_for(machine.cpu)),
            "ephemeral-storage": "100Gi" if machine.gpus else "50Gi",
        }
        if machine.gpus:
            resources["nvidia.com/gpu"] = str(machine.gpus)
        result.append(entry(machine.name, machine.arch, resources, offerings(rng, machine.price, machine.zones)))
    return result


def main() -> None:
    types = catalogue()
    lines = ",\n".join(json.dumps(item, separators=(",", ":")) for item in types)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(f"[\n{lines}\n]\n")
    print(f"{len(types)} types, {sum(len(t['offerings']) for t in types)} offerings")  # type: ignore[misc, arg-type]


if __name__ == "__main__":
    main()
