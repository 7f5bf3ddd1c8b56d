"""S13, its second half: a consolidation leaves every pod it moves placeable.

Judged when the first machine of a decision is deleted, by the rooms that are really there then: a search over requests,
taints and pod slots that does not use the program's own packing. Where pods were bound or nodes changed since the
decision, others may have taken the room, and nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import condition_status, find_condition
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node, Taint
from pykarpenter.api.pods import Pod
from pykarpenter.api.quantity import available
from pykarpenter.core.resources import Resources, fits, pod_requests, subtract
from pykarpenter.core.taints import first_untolerated
from pykarpenter.runtime.controller import AT_WORK
from pykarpenter.sim.api import Middleware, Request
from pykarpenter.sim.checkers.calm import moves
from pykarpenter.sim.checkers.decisions import ENDS_CANDIDATES, DecisionOf
from pykarpenter.sim.checkers.report import Report
from pykarpenter.sim.cluster import EmbeddedCluster
from pykarpenter.sim.journal import Journal, Written

# A decision may rest on what was so this long before it: watches are late, silent for 90 s, and then read anew.
MEMORY_S = 180.0
# Choices tried before the search says nothing.
MOST_STEPS = 20_000


class PlacementChecker(Middleware):
    """Attach to a cluster; put it among the middleware of the program's client."""

    def __init__(self, cluster: EmbeddedCluster, journal: Journal, report: Report, decision_of: DecisionOf) -> None:
        self._cluster = cluster
        self._report = report
        self._decision_of = decision_of
        self._judged: dict[tuple[str, ...], None] = {}
        # By the cluster's clock: when each claim was chosen, and when last a pod was bound or a node closed.
        self._chosen_at: dict[str, float] = {}
        self._tightened_at = -math.inf
        self._bound: dict[str, None] = {}
        self._closed: dict[str, frozenset[str]] = {}
        # Decisions that something could be said about.
        self.judged = 0
        journal.listen(self._written)

    def _written(self, written: Written) -> None:
        kind, now = written.resource.kind, self._cluster.clock.now()
        if kind == "Pod":
            pod = written.entry.decode(Pod)
            if pod.spec.node_name and pod.uid not in self._bound and written.type != "DELETED":
                self._bound[pod.uid] = None
                self._tightened_at = now
        elif kind == "Node":
            node = written.entry.decode(Node)
            closed = _closed(node, is_gone=written.type == "DELETED")
            if closed - self._closed.get(node.name, closed):
                self._tightened_at = now
            self._closed[node.name] = closed
        elif kind == "NodeClaim":
            claim = written.entry.decode(NodeClaim)
            if condition_status(claim.status.conditions, "DisruptionReason") != "True":
                self._chosen_at.pop(claim.name, None)
            else:
                self._chosen_at.setdefault(claim.name, now)

    async def before(self, request: Request) -> None:
        """The first deletion of a consolidation is when its pods begin to move."""
        if request.kind is not kinds.NODE_CLAIM or request.verb != "delete" or AT_WORK.get() != ENDS_CANDIDATES:
            return
        decision, claim = self._decision_of(request.name), self._claim(request.name)
        if decision is None or claim is None or claim.is_deleting:
            return
        chosen = find_condition(claim.status.conditions, "DisruptionReason")
        key = tuple(sorted(decision[0]))
        if chosen is None or chosen.reason != "Underutilized" or key in self._judged:
            return
        self._judged[key] = None
        if self._tightened_at < self._chosen_at.get(claim.name, -math.inf) - MEMORY_S:
            self._judge(key)

    def _judge(self, going: Sequence[str]) -> None:
        self.judged += 1
        claims = [claim for name in going if (claim := self._claim(name)) is not None]
        machines = {claim.status.provider_id for claim in claims}
        nodes: list[Node] = self._all(kinds.NODE)
        leaving = {node.name for node in nodes if node.spec.provider_id in machines}
        pods: list[Pod] = self._all(kinds.POD)
        moved = [pod for pod in pods if pod.spec.node_name in leaving and moves(pod)]
        rooms = [(node, _room(node, pods)) for node in nodes if node.name not in leaving and not _is_useless(node)]
        if _is_placeable(moved, rooms) is False:
            keys = ", ".join(sorted(pod.key for pod in moved)[:5])
            self._report.add(
                "S13",
                self._cluster.clock.now(),
                f"{', '.join(going)} go although {len(moved)} pods have no room elsewhere: {keys}",
            )

    def _claim(self, name: str) -> NodeClaim | None:
        store = self._cluster.store
        entry = store.find(store.resource("karpenter.sh", "nodeclaims"), name, "")
        return entry.decode(NodeClaim) if entry is not None else None

    def _all(self, kind: kinds.Kind[Any]) -> list[Any]:
        table = self._cluster.store.table(kind.group, kind.plural)
        return [entry.decode(kind.type) for _, entry in sorted(table.entries.items())]


def _closed(node: Node, *, is_gone: bool) -> frozenset[str]:
    """Why fewer pods may come; what the program sends away itself is no surprise to it."""
    found = {taint.key for taint in _hard(node)}
    if labels.DISRUPTED_TAINT in found:
        return frozenset()
    return frozenset(found | ({"gone"} if is_gone else set()) | (set() if _is_ready(node) else {"not ready"}))


def _is_ready(node: Node) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)


def _is_useless(node: Node) -> bool:
    return node.is_deleting or not _is_ready(node)


def _room(node: Node, pods: Sequence[Pod]) -> Resources:
    """What is left beside pods that stay: those that end give their room back."""
    room = available(node.status.allocatable)
    for pod in pods:
        if pod.spec.node_name == node.name and not pod.is_deleting and pod.status.phase not in ("Succeeded", "Failed"):
            room = subtract(room, pod_requests(pod))
    return room


def _is_placeable(pods: Sequence[Pod], rooms: Sequence[tuple[Node, Resources]]) -> bool | None:
    """Whether all pods fit at once; None when the search was too long to tell."""
    ordered = sorted(pods, key=lambda pod: sorted(pod_requests(pod).items()), reverse=True)
    left = [room for _, room in rooms]
    steps = 0

    def place(number: int) -> bool | None:
        nonlocal steps
        if number == len(ordered):
            return True
        pod = ordered[number]
        asked = pod_requests(pod)
        tried: list[Resources] = []
        unsure = False
        for index, (node, _) in enumerate(rooms):
            room = left[index]
            if room in tried or not fits(asked, room) or first_untolerated(_hard(node), pod.spec.tolerations):
                continue
            steps += 1
            if steps > MOST_STEPS:
                return None
            tried.append(room)
            left[index] = subtract(room, asked)
            found = place(number + 1)
            left[index] = room
            if found:
                return True
            unsure = unsure or found is None
        return None if unsure else False

    return place(0)


def _hard(node: Node) -> list[Taint]:
    return [taint for taint in node.spec.taints if taint.effect != "PreferNoSchedule"]
