"""What a user can set about packing, as plain data passed into every decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pykarpenter.api.labels import DEFAULT_RULES, LabelRules
from pykarpenter.api.pods import TopologySpreadConstraint


@dataclass(frozen=True, slots=True)
class PackingSettings:
    """Settings and gates that change where pods go; defaults as Karpenter's."""

    preference_policy: str = "Respect"
    min_values_policy: str = "Strict"
    ignore_dra_requests: bool = True
    reserved_capacity: bool = True
    default_spread: tuple[TopologySpreadConstraint, ...] = ()
    effort: str = "normal"
    cross_pool_cost: bool = False
    label_rules: LabelRules = field(default_factory=lambda: DEFAULT_RULES)
    reservation_id_label: str = ""
    managed_class_kinds: frozenset[tuple[str, str]] | None = None
    unsupported_csi_drivers: frozenset[str] = frozenset()
    unsupported_topology_keys: frozenset[str] = frozenset()
    max_instance_types: int = 600


ShouldStop = Callable[[], bool]


def never_stop() -> bool:
    return False
