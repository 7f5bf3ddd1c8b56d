"""Which machines may be disturbed at all: the gates every method shares, in order, and what a candidate is worth.

Decides from a snapshot. A machine that is refused carries the first gate it failed; nothing is refused silently
except machines of commands that already run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pykarpenter.api import labels
from pykarpenter.api.duration import InvalidDuration, parse_duration
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.pods import Pod
from pykarpenter.api.workloads import PodDisruptionBudget
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.commands import DisruptionClass, Target
from pykarpenter.core.disruption.costs import eviction_cost, lifetime_remaining, node_price, reschedule_cost
from pykarpenter.core.disruption.prices import PriceBook
from pykarpenter.core.disruption.settings import DisruptionSettings, Memory
from pykarpenter.core.disruption.windows import window_end
from pykarpenter.core.draining import blocking_budgets, do_not_disrupt, is_active, is_reschedulable
from pykarpenter.core.instance_types import InstanceType, by_name
from pykarpenter.core.reasons import Why
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A machine that passed the gates of a class."""

    view: NodeView
    pool: NodePool
    instance_type: InstanceType | None
    price: float | None
    pods: tuple[Pod, ...]
    reschedule_cost: float
    lifetime_cost: float
    # Protection that the class passes over: shown, and in repair decided on later.
    waived: tuple[Blocker, ...] = ()

    @property
    def name(self) -> str:
        return self.view.name

    @property
    def capacity_type(self) -> str:
        return self.view.labels.get(labels.CAPACITY_TYPE, "")

    @property
    def is_empty(self) -> bool:
        return self.reschedule_cost <= 1.0

    @property
    def savings_ratio(self) -> float:
        """$/hour for each unit of disturbance; the order of all consolidation."""
        return (self.price or 0.0) / self.reschedule_cost

    def target(self, drain_bound_s: float | None = None) -> Target:
        claim, node = self.view.claim, self.view.node
        assert claim is not None and node is not None
        return Target(
            node=self.name,
            node_uid=node.uid,
            claim=claim.name,
            claim_uid=claim.uid,
            provider_id=self.view.provider_id,
            pool=self.pool.name,
            pods={pod.key: pod.uid for pod in self.pods},
            capacity_type=self.capacity_type,
            zone=self.view.labels.get(labels.ZONE, ""),
            instance_type=self.view.labels.get(labels.INSTANCE_TYPE, ""),
            price=self.price,
            reschedule_cost=self.reschedule_cost,
            consolidation_policy=self.pool.spec.disruption.consolidation_policy,
            termination_mode=termination_mode(claim.spec.termination_grace_period),
            image_id=claim.status.image_id,
            waives_protection=bool(self.waived),
            drain_bound_s=drain_bound_s,
            static=self.pool.is_static,
        )


def termination_mode(grace_period: str | None) -> str:
    """`graceful` without a grace period, `forceful` for none left at all, else `eventual`."""
    if grace_period is None:
        return "graceful"
    try:
        return "eventual" if parse_duration(grace_period) > 0 else "forceful"
    except InvalidDuration:
        return "graceful"


