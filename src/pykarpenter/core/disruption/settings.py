"""Gates, limits and what the controllers remember between passes, as plain data passed into every decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pykarpenter.api.labels import DEFAULT_RULES, LabelRules
from pykarpenter.core.repair import RepairRules

# Numbers of Karpenter core v1.15.
MULTI_NODE_CAP = 100
SPOT_FLEXIBILITY = 15
VALIDATION_DELAY_S = 15.0
MULTI_NODE_LIMIT_S = 60.0
SINGLE_NODE_LIMIT_S = 180.0
# Our own: the search over sets, after Karpenter's.
SETS_LIMIT_S = 5.0
BALANCED_THRESHOLD = 0.5
BALANCED_K = 2
UNLIMITED = 2147483647


@dataclass(frozen=True, slots=True)
class DisruptionSettings:
    """What a user can set about disruption; defaults as Karpenter's."""

    spot_to_spot: bool = False
    node_repair: bool = False
    terminate_first_drift: bool = False
    terminate_first_repair: bool = False
    pod_deletion_cost: bool = False
    protect_unparsable: bool = False
    min_values_policy: str = "Strict"
    min_saving: float = 0.0
    # $/h that a displaced pod weighs against a saving; 0 asks for no pay-back.
    eviction_price: float = 0.0
    # Whether sets beyond Karpenter's prefixes are looked at, and whether several machines may replace a set.
    best_sets: bool = False
    many_replacements: bool = False
    reservation_id_label: str = ""
    label_rules: LabelRules = field(default_factory=lambda: DEFAULT_RULES)
    # None accepts every class: files and tests need not name their provider's.
    managed_class_kinds: frozenset[tuple[str, str]] | None = None
    repair: RepairRules | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What earlier passes leave behind; losing it in a restart costs time, never safety."""

    # Nodes of commands that run or wait for their validation.
    in_flight: frozenset[str] = frozenset()
    # The change stamp at which a method last found nothing to do, by method.
    nothing_at: Mapping[str, float] = field(default_factory=dict)
    # Pools that the last single-node search did not reach before its time was up.
    unseen_pools: tuple[str, ...] = ()
    # Pools whose last replacement failed, with the time from which they are tried again.
    back_off_until: Mapping[str, float] = field(default_factory=dict)
    # When a workload was last displaced by a command, by `calm.workload_of`.
    displaced_at: Mapping[str, float] = field(default_factory=dict)
    # Pools whose displaced pods did not land where planned, with the time until which moving their pods costs more.
    cooling_until: Mapping[str, float] = field(default_factory=dict)
    # Where the search over sets last found nothing better: the change stamp and the budgets of that time.
    nothing_better_at: tuple[float, tuple[tuple[str, int], ...]] | None = None


StopFactory = Callable[[float], Callable[[], bool]]


def no_deadline(_limit_s: float) -> Callable[[], bool]:
    """The search effort of tests and files: to the end."""
    return lambda: False
