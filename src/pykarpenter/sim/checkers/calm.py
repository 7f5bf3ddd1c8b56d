"""No pod moves twice for one saving: a pod or its successor stays until its move is paid back, or the gain covers both.

A successor is the next pod that the same owner creates. What a consolidation gains is judged by the catalogue's prices
of the machines that go and come, never by what the program believes; a move is paid back once its gain has covered the
price of the pods it moved, each worth so many $/h over a day.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from pykarpenter.api import kinds
from pykarpenter.api.meta import find_condition
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.pods import Pod
from pykarpenter.sim.api import Middleware, Request
from pykarpenter.sim.checkers.decisions import DecisionOf, list_price
from pykarpenter.sim.checkers.report import Report
from pykarpenter.sim.cloud.instances import TAG_CLAIM_UID, Instance
from pykarpenter.sim.cluster import EmbeddedCluster
from pykarpenter.sim.journal import Journal, Written

INVARIANT = "CALM"
DAY_H = 24.0
# Prices that were wrong this long ago may still be behind a decision.
SPOILT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Move:
    """Pods moved by one consolidation, what it gains in $/h, and when that has paid for them (epoch seconds)."""

    at: float
    pods: int
    gain: float
    paid_back_at: float


@dataclass(slots=True)
class MoveLedger:
    """Which pod stands for which move; `price` is what a moved pod is worth in $/h over a day."""

    price: float
    moves: list[Move] = field(default_factory=list)
    _heirs: dict[str, Move] = field(default_factory=dict)
    _awaited: defaultdict[str, deque[Move]] = field(default_factory=lambda: defaultdict(deque))

    def created(self, uid: str, owner: str) -> None:
        """The next pod of an owner takes the place of the one that was moved first."""
        if owner and self._awaited.get(owner):
            self._heirs[uid] = self._awaited[owner].popleft()

    def moved(self, now: float, pods: Iterable[tuple[str, str]], gain: float) -> str:
        """Note a move of pods (UID, owner) for a gain in $/h; what is wrong with it, if anything."""
        listed = list(pods)
        again = [uid for uid, _ in listed if uid in self._heirs and now < self._heirs[uid].paid_back_at]
        needed = self.price * (len(listed) + len(again))
        hours = len(listed) * self.price * DAY_H / gain if gain > 0 else math.inf
        move = Move(now, len(listed), gain, now + hours * 3600.0)
        self.moves.append(move)
        for uid, owner in listed:
            self._heirs.pop(uid, None)
            if owner:
                self._awaited[owner].append(move)
        if not again or gain >= needed - 1e-9:
            return ""
        return (
            f"{len(again)} of {len(listed)} pods are moved before their last move is paid back, "
            f"for ${gain:.4f}/h where ${needed:.4f}/h would cover both"
        )


class MoveChecker(Middleware):
    """Attach to a cluster; put it among the middleware of the program's client."""

    def __init__(
        self, cluster: EmbeddedCluster, journal: Journal, report: Report, price: float, decision_of: DecisionOf
    ) -> None:
        self._cluster = cluster
        self._report = report
        self._decision_of = decision_of
        self._ledger = MoveLedger(price)
        self._judged: dict[tuple[str, ...], None] = {}
        self._spoilt_at = -math.inf
        journal.listen(self._written)

    @property
    def moves(self) -> list[Move]:
        """Every consolidation judged so far."""
        return self._ledger.moves

    def _written(self, written: Written) -> None:
        if self._cluster.cloud.market.bad_data is not None:
            self._spoilt_at = self._cluster.clock.now()
        if written.resource.kind == "Pod" and written.type == "ADDED":
            pod = written.entry.decode(Pod)
            self._ledger.created(pod.uid, _owner(pod))

    async def before(self, request: Request) -> None:
        """The first deletion of a consolidation is when its pods begin to move."""
        if request.kind is not kinds.NODE_CLAIM or request.verb != "delete":
            return
        claim = self._claim(request.name)
        if claim is None or claim.is_deleting:
            return
        chosen = find_condition(claim.status.conditions, "DisruptionReason")
        decision = self._decision_of(claim.name)
        if chosen is None or chosen.reason != "Underutilized" or decision is None:
            return
        going, coming = (self._instances(names) for names in decision)
        key = tuple(sorted(decision[0]))
        gain = self._gain(going, coming)
        if key in self._judged or gain is None:
            return
        self._judged[key] = None
        wrong = self._ledger.moved(self._cluster.clock.now(), self._pods(going), gain)
        if wrong:
            self._report.add(INVARIANT, self._cluster.clock.now(), f"{', '.join(key)}: {wrong}")

    def _gain(self, going: list[Instance], coming: list[Instance]) -> float | None:
        """None where nothing can be said: prices are unknown, move by themselves, or were wrong lately."""
        if self._cluster.clock.now() - self._spoilt_at < SPOILT_S:
            return None
        prices = [list_price(self._cluster, instance) for instance in (*going, *coming)]
        moving = self._cluster.options.price_period_s is not None
        known = [price for price in prices if price is not None]
        if len(known) < len(prices) or (moving and any(i.offering.capacity_type == "spot" for i in (*going, *coming))):
            return None
        return math.fsum(known[: len(going)]) - math.fsum(known[len(going) :])

    def _instances(self, names: Iterable[str]) -> list[Instance]:
        uids = {claim.uid for name in names if (claim := self._claim(name)) is not None}
        return [i for i in self._cluster.cloud.live() if i.tags.get(TAG_CLAIM_UID) in uids]

    def _pods(self, going: list[Instance]) -> list[tuple[str, str]]:
        nodes = {instance.node_name for instance in going}
        table = self._cluster.store.table("", "pods")
        pods = [entry.decode(Pod) for _, entry in sorted(table.entries.items())]
        return [(pod.uid, _owner(pod)) for pod in pods if pod.spec.node_name in nodes and moves(pod)]

    def _claim(self, name: str) -> NodeClaim | None:
        store = self._cluster.store
        entry = store.find(store.resource("karpenter.sh", "nodeclaims"), name, "")
        return entry.decode(NodeClaim) if entry is not None else None


def _owner(pod: Pod) -> str:
    return next((owner.uid for owner in pod.metadata.owner_references if owner.controller), "")


def moves(pod: Pod) -> bool:
    """Whether the pod must go elsewhere when its machine ends."""
    if pod.is_deleting or pod.status.phase in ("Succeeded", "Failed"):
        return False
    return not {owner.kind for owner in pod.metadata.owner_references} & {"DaemonSet", "Node"}
