"""Workloads whose new machines are taken away again and again: how long to wait before the next is bought.

A machine that somebody deletes is replaced at once, and so is the next. Only when new machines of one workload go in
round after round, and none of its machines lives for a minute, does it wait, longer each time and at most a minute:
a script that deletes every new node then costs a few machines a minute, not two a second (F1, L5). Removals that this
program decided never count. Kept in memory: a restart starts afresh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pykarpenter.api.duration import InvalidDuration
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.core.lifecycle import DISRUPTION_REASON, condition_since, expires_at
from pykarpenter.core.reasons import Refusal, Why

# Machines lost within so many seconds are one round, however many: somebody emptied a zone, or a pool.
ROUND_S = 10.0
FREE_ROUNDS = 5
LONGEST_WAIT_S = 60.0
# A machine that goes this soon after it was claimed was new; rounds further apart than this are not a row.
NEW_S = 600.0
# A machine that is ready for this long serves: no workload that has one is in a loop.
SETTLED_S = 60.0


@dataclass(slots=True)
class _Row:
    """Rounds of losses that followed each other: when the current one began, and the last loss."""

    rounds: int
    began_at: float
    last_at: float

    def wait_left_s(self, now: float) -> float:
        if self.rounds <= FREE_ROUNDS:
            return 0.0
        return float(self.last_at + min(2.0 ** (self.rounds - FREE_ROUNDS), LONGEST_WAIT_S) - now)


class Losses:
    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}

    def note(self, workloads: Iterable[str], now: float, is_served: Callable[[str], bool]) -> None:
        """A new machine with pods of these workloads is being taken away.

        `is_served` says whether a workload has a machine that lives; it is asked only before one would have to wait.
        """
        self._rows = {owner: row for owner, row in self._rows.items() if now - row.last_at <= NEW_S}
        for owner in workloads:
            row = self._rows.setdefault(owner, _Row(1, now, now))
            row.last_at = now
            if now - row.began_at < ROUND_S:
                continue
            row.rounds, row.began_at = row.rounds + 1, now
            if row.rounds > FREE_ROUNDS and is_served(owner):
                del self._rows[owner]

    def hold(self, workload: str, now: float) -> Refusal | None:
        """Why nothing is bought for the workload's pods now; None when they may be planned."""
        row = self._rows.get(workload)
        left = row.wait_left_s(now) if row is not None else 0.0
        if row is None or left <= 0:
            return None
        text = (
            f"machines with pods of its workload were deleted by others soon after they came, {row.rounds} times in a "
            f"row; next try in {left:.0f}s"
        )
        return Refusal(Why.LAUNCH_BACK_OFF, text, details={"rounds": row.rounds})


def taken_away(before: NodeClaim | None, after: NodeClaim | None, now: float) -> bool:
    """Whether this change shows a new machine being removed by somebody else."""
    claim = after or before
    if claim is None or before is None or before.is_deleting or (after is not None and not after.is_deleting):
        return False
    created = parse_optional_timestamp(claim.metadata.creation_timestamp) or 0.0
    if now - created >= NEW_S or condition_status(claim.status.conditions, DISRUPTION_REASON) == "True":
        return False
    try:
        end = expires_at(claim)
    except InvalidDuration:
        end = None
    return end is None or now < end


def serves(claim: NodeClaim | None, now: float) -> bool:
    """Whether the machine has been ready for long enough to call it settled."""
    if claim is None or condition_status(claim.status.conditions, "Initialized") != "True":
        return False
    since = condition_since(claim, "Initialized")
    return since is not None and now - since >= SETTLED_S
