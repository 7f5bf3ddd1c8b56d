"""Whether the nodes of a NodePool come up: judged by the last four registrations, for the condition of that name.

Capacity errors say nothing about the pool and are not recorded. One failure does not make a pool unhealthy, one
success does not heal it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from pykarpenter.api.meta import find_condition
from pykarpenter.api.nodepool import NodePool
from pykarpenter.core.conditions import FALSE, TRUE, Finding, false, true, unknown

CONDITION = "NodeRegistrationHealthy"
WINDOW = 4
# Unhealthy when at least half of the window failed.
THRESHOLD = 0.5


@dataclass(frozen=True, slots=True)
class Registration:
    """How one claim of a pool ended: registered, or given up with this reason."""

    succeeded: bool
    reason: str = ""
    message: str = ""


class RegistrationHistory:
    """The last results of each pool, by UID. Lost with the process; the pool's condition then stands in for it."""

    def __init__(self) -> None:
        self._results: dict[str, deque[Registration]] = {}

    def record(self, pool_uid: str, result: Registration) -> None:
        self._results.setdefault(pool_uid, deque(maxlen=WINDOW)).append(result)

    def last(self, pool_uid: str) -> Registration | None:
        results = self._results.get(pool_uid)
        return results[-1] if results else None

    def is_healthy(self, pool_uid: str) -> bool:
        failures = sum(not result.succeeded for result in self._results.get(pool_uid, ()))
        return failures / WINDOW < THRESHOLD

    def seed(self, pool: NodePool) -> None:
        """After a restart: what the condition remembers, unless results were recorded already."""
        if pool.uid in self._results:
            return
        condition = find_condition(pool.status.conditions, CONDITION)
        remembered: list[Registration] = []
        if condition is not None and condition.status == TRUE:
            remembered = [Registration(True)]
        elif condition is not None and condition.status == FALSE:
            remembered = [Registration(False, condition.reason, condition.message)] * 2
        self._results[pool.uid] = deque(remembered, maxlen=WINDOW)

    def forget(self, pool_uid: str) -> None:
        self._results.pop(pool_uid, None)

    def reset(self, pool_uid: str) -> None:
        """What was learned about an older template or class says nothing about the new one."""
        self._results[pool_uid] = deque(maxlen=WINDOW)


def needs_reset(pool: NodePool, class_generation: int) -> bool:
    """Whether the condition is missing or judges an older pool or class."""
    condition = find_condition(pool.status.conditions, CONDITION)
    if condition is None or condition.observed_generation != pool.metadata.generation:
        return True
    return pool.status.node_class_observed_generation != class_generation


def fresh() -> Finding:
    return unknown(CONDITION, "AwaitingReconciliation", "no node has been launched since the pool or its class changed")


def verdict(history: RegistrationHistory, pool_uid: str) -> Finding | None:
    """What the last result changes: a success heals only a healthy window, a failure condemns only an unhealthy one."""
    last = history.last(pool_uid)
    if last is None:
        return None
    healthy = history.is_healthy(pool_uid)
    if last.succeeded and healthy:
        return true(CONDITION)
    if not last.succeeded and not healthy:
        return false(CONDITION, last.reason or "RegistrationFailed", last.message)
    return None
