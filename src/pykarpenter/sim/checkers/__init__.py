"""Invariants as code: safety checked after every write, liveness when faults have stopped."""

from pykarpenter.sim.checkers.calm import MoveChecker
from pykarpenter.sim.checkers.decisions import DecisionCheckers
from pykarpenter.sim.checkers.freshness import FreshnessChecker
from pykarpenter.sim.checkers.liveness import check_liveness
from pykarpenter.sim.checkers.placement import PlacementChecker
from pykarpenter.sim.checkers.report import Report, Violation
from pykarpenter.sim.checkers.safety import SafetyCheckers

__all__ = [
    "DecisionCheckers",
    "FreshnessChecker",
    "MoveChecker",
    "PlacementChecker",
    "Report",
    "SafetyCheckers",
    "Violation",
    "check_liveness",
]
