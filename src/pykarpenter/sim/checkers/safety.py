"""The safety invariants S1…S11, each checked the moment it could break.

Store writes, requests of the program under test and terminations in the cloud are what can break one; a checker
reads the store and the cloud as they are at that moment, never the program's own idea of them.
"""

from __future__ import annotations

import math
from typing import Any

from pykarpenter.api import kinds, labels
from pykarpenter.api.duration import InvalidDuration, parse_duration
from pykarpenter.api.meta import condition_status, find_condition
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.api.nodes import Lease, Node, Taint
from pykarpenter.api.pods import Pod
from pykarpenter.api.quantity import available
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.core.resources import add
from pykarpenter.core.taints import tolerates
from pykarpenter.kube.errors import ApiError
from pykarpenter.sim.api import Middleware, Request
from pykarpenter.sim.checkers.report import Report
from pykarpenter.sim.checkers.windows import is_open
from pykarpenter.sim.cloud.instances import PREFIX, TAG_CLAIM_UID, TAG_CLUSTER, TAG_POOL, TERMINATED, Instance
from pykarpenter.sim.cluster import EmbeddedCluster
from pykarpenter.sim.journal import Journal, Written

_VOLUNTARY = ("Empty", "Drifted", "Underutilized", "Unhealthy")
_DISRUPTED = Taint(key=labels.DISRUPTED_TAINT, effect="NoSchedule")


