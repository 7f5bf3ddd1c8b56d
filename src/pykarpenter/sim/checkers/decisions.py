"""The safety invariants about what is decided and said: S8, S12, S13 and S14.

Which machines a decision takes and which replace them is asked of the program; whether that was right is judged by
the store, the cloud and its catalogue alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import condition_status, find_condition
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.runtime.controller import AT_WORK
from pykarpenter.sim.api import Middleware, Request
from pykarpenter.sim.checkers.report import Report
from pykarpenter.sim.cloud.instances import TAG_CLAIM, TAG_CLAIM_UID, Instance
from pykarpenter.sim.cloud.misbehaviour import CANARY
from pykarpenter.sim.cluster import EmbeddedCluster
from pykarpenter.sim.journal import Journal, Written

# Names of NodeClaims: those that go, and those that were launched to replace them.
Decision = tuple[Sequence[str], Sequence[str]]
DecisionOf = Callable[[str], Decision | None]

# The controller that ends the candidates of decisions.
ENDS_CANDIDATES = "disruption.queue"
_GRACEFUL = ("Drifted", "Underutilized")


class DecisionCheckers(Middleware):
    """Attach to a cluster; put it among the middleware of the program's client."""

    def __init__(
        self, cluster: EmbeddedCluster, journal: Journal, report: Report, decision_of: DecisionOf = lambda _: None
    ) -> None:
        self._cluster = cluster
        self._report = report
        self._decision_of = decision_of
        journal.listen(self._written)

    async def before(self, request: Request) -> None:
        """Requests of the program under test; nothing is refused here, only judged."""
        if request.kind is not kinds.NODE_CLAIM or request.verb != "delete":
            return
        claim = self._claim(request.name)
        if claim is None or claim.is_deleting:
            return
        chosen = find_condition(claim.status.conditions, "DisruptionReason")
        decision = self._decision_of(claim.name) if AT_WORK.get() == ENDS_CANDIDATES else None
        if decision is None:
            # Not the end of a decision, even where one stands: whoever gives the claim up must know it to be lost.
            self._s12_unknown_is_not_absent(claim)
        elif chosen is not None and chosen.status == "True" and chosen.reason in _GRACEFUL:
            self._s8_replacements_first(claim, decision)
            if chosen.reason == "Underutilized":
                self._s13_cheaper(decision)

    def _written(self, written: Written) -> None:
        if written.type != "DELETED" and written.resource.kind in ("Event", "NodeClaim", "NodePool"):
            self._s14_no_secrets(written)

    def _s8_replacements_first(self, claim: NodeClaim, decision: Decision) -> None:
        for name in decision[1]:
            found = self._claim(name)
            if found is None or condition_status(found.status.conditions, "Initialized") != "True":
                self._broken("S8", f"NodeClaim {claim.name} is deleted before its replacement {name} is initialized")

    def _s12_unknown_is_not_absent(self, claim: NodeClaim) -> None:
        """A machine in service that nobody chose to end, and that has not ended, was taken for absent."""
        if condition_status(claim.status.conditions, "Registered") != "True" or self._may_go(claim):
            return
        instance = self._instance(claim)
        if instance is not None:
            self._broken("S12", f"NodeClaim {claim.name} is given up although instance {instance.id} runs")

    def _may_go(self, claim: NodeClaim) -> bool:
        pool = self._find(kinds.NODE_POOL, claim.pool_name)
        if pool is None or pool.is_deleting:
            return True
        instance = self._instance(claim)
        return instance is not None and self._cluster.cloud.is_interrupted(instance.id)

    def _s13_cheaper(self, decision: Decision) -> None:
        """By the catalogue's prices: what the cloud answered meanwhile may have been wrong (F44)."""
        going, coming = (self._prices(names) for names in decision)
        if len(going) < len(decision[0]):
            # A machine that was lost so long ago that the cloud has forgotten it.
            return
        if coming and None not in (*going, *coming) and sum(_known(coming)) >= sum(_known(going)):
            self._broken("S13", f"{len(going)} machine(s) at {going} are replaced by {coming}")

    def _s14_no_secrets(self, written: Written) -> None:
        if CANARY in str(written.entry.obj):
            self._broken("S14", f"{written.resource.kind} {written.key} shows a secret")

    # Reading the world.

    def _prices(self, names: Sequence[str]) -> list[float | None]:
        """Of the machines that were launched for these claims, whatever became of them meanwhile."""
        found = [i for i in self._cluster.cloud.instances.values() if i.tags.get(TAG_CLAIM) in names]
        return [list_price(self._cluster, instance) for instance in found]

    def _instance(self, claim: NodeClaim) -> Instance | None:
        live = self._cluster.cloud.live()
        return next((i for i in live if i.tags.get(TAG_CLAIM_UID) == claim.uid), None)

    def _claim(self, name: str) -> NodeClaim | None:
        found: NodeClaim | None = self._find(kinds.NODE_CLAIM, name)
        return found

    def _find(self, kind: kinds.Kind[Any], name: str) -> Any:
        store = self._cluster.store
        entry = store.find(store.resource(kind.group, kind.plural), name, "")
        return entry.decode(kind.type) if entry is not None else None

    def _broken(self, invariant: str, message: str) -> None:
        self._report.add(invariant, self._cluster.clock.now(), message)


def _known(prices: Sequence[float | None]) -> list[float]:
    return [price for price in prices if price is not None]


def list_price(cluster: EmbeddedCluster, instance: Instance) -> float | None:
    """$/h by the catalogue, whatever the market says at present."""
    if instance.offering.capacity_type == labels.RESERVED:
        return 0.0
    for item in cluster.cloud.market.catalog.types:
        if item.name == instance.item.name:
            wanted = (instance.offering.zone, instance.offering.capacity_type)
            return next((o.price for o in item.offerings if (o.zone, o.capacity_type) == wanted), None)
    return None
