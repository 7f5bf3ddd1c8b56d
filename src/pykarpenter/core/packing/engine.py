"""One provisioning decision: a snapshot in, a LaunchPlan out.

The engine keeps tables between decisions (catalogues by identity, node rows by identity) and nothing else; with an
empty engine the answer is the same, only later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pykarpenter.api.pods import Pod
from pykarpenter.core.interning import ResourceColumns
from pykarpenter.core.packing.attachments import Attachments
from pykarpenter.core.packing.care import STRICT, Care
from pykarpenter.core.packing.classes import Batch, ClassBuilder, PodClass
from pykarpenter.core.packing.daemons import DaemonShape, NodeDaemons, daemon_shapes
from pykarpenter.core.packing.devices import DevicePlaces
from pykarpenter.core.packing.domains import DomainPlacer
from pykarpenter.core.packing.eligibility import is_provisionable, leaving_pods
from pykarpenter.core.packing.emission import MIN_VALUES_UNMET, Emission, pod_keys
from pykarpenter.core.packing.explain import Explainer
from pykarpenter.core.packing.kernel import Kernel
from pykarpenter.core.packing.ladders import Ladders
from pykarpenter.core.packing.lower_bound import lower_bound
from pykarpenter.core.packing.node_table import NodeInterner, NodeRow, NodeTable, RequestMemo, keys_of, node_row
from pykarpenter.core.packing.savings import cheaper_claims
from pykarpenter.core.packing.shapes import selector_keys, wishes_of
from pykarpenter.core.packing.supply import SupplyCache
from pykarpenter.core.packing.templates import idle_pools
from pykarpenter.core.packing.topology import Namespaces, Topology
from pykarpenter.core.packing_settings import PackingSettings, ShouldStop, never_stop
from pykarpenter.core.plans import ExistingPlacement, LaunchPlan, PlannedClaim
from pykarpenter.core.reasons import Refusal, Why
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView
from pykarpenter.core.topology.default_spread import DefaultSpread

# New label and taint sets before it is looked for those that no machine has any more.
LEAST_INTERNED = 256
# Looks at the machines after which requests of pods that none of them asked for are let go.
LOOKS_KEPT = 256


# Batches up to this size that leave pods out because of the order in which others were placed are looked at again:
# pod by pod, and so many times with the pods first that had no place before.
SECOND_LOOK = 400
LOOKS = 3

NO_PLACE = "no machine, existing or new, can take the pod"


@dataclass(frozen=True, slots=True)
class ReservationOptions:
    """How reserved capacity is treated: strict or fallback, and units credited to reservations."""

    mode: str = STRICT
    credits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Way:
    """How pods are gone through: `plain` takes them one by one and keeps machines open, the urgent ones come first.

    Going pod by pod is slower and no cheaper, but at times it finds one more place.
    """

    plain: bool = False
    urgency: Mapping[str, int] = field(default_factory=dict)


USUAL = Way()


class PackingEngine:
    """Decides; keeps tables warm between decisions."""

    def __init__(self) -> None:
        self._columns = ResourceColumns()
        self._memo = RequestMemo()
        self.supplies = SupplyCache(self._columns)
        self._rows: dict[int, NodeRow] = {}
        self.interner = NodeInterner()
        self._most_interned = LEAST_INTERNED
        self._looks = 0
        self._daemons: tuple[tuple[object, ...], list[DaemonShape], NodeDaemons] | None = None
        self._nodes: tuple[tuple[object, ...], NodeTable] | None = None

    def pack(
        self, snapshot: ClusterSnapshot, settings: PackingSettings, should_stop: ShouldStop = never_stop
    ) -> LaunchPlan:
        """The machines to launch, the pods that fit on what exists, and why the others have no place."""
        return Decision(self, snapshot, settings, should_stop).plan()

    @property
    def columns(self) -> ResourceColumns:
        return self._columns

    @property
    def memo(self) -> RequestMemo:
        return self._memo

    def rows(self, views: tuple[NodeView, ...]) -> list[NodeRow]:
        """Rows of the machines, made anew only for views not seen in the last decision."""
        self._looks += 1
        if self._looks % LOOKS_KEPT == 0:
            self._memo.turn()
        is_first = not self._rows
        if is_first or len(self.interner) > self._most_interned:
            self._let_go_of_labels()
        fresh: dict[int, NodeRow] = {}
        for view in views:
            row = self._rows.get(id(view))
            if row is None or row.view is not view:
                row = node_row(view, self._memo, self.interner)
            fresh[id(view)] = row
        self._rows = fresh
        if is_first:
            self._most_interned = LEAST_INTERNED + 2 * len(self.interner)
        return list(fresh.values())

    def _let_go_of_labels(self) -> None:
        """Every Job brings labels of its own: those of pods that are gone cost memory, and time in each decision."""
        self.interner, rows = self.interner.compacted(self._rows.values())
        self._rows, self._nodes = {id(row.view): row for row in rows}, None
        # Twice what is in use, so that this is done the less often the more there is to look at.
        self._most_interned = LEAST_INTERNED + 2 * len(self.interner)

    def daemons(self, snapshot: ClusterSnapshot, settings: PackingSettings) -> tuple[list[DaemonShape], NodeDaemons]:
        """The DaemonSets to reckon with; the same objects as long as none of them changed."""
        key = (
            settings.ignore_dra_requests,
            settings.label_rules,
            *map(id, snapshot.daemon_sets),
            *map(id, snapshot.daemon_pods.values()),
        )
        if self._daemons is None or self._daemons[0] != key:
            shapes = daemon_shapes(snapshot, settings)
            # The objects are kept with the key, so that their identities stay taken.
            held = (*snapshot.daemon_sets, *snapshot.daemon_pods.values())
            self._daemons = (key, shapes, NodeDaemons(shapes, settings.label_rules, held))
        return self._daemons[1], self._daemons[2]

    def nodes(self, rows: list[NodeRow], daemons: NodeDaemons, in_batch: frozenset[str]) -> NodeTable:
        """The machines as a table; what was put together for the last decision is used again when nothing changed."""
        key = (daemons.identity, self._columns.width, *map(id, rows))
        if self._nodes is None or self._nodes[0] != key or in_batch:
            table = NodeTable(rows, daemons, self._columns, self.interner, in_batch)
            key = (daemons.identity, self._columns.width, *map(id, rows))
            if in_batch:
                return table
            self._nodes = (key, table)
        return self._nodes[1].fresh()

    def node_table(self, snapshot: ClusterSnapshot, settings: PackingSettings, in_batch: frozenset[str]) -> NodeTable:
        """The machines of a snapshot; pods in the batch do not count where they are."""
        rows = self.rows(snapshot.nodes)
        shapes, daemons = self.daemons(snapshot, settings)
        for shape in shapes:
            self._columns.add(shape.requests)
        return self.nodes(rows, daemons, in_batch)


class Decision:
    """The working state of one call."""

    def __init__(
        self,
        engine: PackingEngine,
        snapshot: ClusterSnapshot,
        settings: PackingSettings,
        should_stop: ShouldStop,
        reservations: ReservationOptions | None = None,
        explain: bool = True,
        modest: bool = True,
    ) -> None:
        self._engine = engine
        self._snapshot = snapshot
        self._settings = settings
        self._should_stop = should_stop
        self._reservations = reservations or ReservationOptions()
        self._explain = explain
        self._modest = modest
        # Whether pods were left out that another order of placing might have found a place for.
        self._order_matters = False

    def plan(self) -> LaunchPlan:
        leaving = leaving_pods(self._snapshot)
        pending = [pod for pod in self._snapshot.pods if is_provisionable(pod)]
        plan = self.plan_for(pending, leaving)
        if not _stopped_by_limits(plan):
            return plan
        # Where limits bind, large machines may hold more: their own overhead counts against the limit once.
        bold = Decision(
            self._engine, self._snapshot, self._settings, self._should_stop, self._reservations, modest=False
        )
        other = bold.plan_for(pending, leaving)
        return other if len(_placed(other)) > len(_placed(plan)) else plan

    def plan_for(self, pending: list[Pod], leaving: list[Pod]) -> LaunchPlan:
        """Place these pods; pending ones are validated, leaving ones were accepted once."""
        plan = self.plan_on(self._nodes(leaving), pending, leaving)
        if len(pending) + len(leaving) > SECOND_LOOK or not self._order_matters:
            return plan
        way = self._better_way(plan, pending, leaving)
        return plan if way is None else self.plan_on(self._nodes(leaving), pending, leaving, way=way)

    def _better_way(self, plan: LaunchPlan, pending: list[Pod], leaving: list[Pod]) -> Way | None:
        """A way of going through the pods that serves them better; None when none was found."""
        settings = replace(self._settings, effort="off")
        quick = Decision(
            self._engine, self._snapshot, settings, self._should_stop, self._reservations, False, self._modest
        )
        plain = Way(plain=True)
        one_by_one = quick.plan_on(self._nodes(leaving), pending, leaving, way=plain)
        # A pod that has a place when all come in their order does not lose it to others that come later.
        expected = _placed(one_by_one)

        def worth(other: LaunchPlan) -> tuple[int, int]:
            return len(_placed(other) & expected), len(_placed(other))

        most, best = worth(plan), None
        if worth(one_by_one) > most:
            most, best = worth(one_by_one), plain
        other, urgency = plan, Counter[str]()
        for _ in range(LOOKS):
            left = other.unschedulable.keys()
            urgency.update(left)
            way = Way(urgency=dict(urgency))
            other = quick.plan_on(self._nodes(leaving), pending, leaving, way=way)
            if worth(other) > most:
                most, best = worth(other), way
            if not other.unschedulable or other.unschedulable.keys() == left or self._should_stop():
                break
        return best

    def _nodes(self, leaving: list[Pod]) -> NodeTable:
        return self._engine.node_table(self._snapshot, self._settings, keys_of(leaving))

    def plan_on(
        self,
        nodes: NodeTable,
        pending: list[Pod],
        leaving: list[Pod],
        moving: Sequence[Pod] = (),
        way: Way = USUAL,
    ) -> LaunchPlan:
        """Place pods on these machines and new ones; `moving` pods could as well stay where they are."""
        kernel, batch = self._prepared(nodes, pending, leaving, moving, way)
        timed_out = self._run(kernel, batch.classes)
        left = [cls for cls in batch.classes if cls.left]
        self._order_matters = not timed_out and any(self._worth_retrying(kernel, cls) for cls in left)
        return self._result(kernel, batch, timed_out)

    def prepare(self, nodes: NodeTable, moving: Sequence[Pod]) -> tuple[Kernel, Batch]:
        """The tables and classes for pods that run, with nothing placed: what planners of whole fleets look at."""
        return self._prepared(nodes, [], [], moving)

    def _prepared(
        self, nodes: NodeTable, pending: list[Pod], leaving: list[Pod], moving: Sequence[Pod], way: Way = USUAL
    ) -> tuple[Kernel, Batch]:
        batch = self._batch(nodes, pending, leaving, moving, way)
        shapes, _ = self._engine.daemons(self._snapshot, self._settings)
        credited = frozenset(self._reservations.credits)
        self._supply = self._engine.supplies.supply(self._snapshot, self._settings, shapes, credited, nodes)
        return self._kernel(batch, nodes, keys_of([*leaving, *moving]), way.plain), batch

    def _batch(
        self, nodes: NodeTable, pending: list[Pod], leaving: list[Pod], moving: Sequence[Pod], way: Way
    ) -> Batch:
        keys: set[str] = set()
        for _, pod in nodes.guarded:
            keys |= selector_keys(wishes_of(pod.spec))
        constraints = self._settings.default_spread
        default = DefaultSpread(constraints, self._snapshot.selectors) if constraints else None
        builder = ClassBuilder(self._snapshot, self._settings, self._engine.memo, default)
        batch = builder.build([*pending, *self._snapshot.buffer_pods], leaving, keys, moving, way.plain, way.urgency)
        for cls in batch.classes:
            self._engine.columns.add(cls.requests)
        return batch

    def _kernel(self, batch: Batch, nodes: NodeTable, in_batch: frozenset[str], plain: bool) -> Kernel:
        settings, columns, supply = self._settings, self._engine.columns, self._supply
        for cls in batch.classes:
            cls.vector = columns.vector(cls.requests)
        nodes.widen()
        care = Care(
            supply.kinds,
            [template.table for template in supply.templates],
            settings.min_values_policy == "BestEffort",
            self._reservations.mode,
            self._reservations.credits,
            settings.reserved_capacity,
        )
        attachments = Attachments(nodes, self._snapshot.volumes, self._snapshot.instance_types)
        topology = Topology(nodes, supply.templates, supply.sets, self._namespaces(batch), settings.label_rules)
        tolerate = supply.prefers_no_schedule or nodes.has_prefer_no_schedule()
        Ladders(topology, supply.sets, settings, tolerate).prepare(batch.classes, in_batch)
        devices = DevicePlaces(supply.kinds, nodes, self._snapshot, settings, in_batch)
        kernel = Kernel(columns, nodes, supply.templates, supply.kinds, topology, care, attachments, devices, plain)
        kernel.modest, kernel.cost_first = self._modest and not plain, settings.cross_pool_cost
        return kernel

    def _namespaces(self, batch: Batch) -> Namespaces:
        known: dict[str, Mapping[str, str]] = {}
        seen = [*(cls.namespace for cls in batch.classes), *self._engine.interner.namespaces]
        for namespace in dict.fromkeys(seen):
            known[namespace] = {"kubernetes.io/metadata.name": namespace}
        for name, item in self._snapshot.namespaces.items():
            known[name] = {"kubernetes.io/metadata.name": name, **item.metadata.labels}
        return Namespaces(known)

    def _run(self, kernel: Kernel, classes: list[PodClass]) -> bool:
        """Try every class; try again those left as long as something moved. True when time ran out."""
        version = 0
        tried: dict[int, int] = {}
        waiting = list(classes)
        while waiting:
            moved = False
            for cls in waiting:
                if tried.get(cls.index) == version:
                    continue
                if self._should_stop():
                    return True
                placed = self._place(kernel, cls)
                version += bool(placed)
                moved |= bool(placed)
                tried[cls.index] = version
            waiting = [cls for cls in waiting if cls.left and self._worth_retrying(kernel, cls)]
            if not moved:
                break
        return False

    def _place(self, kernel: Kernel, cls: PodClass) -> int:
        kernel.deferred = ""
        cls.deferred = ""
        placed = 0
        for rung in cls.rungs:
            if rung.zonal:
                placed += DomainPlacer(kernel, cls, rung).place()
            else:
                placed += kernel.fill(cls, rung)
            if not cls.left:
                break
            if kernel.deferred:
                cls.deferred = kernel.deferred
                break
        return placed

    def _worth_retrying(self, kernel: Kernel, cls: PodClass) -> bool:
        """Whether later placements could help: through topology, or through room on machines opened for others."""
        rung = cls.rungs[-1]
        if rung.zonal or rung.hosts or kernel.claims.count == 0:
            return True
        return any(
            kind is not None and bool((kind.usable >= cls.vector).all(axis=1).any())
            for rung in cls.rungs
            for guest in rung.guests
            for root in kernel.roots
            if root.template.untolerated(rung.tolerations) is None
            for kind in [kernel.with_guest(root, cls, guest)]
        )

    # The answer.

    def _result(self, kernel: Kernel, batch: Batch, timed_out: bool) -> LaunchPlan:
        emission = Emission(self._settings, kernel.columns, frozenset(self._reservations.credits))
        table = kernel.claims
        if not timed_out:
            table = cheaper_claims(kernel, self._settings.effort, self._should_stop) or table
        claims, dropped = emission.emit(table, kernel.kinds.kinds)
        unschedulable = dict(batch.refused)
        given_up: Counter[int] = Counter()
        for position in dropped:
            refusal = Refusal(Why.MIN_VALUES, MIN_VALUES_UNMET)
            unschedulable.update((key, refusal) for key in pod_keys(table, position))
            for share in table.shares[position]:
                given_up[share.members.index] += share.count
        deferred: dict[str, Refusal] = {}
        idle = idle_pools(self._snapshot, self._settings)
        explainer = Explainer(kernel, self._settings, self._supply.empty_pools, idle)
        for cls in batch.classes:
            if not cls.left:
                continue
            keys = [pod.key for pod in cls.pods[cls.placed :]]
            if cls.deferred:
                deferred.update(dict.fromkeys(keys, Refusal(Why.RESERVATION_DEFERRED, cls.deferred)))
            elif timed_out:
                message = "the decision ran out of time before this pod had a place; it is tried again"
                unschedulable.update(dict.fromkeys(keys, Refusal(Why.DEADLINE, message)))
            else:
                refusal = explainer.refusal(cls) if self._explain else Refusal(Why.RESOURCES, NO_PLACE)
                unschedulable.update(dict.fromkeys(keys, refusal))
        return LaunchPlan(
            claims=tuple(claims),
            existing=self._existing(kernel),
            unschedulable=unschedulable,
            deferred=deferred,
            ignored=batch.ignored,
            empty_pools=self._supply.empty_pools,
            price_per_hour=_total_price(claims),
            lower_bound=lower_bound(kernel, batch.classes, given_up) if self._settings.effort != "off" else None,
        )

    @staticmethod
    def _existing(kernel: Kernel) -> tuple[ExistingPlacement, ...]:
        return tuple(
            ExistingPlacement(
                kernel.nodes.views[index].name,
                tuple(pod.key for s in shares for pod in s.members.pods[s.start : s.start + s.count]),
            )
            for index, shares in sorted(kernel.node_shares.items())
        )


def _stopped_by_limits(plan: LaunchPlan) -> bool:
    return any(pool.why is Why.LIMITS for refusal in plan.unschedulable.values() for pool in refusal.pools)


def _placed(plan: LaunchPlan) -> frozenset[str]:
    return frozenset(key for part in (plan.claims, plan.existing) for item in part for key in item.pods)


def _total_price(claims: list[PlannedClaim]) -> float | None:
    prices = [claim.choice.price for claim in claims]
    return None if any(price is None for price in prices) else float(sum(price or 0.0 for price in prices))


def pack(snapshot: ClusterSnapshot, settings: PackingSettings, should_stop: ShouldStop = never_stop) -> LaunchPlan:
    """Decide once, without keeping anything."""
    return PackingEngine().pack(snapshot, settings, should_stop)