class World:
    """A snapshot as disruption reads it: indexes and derived values, computed once and shared by all methods."""

    def __init__(self, snapshot: ClusterSnapshot, settings: DisruptionSettings, memory: Memory | None = None) -> None:
        self.snapshot = snapshot
        self.settings = settings
        self.memory = memory or Memory()
        self.now = snapshot.now
        self.prices = PriceBook(settings.label_rules)
        self.pools: dict[str, NodePool] = {pool.name: pool for pool in snapshot.node_pools}
        self._types: dict[str, dict[str, InstanceType]] = {}
        self._pdbs: dict[str, list[PodDisruptionBudget]] = defaultdict(list)
        for pdb in snapshot.pdbs:
            self._pdbs[pdb.namespace].append(pdb)
        self._judged: dict[tuple[str, DisruptionClass], Candidate | Blocker | None] = {}
        self._costs: dict[str, tuple[tuple[Pod, ...], float]] = {}
        self._protections: dict[str, tuple[Blocker, ...]] = {}

    @cached_property
    def nodes(self) -> tuple[NodeView, ...]:
        return tuple(sorted(self.snapshot.nodes, key=lambda view: view.name))

    @cached_property
    def by_name(self) -> Mapping[str, NodeView]:
        return {view.name: view for view in self.snapshot.nodes}

    @cached_property
    def leaving(self) -> frozenset[str]:
        """Pods of machines that are already going; they need room too and block when they find none."""
        return frozenset(
            pod.key for view in self.nodes if view.marked_for_deletion for pod in (*view.pods, *view.returning)
        )

    @cached_property
    def settling(self) -> frozenset[str]:
        """Machines still inside their own pool's consolidateAfter: they are not filled up by consolidation."""
        pools = self.pools
        return frozenset(v.name for v in self.nodes if window_end(v, pools.get(v.pool_name)) > self.now)

    @cached_property
    def by_pool(self) -> Mapping[str, tuple[NodeView, ...]]:
        grouped: dict[str, list[NodeView]] = defaultdict(list)
        for view in self.nodes:
            if view.pool_name:
                grouped[view.pool_name].append(view)
        return {pool: tuple(views) for pool, views in grouped.items()}

    def pdbs(self, namespace: str) -> Sequence[PodDisruptionBudget]:
        return self._pdbs.get(namespace, ())

    def types(self, pool: str) -> Mapping[str, InstanceType]:
        if pool not in self._types:
            self._types[pool] = by_name(self.snapshot.instance_types.get(pool, ()))
        return self._types[pool]

    def reschedulable(self, view: NodeView) -> tuple[tuple[Pod, ...], float]:
        """The pods that need room elsewhere and the cost of moving them."""
        found = self._costs.get(view.name)
        if found is None:
            pods = tuple(pod for pod in (*view.pods, *view.returning) if is_reschedulable(pod))
            found = self._costs[view.name] = (pods, reschedule_cost(pods, self.settings.pod_deletion_cost))
        return found

    def price(self, view: NodeView) -> float | None:
        kind = self.types(view.pool_name).get(view.labels.get(labels.INSTANCE_TYPE, ""))
        return node_price(kind, view.labels)

    def is_managed(self, pool: NodePool) -> bool:
        kinds = self.settings.managed_class_kinds
        reference = pool.spec.template.spec.node_class_ref
        return kinds is None or (reference.group, reference.kind) in kinds

    def candidates(self, disruption_class: DisruptionClass) -> Iterator[tuple[NodeView, Candidate | Blocker]]:
        """Every managed machine as a candidate or with what stops it, by name; machines in flight are left out."""
        for view in self.nodes:
            judged = self.judge(view, disruption_class)
            if judged is not None:
                yield view, judged

    def judge(self, view: NodeView, disruption_class: DisruptionClass) -> Candidate | Blocker | None:
        """None for a machine that a running command holds, or that is not ours."""
        key = (view.name, disruption_class)
        if key not in self._judged:
            self._judged[key] = self._judge(view, disruption_class)
        return self._judged[key]

    def _judge(self, view: NodeView, disruption_class: DisruptionClass) -> Candidate | Blocker | None:
        if view.name in self.memory.in_flight or not view.managed:
            return None
        blocker = node_blocker(view, disruption_class, self.now) or self._pool_blocker(view, disruption_class)
        if blocker is not None:
            return blocker
        pool = self.pools[view.pool_name]
        protection = self.protection(view)
        waived = self._waives(view, disruption_class)
        if protection and not waived:
            return protection[0]
        pods, cost = self.reschedulable(view)
        kind = self.types(pool.name).get(view.labels.get(labels.INSTANCE_TYPE, ""))
        lifetime = lifetime_remaining(view.claim, self.now)
        managed_cost = self.settings.pod_deletion_cost
        return Candidate(
            view=view,
            pool=pool,
            instance_type=kind,
            price=node_price(kind, view.labels),
            pods=pods,
            reschedule_cost=cost,
            lifetime_cost=lifetime * sum(eviction_cost(pod, managed_cost) for pod in pods),
            waived=protection,
        )

    def _pool_blocker(self, view: NodeView, disruption_class: DisruptionClass) -> Blocker | None:
        name = view.pool_name
        if not name:
            return Blocker(Why.NO_POOL_LABEL, f'node does not have label "{labels.NODEPOOL}"')
        pool = self.pools.get(name)
        # A broken machine is repaired even while its pool's types cannot be listed: they are not needed for it.
        known = disruption_class is DisruptionClass.REPAIR or bool(self.snapshot.instance_types.get(name))
        if pool is None or not self.is_managed(pool) or not known:
            return Blocker(Why.POOL_NOT_FOUND, f"NodePool not found (NodePool={name})", (f"NodePool {name}",))
        return None

    def _waives(self, view: NodeView, disruption_class: DisruptionClass) -> bool:
        if disruption_class is DisruptionClass.REPAIR:
            return True
        bounded = view.claim is not None and view.claim.spec.termination_grace_period is not None
        return disruption_class is DisruptionClass.EVENTUAL and bounded

    def protection(self, view: NodeView) -> tuple[Blocker, ...]:
        """What on the machine forbids a voluntary disturbance: protected pods first, then budgets."""
        known = self._protections.get(view.name)
        if known is None:
            pods = [pod for pod in view.pods if is_active(pod)]
            found = [b for pod in pods if (b := self.pod_protection(pod)) is not None]
            found.extend(b for pod in pods if (b := self.pdb_protection(pod)) is not None)
            known = self._protections[view.name] = tuple(found)
        return known

    def pod_protection(self, pod: Pod) -> Blocker | None:
        state = do_not_disrupt(pod, self.now)
        if not state.protects(self.settings.protect_unparsable):
            return None
        return Blocker(
            Why.POD_DO_NOT_DISRUPT,
            f'pod has "{labels.DO_NOT_DISRUPT}" annotation (Pod={pod.key})',
            (f"Pod {pod.key}",),
            state.until,
        )

    def pdb_protection(self, pod: Pod) -> Blocker | None:
        budgets = blocking_budgets(pod, self.pdbs(pod.namespace), self.now, self.settings.protect_unparsable)
        if not budgets:
            return None
        names = ", ".join(budget.key for budget in budgets)
        what = "several PDBs match one pod" if len(budgets) > 1 else "PDB prevents pod evictions"
        objects = (*(f"PodDisruptionBudget {budget.key}" for budget in budgets), f"Pod {pod.key}")
        return Blocker(Why.PDB, f"{what} (PodDisruptionBudget=[{names}], Pod={pod.key})", objects)