class SafetyCheckers(Middleware):
    """Attach to a cluster; put it among the middleware of the program's client so that its requests are seen."""

    def __init__(self, cluster: EmbeddedCluster, journal: Journal, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        self._lease_name: tuple[str, str] | None = None
        # When the lease was last renewed, by the cluster's clock: the holder's own may be wrong.
        self._renewed_at = 0.0
        # Claims that are being disturbed of the program's own will: UID -> pool.
        self._disrupting: dict[str, str] = {}
        journal.listen(self._written)
        cluster.cloud.on_terminate.append(self._terminating)

    def require_lease(self, name: str, namespace: str) -> None:
        """From now on disruptive writes must come from the holder of this lease (S9)."""
        self._lease_name = (name, namespace)

    # What can break an invariant.

    def _written(self, written: Written) -> None:
        where = (written.resource.group, written.resource.kind)
        if where == ("coordination.k8s.io", "Lease") and self._lease_name is not None:
            if written.entry.metadata["name"] == self._lease_name[0]:
                self._renewed_at = self._cluster.clock.now()
            return
        if where == ("karpenter.sh", "NodeClaim"):
            claim = written.entry.decode(NodeClaim)
            if written.type == "DELETED":
                self._s11_instance_is_gone(claim)
                self._disrupting.pop(claim.uid, None)
            else:
                self._s1_limits(claim)
                self._s4_budgets(claim)

    async def before(self, request: Request) -> None:
        """Requests of the program under test; nothing is refused here, only judged."""
        if request.verb in ("delete", "evict") or (request.verb == "create" and request.kind is kinds.NODE_CLAIM):
            self._s9_lease(request)
        if request.kind is kinds.NODE and request.verb in ("patch", "delete"):
            self._s10_managed(request)
        if request.kind is kinds.POD and request.verb == "evict":
            self._s5_do_not_disrupt(request)
        if request.kind is kinds.POD and request.verb == "delete":
            self._s6_eviction_only(request)

    async def after(self, request: Request, error: ApiError | None) -> None:
        """A launch may have happened: no claim may have two machines."""
        if request.kind is kinds.NODE_CLAIM:
            self._s2_one_instance_per_claim()

    def _terminating(self, instance: Instance) -> None:
        self._s2_one_instance_per_claim()
        self._s3_only_ours(instance)
        self._s7_drained(instance)

    # The invariants.

    def _s1_limits(self, changed: NodeClaim) -> None:
        pool = self._find(kinds.NODE_POOL, changed.pool_name)
        if pool is None or not pool.spec.limits:
            return
        limits = available(pool.spec.limits)
        claims = [c for c in self._all(kinds.NODE_CLAIM) if c.pool_name == pool.name and not c.is_deleting]
        used = add(*(available(c.status.capacity) for c in claims))
        used["nodes"] = len(claims)
        for resource, limit in limits.items():
            if used.get(resource, 0) > limit:
                self._broken("S1", f"NodePool {pool.name}: {resource} {used[resource]} above its limit {limit}")

    def _s2_one_instance_per_claim(self) -> None:
        seen: dict[str, str] = {}
        for instance in self._cluster.cloud.live():
            uid = instance.tags.get(TAG_CLAIM_UID, "")
            if not uid:
                continue
            if uid in seen:
                self._broken("S2", f"claim {uid} has instances {seen[uid]} and {instance.id}")
            seen[uid] = instance.id

    def _s3_only_ours(self, instance: Instance) -> None:
        if not all(tag in instance.tags for tag in (TAG_CLUSTER, TAG_CLAIM_UID, TAG_POOL)):
            self._broken("S3", f"instance {instance.id} is not ours but is being terminated")

    def _s4_budgets(self, claim: NodeClaim) -> None:
        """Judged when one more machine is chosen; those whose end the cloud accepted count no more."""
        chosen = find_condition(claim.status.conditions, "DisruptionReason")
        if chosen is None or chosen.status != "True" or chosen.reason not in _VOLUNTARY:
            self._disrupting.pop(claim.uid, None)
            return
        if claim.uid in self._disrupting:
            return
        self._disrupting[claim.uid] = claim.pool_name
        pool = self._find(kinds.NODE_POOL, claim.pool_name)
        if pool is None:
            return
        if condition_status(claim.status.conditions, "Initialized") != "True":
            # Only repair takes machines that never were in service; they use no budget.
            del self._disrupting[claim.uid]
            return
        ready = [c for c in self._all(kinds.NODE_CLAIM) if c.pool_name == pool.name and _is_in_service(c)]
        allowed = _allowed(pool, chosen.reason, len(ready), self._cluster.clock.now())
        left = {i.tags.get(TAG_CLAIM_UID) for i in self._cluster.cloud.instances.values() if i.state != TERMINATED}
        count = sum(c.uid in self._disrupting and c.uid in left for c in ready)
        if count > allowed:
            self._broken("S4", f"NodePool {pool.name}: {count} of {len(ready)} machines disturbed, {allowed} allowed")

    def _s5_do_not_disrupt(self, request: Request) -> None:
        pod = self._find(kinds.POD, request.name, request.namespace)
        if pod is not None and self._is_protected(pod) and not self._past_deadline(pod):
            self._broken("S5", f"pod {pod.key} is evicted although it is marked do-not-disrupt")

    def _s6_eviction_only(self, request: Request) -> None:
        pod = self._find(kinds.POD, request.name, request.namespace)
        if pod is None or pod.status.phase in ("Succeeded", "Failed") or pod.is_deleting:
            return
        if not self._past_deadline(pod):
            self._broken("S6", f"pod {pod.key} is deleted instead of evicted before its node's deadline")

    def _s7_drained(self, instance: Instance) -> None:
        node = self._node_of(instance)
        if node is None or _is_lost(node):
            return
        if self._node_past_deadline(node):
            return
        there = [p for p in self._all(kinds.POD) if p.spec.node_name == node.name]
        left = [p.key for p in there if self._is_drainable(p)]
        held = [v.name for v in self._all(kinds.VOLUME_ATTACHMENT) if v.spec.node_name == node.name]
        # Volumes of pods that nobody drains may stay.
        if held and not any(v.persistent_volume_claim for p in there for v in p.spec.volumes):
            self._broken("S7", f"instance {instance.id} is terminated while {held[0]} is attached to {node.name}")
        if left:
            self._broken("S7", f"instance {instance.id} is terminated while {left[0]} still runs on {node.name}")

    def _s9_lease(self, request: Request) -> None:
        if self._lease_name is None:
            return
        lease = self._find(kinds.LEASE, *self._lease_name)
        held_for = self._cluster.clock.now() - self._renewed_at
        if lease is None or not _holds(lease, request.client, held_for):
            holder = lease.spec.holder_identity if lease is not None else None
            self._broken("S9", f"{request.client} sends {request.verb} {request.name} while {holder} holds the lease")

    def _s10_managed(self, request: Request) -> None:
        node = self._find(kinds.NODE, request.name)
        if node is not None and not node.spec.provider_id.startswith((PREFIX, "kwok://")):
            self._broken("S10", f"unmanaged node {request.name} is written ({request.verb})")

    def _s11_instance_is_gone(self, claim: NodeClaim) -> None:
        for instance in self._cluster.cloud.live():
            if instance.tags.get(TAG_CLAIM_UID) == claim.uid:
                self._broken("S11", f"NodeClaim {claim.name} is gone while instance {instance.id} runs")

    # Reading the world.

    def _broken(self, invariant: str, message: str) -> None:
        self._report.add(invariant, self._cluster.clock.now(), message)

    def _find(self, kind: kinds.Kind[Any], name: str, namespace: str = "") -> Any:
        store = self._cluster.store
        entry = store.find(store.resource(kind.group, kind.plural), name, namespace)
        return entry.decode(kind.type) if entry is not None else None

    def _all(self, kind: kinds.Kind[Any]) -> list[Any]:
        table = self._cluster.store.table(kind.group, kind.plural)
        return [entry.decode(kind.type) for entry in table.entries.values()]

    def _node_of(self, instance: Instance) -> Node | None:
        node = self._find(kinds.NODE, instance.node_name)
        return node if node is not None and node.spec.provider_id == instance.provider_id else None

    def _is_drainable(self, pod: Pod) -> bool:
        if pod.status.phase in ("Succeeded", "Failed"):
            return False
        owners = {ref.kind for ref in pod.metadata.owner_references}
        if owners & {"DaemonSet", "Node"}:
            return False
        if any(tolerates(t, _DISRUPTED) for t in pod.spec.tolerations):
            return False
        if not pod.is_deleting:
            return True
        # A pod whose grace is long over is stuck on a kubelet that does not answer; nobody waits for it.
        ends = parse_optional_timestamp(pod.metadata.deletion_timestamp) or 0.0
        return self._cluster.clock.now() < ends

    def _is_protected(self, pod: Pod) -> bool:
        value = pod.metadata.annotations.get(labels.DO_NOT_DISRUPT, "")
        if value == "true":
            return True
        try:
            lasts = parse_duration(value) if value and value != "false" else 0.0
        except InvalidDuration:
            return False
        started = parse_optional_timestamp(pod.status.start_time)
        return started is not None and self._cluster.clock.now() < started + (lasts or 0.0)

    def _past_deadline(self, pod: Pod) -> bool:
        node = self._find(kinds.NODE, pod.spec.node_name)
        grace = pod.spec.termination_grace_period_seconds or 0
        return node is None or self._node_past_deadline(node, grace)

    def _node_past_deadline(self, node: Node, grace_s: float = 0.0) -> bool:
        """Whether the termination deadline of the node's claim is so near that the grace period would pass it."""
        for claim in self._all(kinds.NODE_CLAIM):
            if claim.status.provider_id == node.spec.provider_id:
                ends = parse_optional_timestamp(claim.metadata.annotations.get(labels.TERMINATION_TIMESTAMP))
                return ends is not None and self._cluster.clock.now() + grace_s >= ends - 1.0
        return False


def _allowed(pool: NodePool, reason: str, machines: int, now: float) -> int:
    """The tightest budget that is active now and covers the reason; percentages round up. Unreadable means none."""
    bounds = [machines]
    for budget in pool.spec.disruption.budgets or []:
        if budget.schedule is not None:
            try:
                if not is_open(budget.schedule, parse_duration(budget.duration or "") or 0.0, now):
                    continue
            except (ValueError, InvalidDuration):
                return 0
        if budget.reasons and reason not in budget.reasons:
            continue
        if budget.nodes.endswith("%"):
            bounds.append(math.ceil(machines * int(budget.nodes[:-1]) / 100))
        else:
            bounds.append(int(budget.nodes))
    return min(bounds)


def _is_in_service(claim: NodeClaim) -> bool:
    """Counted by budgets: initialized, and its end not yet accepted by the cloud."""
    conditions = claim.status.conditions
    return (
        condition_status(conditions, "Initialized") == "True"
        and condition_status(conditions, "InstanceTerminating") != "True"
    )


def _is_lost(node: Node) -> bool:
    return not any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)


def _holds(lease: Lease, client: str, held_for_s: float) -> bool:
    return lease.spec.holder_identity == client and held_for_s <= (lease.spec.lease_duration_seconds or 0)
