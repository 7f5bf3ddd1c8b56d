"""Whether displaced pods landed where the plan said: on machines that were there or on the command's replacements.

A pod that needed yet another machine was moved for a saving that does not exist. When more than a fifth of a command's
pods did, the pools it took machines from cool down: for a while their pods cost more to move. Decides nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pykarpenter.api import kinds
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.core.disruption.calm import workload_of
from pykarpenter.core.disruption.commands import Command
from pykarpenter.runtime.logs import get_logger

# How long landings are watched, and how long a pool cools down after a miss.
WATCH_S = 900.0
COOL_S = 3600.0
MOST_MISSED = 0.2


@dataclass(slots=True)
class _Watched:
    """A command whose pods are on their way: how many of each workload are still expected."""

    command: Command
    replacements: tuple[str, ...]
    known: frozenset[str]
    started_at: float
    expected: Counter[str]
    landed: int = 0
    missed: dict[str, None] = field(default_factory=dict)


class Outcomes:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._watched: list[_Watched] = []
        # Pools that cool down, with the end of it.
        self._until: dict[str, float] = {}
        self._log = get_logger(controller="disruption")
        ctx.caches.subscribe(kinds.POD, self._pod_changed)

    def watch(self, command: Command, replacements: tuple[str, ...], workloads: Iterable[str]) -> None:
        """Look where the pods of a command that begins now will land."""
        known = frozenset(node.name for node in self._ctx.caches.of(kinds.NODE).values()) - frozenset(command.nodes)
        expected = Counter(workloads)
        if expected:
            self._watched.append(_Watched(command, replacements, known, self._ctx.clock.now(), expected))

    def cooling(self) -> Mapping[str, float]:
        """Pools whose last command missed, with the time until which their pods cost more to move."""
        self._close()
        now = self._ctx.clock.now()
        self._until = {pool: until for pool, until in self._until.items() if until > now}
        return dict(self._until)

    def _pod_changed(self, change: Changed[Pod]) -> None:
        pod = change.new
        if not self._watched or pod is None or change.initial or not pod.spec.node_name:
            return
        if change.old is not None and change.old.spec.node_name:
            return
        workload = workload_of(pod)
        created = parse_optional_timestamp(pod.metadata.creation_timestamp) or 0.0
        for item in self._watched:
            # Timestamps have whole seconds.
            if item.expected[workload] > 0 and created >= item.started_at - 1.0:
                item.expected[workload] -= 1
                if self._is_planned(item, pod.spec.node_name):
                    item.landed += 1
                else:
                    item.missed[pod.key] = None
                return

    def _is_planned(self, item: _Watched, node: str) -> bool:
        if node in item.known:
            return True
        claims = self._ctx.caches.of(kinds.NODE_CLAIM)
        found = (claims.get(name) for name in item.replacements)
        return any(claim is not None and claim.status.node_name == node for claim in found)

    def _close(self) -> None:
        """Judge commands whose pods have all landed, or that were watched for long enough."""
        now = self._ctx.clock.now()
        for item in list(self._watched):
            if +item.expected and now - item.started_at < WATCH_S:
                continue
            self._watched.remove(item)
            total = item.landed + len(item.missed)
            if not total or len(item.missed) <= MOST_MISSED * total:
                continue
            pools = sorted({target.pool for target in item.command.targets})
            self._until.update(dict.fromkeys(pools, now + COOL_S))
            self._log.info(
                "pods did not land where planned, their pools cool down",
                command=item.command.id,
                NodePools=pools,
                missed=len(item.missed),
                of=total,
            )