def node_blocker(view: NodeView, disruption_class: DisruptionClass, now: float) -> Blocker | None:
    """The machine's own gates, first failure wins.

    Repair passes over machines that are registered but not initialized, and with them over nomination, and over
    do-not-disrupt on the node; a machine that never registered belongs to the registration timeout.
    """
    repair = disruption_class is DisruptionClass.REPAIR
    if view.claim is None:
        return Blocker(Why.NO_NODE_CLAIM, "node doesn't have a NodeClaim")
    if repair and not view.claim.pool_name:
        message = "repair requires a NodePool to construct and budget a safe replacement"
        return Blocker(Why.REPAIR_NO_POOL, message)
    if view.node is None:
        return Blocker(Why.NO_NODE, "NodeClaim doesn't have a node")
    if view.rebooting:
        return Blocker(Why.REBOOTING, "node is rebooting")
    if view.marked_for_deletion:
        return Blocker(Why.MARKED_FOR_DELETION, "node is deleting or marked for deletion")
    if not view.registered:
        return Blocker(Why.NOT_REGISTERED, "node isn't initialized nor registered")
    if not view.initialized:
        return None if repair else Blocker(Why.NOT_INITIALIZED, "node isn't initialized")
    if view.nominated_until > now:
        return Blocker(Why.NOMINATED, "node is nominated for a pending pod", until=view.nominated_until)
    if not repair and view.annotations.get(labels.DO_NOT_DISRUPT) == "true":
        message = f'disruption is blocked through the "{labels.DO_NOT_DISRUPT}" annotation'
        return Blocker(Why.NODE_DO_NOT_DISRUPT, message)
    return None


def claim_condition(view: NodeView, condition_type: str) -> str:
    return condition_status(view.claim.status.conditions, condition_type) if view.claim is not None else "Unknown"
