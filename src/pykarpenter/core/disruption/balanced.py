"""Pools with policy Balanced: a consolidation must save at least half as large a share as it disturbs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.disruption.commands import Command
from pykarpenter.core.disruption.settings import BALANCED_K, BALANCED_THRESHOLD
from pykarpenter.core.reasons import Why

BALANCED = "Balanced"


@dataclass(frozen=True, slots=True)
class PoolTotals:
    """What a whole pool costs and how much disturbance all of it would be; taken once per method run."""

    cost: float
    disruption: float


@dataclass(frozen=True, slots=True)
class Verdict:
    pool: str
    score: float
    saving_share: float
    disruption_share: float

    @property
    def approved(self) -> bool:
        return self.score >= BALANCED_THRESHOLD

    def text(self) -> str:
        sign = ">=" if self.approved else "<"
        return (
            f"score {self.score:.2f} {sign} threshold {BALANCED_THRESHOLD:.2f} (k: {BALANCED_K}, "
            f"savings {self.saving_share * 100:.1f}%, disruption {self.disruption_share * 100:.1f}%)"
        )


class Scales:
    """The totals of every Balanced pool, and the judgement of commands by them."""

    def __init__(self, world: World) -> None:
        self.totals: dict[str, PoolTotals] = {}
        for name, pool in world.pools.items():
            if pool.spec.disruption.consolidation_policy != BALANCED:
                continue
            views = world.by_pool.get(name, ())
            prices = [world.price(view) for view in views if view.claim is not None]
            disruption = math.fsum(world.reschedulable(view)[1] for view in views)
            self.totals[name] = PoolTotals(math.fsum(p for p in prices if p is not None), disruption)

    def verdicts(self, candidates: Sequence[Candidate], saving: float) -> list[Verdict]:
        """One for each Balanced pool in the command; the saving is split by the share of what the sources cost."""
        cost: dict[str, float] = defaultdict(float)
        disruption: dict[str, float] = defaultdict(float)
        for candidate in candidates:
            cost[candidate.pool.name] += candidate.price or 0.0
            disruption[candidate.pool.name] += candidate.reschedule_cost
        whole = math.fsum(cost.values())
        found: list[Verdict] = []
        for pool in sorted(cost):
            if pool in self.totals:
                part = saving * cost[pool] / whole if whole > 0 else 0.0
                found.append(self._verdict(pool, part, cost[pool], disruption[pool]))
        return found

    def _verdict(self, pool: str, saving: float, source_cost: float, disruption: float) -> Verdict:
        totals = self.totals[pool]
        pool_cost = totals.cost if totals.cost > 0 else source_cost
        if saving <= 0 or pool_cost <= 0 or totals.disruption <= 0:
            return Verdict(pool, 0.0, 0.0, 0.0)
        saved, disturbed = saving / pool_cost, disruption / totals.disruption
        return Verdict(pool, math.inf if disturbed <= 0 else saved / disturbed, saved, disturbed)

    def could_pass(self, candidate: Candidate) -> bool:
        """Whether even a plain delete, the most a machine can save, would reach the threshold."""
        return all(verdict.approved for verdict in self.verdicts([candidate], candidate.price or 0.0))


def approve(
    scales: Scales, candidates: Sequence[Candidate], command: Command
) -> tuple[Command | Blocker, list[Verdict]]:
    """The command with its scores, or the pool that refuses it."""
    verdicts = scales.verdicts(candidates, command.saving or 0.0)
    refused = next((verdict for verdict in verdicts if not verdict.approved), None)
    if refused is not None:
        message = f'NodePool "{refused.pool}" is Balanced: {refused.text()}'
        return Blocker(Why.BALANCED_SCORE, message, (f"NodePool {refused.pool}",)), verdicts
    return replace(command, scores=tuple((v.pool, v.score) for v in verdicts)), verdicts
