"""Feature gates: `Name=bool,…`, Karpenter's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pykarpenter.runtime.setting_values import parse_bool


class Gate(NamedTuple):
    name: str
    field: str
    default: bool
    stage: str


GATES: tuple[Gate, ...] = (
    Gate("ReservedCapacity", "reserved_capacity", True, "beta"),
    Gate("SpotToSpotConsolidation", "spot_to_spot_consolidation", False, "alpha"),
    Gate("NodeRepair", "node_repair", False, "alpha"),
    Gate("NodeOverlay", "node_overlay", False, "alpha"),
    Gate("StaticCapacity", "static_capacity", False, "alpha"),
    Gate("CapacityBuffer", "capacity_buffer", False, "alpha"),
    Gate("TerminateFirstDrift", "terminate_first_drift", False, "alpha"),
    Gate("TerminateFirstRepair", "terminate_first_repair", False, "alpha"),
    Gate("PodDeletionCostManagement", "pod_deletion_cost_management", False, "alpha"),
)
_BY_NAME = {gate.name: gate for gate in GATES}

DEFAULT_TEXT = ",".join(f"{gate.name}={str(gate.default).lower()}" for gate in GATES)


@dataclass(frozen=True, slots=True)
class FeatureGates:
    reserved_capacity: bool = True
    spot_to_spot_consolidation: bool = False
    node_repair: bool = False
    node_overlay: bool = False
    static_capacity: bool = False
    capacity_buffer: bool = False
    terminate_first_drift: bool = False
    terminate_first_repair: bool = False
    pod_deletion_cost_management: bool = False
    # Names that no gate has; ignored, with one warning.
    unknown: tuple[str, ...] = ()

    def enabled(self) -> list[str]:
        return [gate.name for gate in GATES if getattr(self, gate.field)]


def parse_feature_gates(text: str) -> FeatureGates:
    """Gates that the text does not name keep their defaults; raises ValueError naming every pair that is wrong."""
    values: dict[str, bool] = {}
    unknown: list[str] = []
    problems: list[str] = []
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, separator, raw = (part.strip() for part in pair.partition("="))
        if not separator:
            problems.append(f"{pair!r} is not Name=true or Name=false")
            continue
        try:
            value = parse_bool(raw)
        except ValueError:
            problems.append(f"gate {name} has no boolean but {raw!r}")
            continue
        if name in _BY_NAME:
            values[_BY_NAME[name].field] = value
        else:
            unknown.append(name)
    if problems:
        raise ValueError("; ".join(problems))
    return FeatureGates(**values, unknown=tuple(unknown))
