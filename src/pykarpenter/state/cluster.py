"""What is known about the cluster: fed with observed changes, asked for snapshots.

Pure and synchronous: no clock, no API calls. What has not been observed is unknown, never absent or free. Changes only
mark what they touch; the work of describing machines anew is done when a snapshot is asked for, and a machine about
which nothing changed keeps its very `NodeView` object.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from pykarpenter.api import kinds
from pykarpenter.api.kinds import Kind
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.core.consolidatable import is_consolidatable
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.reasons import Refusal, Why
from pykarpenter.core.resources import Resources
from pykarpenter.core.snapshot import ClusterSnapshot, DeviceObjects, NodeView, SelectorObjects, VolumeObjects
from pykarpenter.state.arrivals import Arrivals
from pykarpenter.state.descriptions import Descriptions, Sources
from pykarpenter.state.ledger import Ledger, Promise
from pykarpenter.state.machines import ClassKinds, Machines, claim_id, node_id
from pykarpenter.state.marks import Tombstones
from pykarpenter.state.pods import PodChange, PodIndex
from pykarpenter.state.tables import Table
from pykarpenter.state.usage import PoolClaims, pool_claims
from pykarpenter.state.views import is_launched

# Kinds that are kept as they come, by key.
TABLE_KINDS: tuple[Kind[Any], ...] = (
    kinds.NODE_POOL,
    kinds.DAEMON_SET,
    kinds.PDB,
    kinds.NAMESPACE,
    kinds.PVC,
    kinds.PV,
    kinds.STORAGE_CLASS,
    kinds.CSI_NODE,
    kinds.RESOURCE_CLAIM,
    kinds.RESOURCE_CLAIM_TEMPLATE,
    kinds.DEVICE_CLASS,
    kinds.RESOURCE_SLICE,
    kinds.SERVICE,
    kinds.REPLICA_SET,
    kinds.STATEFUL_SET,
    kinds.REPLICATION_CONTROLLER,
)


class ClusterState:
    """The one mutable picture of the cluster in a process."""

    def __init__(self, managed_classes: ClassKinds | None = None, nomination_s: float = 20.0) -> None:
        self._nomination_s = nomination_s
        self.ledger = Ledger()
        self.revision = 0
        self._changes = 0
        self._pods = PodIndex()
        self._machines = Machines(managed_classes)
        self._arrivals = Arrivals(self._machines, self._pods)
        self._tables: dict[str, Table[Any]] = {kind.kind: Table() for kind in TABLE_KINDS}
        self._sources = Sources(self._machines, self._pods, self._arrivals)
        self._marks = self._sources.marks
        self._nominations = self._sources.nominations
        self._instance_types = self._sources.instance_types
        self._buffer_pods = self._sources.buffer_pods
        self._described = Descriptions(self._sources)
        self._placed_buffer_pods: frozenset[str] = frozenset()
        self._tombstones = Tombstones()
        self._pending: tuple[Pod, ...] = ()
        self._pending_revision = (-1, -1)

    @property
    def consolidation_revision(self) -> int:
        """Grows whenever consolidation may find something that it did not find before."""
        return self._changes + self._described.turns

    # Observations.

    def observe(self, kind: Kind[Any], old: Any, new: Any) -> None:
        """Take in a change; `new` None means deleted. Repeated and late deliveries do no harm."""
        self.revision += 1
        if kind is kinds.POD:
            self._observe_pod(old, new)
        elif kind is kinds.NODE:
            self._observe_node(old, new)
        elif kind is kinds.NODE_CLAIM:
            self._observe_claim(old, new)
        else:
            self._observe_other(kind, old, new)

    def insert_claim(self, claim: NodeClaim) -> None:
        """Take in a claim that was just created, before the watch shows it.

        The watch may have been faster, with a later version or even with the deletion (F14); then it wins.
        """
        if claim.uid in self._tombstones:
            self.ledger.release(claim.name)
            self._arrivals.forget_claim(claim.name)
            return
        if self._machines.claim(claim.name) is None:
            self._observe_claim(None, claim)
            self.revision += 1

    def _observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        change = self._pods.put(new) if new is not None else self._pods.drop(old.key) if old is not None else None
        if change is None:
            return
        key = new.key if new is not None else old.key if old is not None else ""
        waited_for = self._arrivals.claim_of(key)
        if waited_for is not None and not self._still_expected(key, new, waited_for):
            self._arrivals.forget_pod(key)
        elif waited_for is not None:
            self._arrivals.touch(waited_for)
        self._touch_pods_nodes(change)

    def _touch_pods_nodes(self, change: PodChange) -> None:
        for name in change.nodes:
            self._machines.touch_node(name)
        if change.moved:
            self._changes += 1

    def _observe_node(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            self._machines.put_node(new)
        elif old is not None and self._machines.drop_node(old.name) is not None:
            self._changes += 1

    def _observe_claim(self, old: NodeClaim | None, new: NodeClaim | None) -> None:
        if new is None:
            if old is not None:
                self._drop_claim(old)
            return
        if not self._machines.is_managed_claim(new):
            return
        self.ledger.release(new.name)
        self._machines.put_claim(new)
        if old is not None and is_consolidatable(new) and not is_consolidatable(old):
            # Its pause is over, as a candidate and as a destination: what was refused because of it may go now.
            self._changes += 1
        if new.is_deleting:
            self._arrivals.forget_claim(new.name)

    def _drop_claim(self, claim: NodeClaim) -> None:
        self._tombstones.add(claim.uid)
        self.ledger.release(claim.name)
        self._arrivals.forget_claim(claim.name)
        self._nominations.forget(claim_id(claim.name))
        known = self._machines.claim(claim.name)
        if known is not None and known.uid == claim.uid:
            self._machines.drop_claim(claim.name)
            self._marks.unmark(claim.status.provider_id)
            self._changes += 1

    def _observe_other(self, kind: Kind[Any], old: Any, new: Any) -> None:
        table = self._tables[kind.kind]
        if new is None:
            if old is not None:
                table.drop(old.key)
        else:
            if kind is kinds.NODE_POOL:
                self._note_pool_change(table.get(new.key), new)
            table.put(new.key, new)

    def _note_pool_change(self, before: NodePool | None, after: NodePool) -> None:
        if before is None or before.spec != after.spec:
            self._changes += 1

    def set_instance_types(self, pool: str, types: tuple[InstanceType, ...] | None) -> None:
        """What a pool can launch, overlays applied; None makes it unknown.

        The same types in another tuple change nothing: several controllers ask, and tables are keyed on the tuple.
        """
        if types is None:
            self._instance_types.drop(pool)
            return
        known = self._instance_types.get(pool)
        if known is not None and len(known) == len(types) and all(map(operator.is_, known, types)):
            return
        self._instance_types.put(pool, types)
        self.revision += 1
        # Prices may have moved: what was not worth it may be now.
        self._changes += 1

    def set_buffer_pods(self, buffer: str, pods: tuple[Pod, ...]) -> None:
        """The virtual pods of one capacity buffer (by `namespace/name`); an empty tuple removes them."""
        if (self._buffer_pods.get(buffer) or ()) != pods:
            # Less demand leaves room that machines were kept for.
            self._changes += 1
        if pods:
            self._buffer_pods.put(buffer, pods)
        else:
            self._buffer_pods.drop(buffer)
        self.revision += 1

    @property
    def has_buffer_pods(self) -> bool:
        return bool(self._buffer_pods.values())

    @property
    def placed_buffer_pods(self) -> frozenset[str]:
        """Keys of the virtual pods that the last plan found room for on machines that exist."""
        return self._placed_buffer_pods

    def set_buffer_placements(self, counts: Mapping[str, int], placed: Iterable[str] = ()) -> None:
        """How many virtual pods the last plan put on each machine, by its name, and which pods those are."""
        self._placed_buffer_pods = frozenset(placed)
        before = self._sources.buffer_counts
        for name in sorted({*before, *counts}):
            if before.get(name) != counts.get(name):
                self._touch_by_name(name)
        self._sources.buffer_counts = dict(counts)

    # What the program itself decided.

    def mark_for_deletion(self, *provider_ids: str, reason: str = "") -> None:
        """Take machines out of service for scheduling; idempotent."""
        for provider_id in provider_ids:
            if self._marks.mark(provider_id, reason):
                self._touch_mark(provider_id)

    def unmark_for_deletion(self, *provider_ids: str) -> None:
        """Put machines back into service; their pods no longer wait for another place."""
        for provider_id in provider_ids:
            if self._marks.unmark(provider_id):
                self._touch_mark(provider_id)
                for name in self._machines.nodes_of(provider_id):
                    for pod in self.pods_on(name):
                        self._arrivals.forget_pod(pod.key)

    def _touch_mark(self, provider_id: str) -> None:
        self.revision += 1
        self._changes += 1
        self._machines.touch_provider_id(provider_id)

    def mark_unconsolidated(self) -> None:
        """Something outside the watched objects changed that consolidation depends on, such as prices."""
        self._changes += 1

    def nominate(self, name: str, until: float) -> None:
        """Keep a machine from disruption until then (epoch seconds), because pods are expected on it."""
        self._nominations.nominate(self._id_of(name), until)
        self._touch_by_name(name)
        self.revision += 1

    def reserve(self, promise: Promise, pods: Iterable[Pod] = ()) -> Refusal | None:
        """Promise capacity to a claim that is about to be created, for these pods; or say which limit forbids it."""
        pool = self.node_pool(promise.pool)
        if pool is None:
            return Refusal(Why.NO_NODE_POOLS, f'nodepool "{promise.pool}" does not exist')
        refusal = self.ledger.reserve(promise, pool.spec.limits, self.usage(promise.pool))
        if refusal is None:
            self._arrivals.expect(promise.claim, [(pod.key, pod.uid) for pod in pods])
        return refusal

    def abandon(self, claim: str) -> None:
        """The claim certainly does not exist and will not: its promise and its pods are free again."""
        self.ledger.release(claim)
        self._arrivals.forget_claim(claim)
        self.revision += 1

    def _still_expected(self, key: str, pod: Pod | None, claim: str) -> bool:
        """Whether the pod that waits for the claim is still the one that was planned, and still waits."""
        if pod is None or pod.uid != self._arrivals.pods_of(claim).get(key) or pod.is_deleting:
            return False
        if not pod.spec.node_name:
            return True
        # A pod on a machine that is leaving waits for its replacement's machine; one that is bound anywhere else
        # has found its place.
        view = self.view_of_node(pod.spec.node_name)
        return view is not None and view.marked_for_deletion and view.name != claim

    # Answers.

    def snapshot(self, now: float) -> ClusterSnapshot:
        """One frozen instant; cheap when little changed since the last."""
        self._end_expectations(now)
        self._described.refresh()
        tables = self._tables
        expected = self._arrivals
        return ClusterSnapshot(
            now=now,
            revision=self.revision,
            pods=self._pending_pods(),
            buffer_pods=tuple(
                pod for pods in self._buffer_pods.values() for pod in pods if expected.claim_of(pod.key) is None
            ),
            nodes=self.views(),
            node_pools=tables["NodePool"].values(),
            instance_types=self._instance_types.frozen(),
            daemon_sets=tables["DaemonSet"].values(),
            daemon_pods=self._pods.newest_daemon_pods(),
            pdbs=tables["PodDisruptionBudget"].values(),
            namespaces=tables["Namespace"].frozen(),
            volumes=VolumeObjects(
                claims=tables["PersistentVolumeClaim"].frozen(),
                volumes=tables["PersistentVolume"].frozen(),
                classes=tables["StorageClass"].frozen(),
                csi_nodes=tables["CSINode"].frozen(),
            ),
            devices=DeviceObjects(
                claims=tables["ResourceClaim"].frozen(),
                templates=tables["ResourceClaimTemplate"].frozen(),
                classes=tables["DeviceClass"].frozen(),
                slices=tables["ResourceSlice"].values(),
            ),
            selectors=SelectorObjects(
                services=tables["Service"].values(),
                replica_sets=tables["ReplicaSet"].frozen(),
                stateful_sets=tables["StatefulSet"].frozen(),
                replication_controllers=tables["ReplicationController"].frozen(),
            ),
            promised=self.ledger.by_pool(),
        )

    def views(self) -> tuple[NodeView, ...]:
        """Every machine, ordered by name."""
        return self._described.ordered()

    def view_of_node(self, name: str) -> NodeView | None:
        return self._described.of(self._machines.id_of_node(name))

    def view_of_claim(self, name: str) -> NodeView | None:
        return self._described.of(claim_id(name))

    def node_pool(self, name: str) -> NodePool | None:
        pool: NodePool | None = self._tables[kinds.NODE_POOL.kind].get(name)
        return pool

    def node_pools(self) -> tuple[NodePool, ...]:
        """Every NodePool, ordered by name."""
        pools: tuple[NodePool, ...] = self._tables[kinds.NODE_POOL.kind].values()
        return pools

    def claims(self) -> list[NodeClaim]:
        """Every tracked NodeClaim, ordered by name."""
        return self._machines.claims()

    def instance_types(self, pool: str) -> tuple[InstanceType, ...]:
        """The pool's types as last listed; none when they are not known yet."""
        return self._instance_types.get(pool) or ()

    def usage(self, pool: str) -> Resources:
        """What the pool's machines count for against its limits, `nodes` included; promises are in the ledger."""
        self._described.refresh()
        return self._described.usage.of(pool)

    def pool_resources(self, pool: str) -> Resources:
        """What the pool's machines have, `nodes` included, for its status: claims on their way show no capacity."""
        self._described.refresh()
        return self._described.present.of(pool)

    def pool_claims(self, pool: str) -> PoolClaims:
        return pool_claims(view for view in self.views() if view.pool_name == pool).get(pool, PoolClaims())

    def pods_on(self, node_name: str) -> list[Pod]:
        """Bound pods that are not terminal, ordered by key."""
        found = self._pods.on_node(node_name)
        return [found[key] for key in sorted(found)]

    def pod(self, key: str) -> Pod | None:
        return self._pods.get(key)

    def expected_claim(self, pod_key: str) -> str | None:
        """The claim that the pod waits for."""
        return self._arrivals.claim_of(pod_key)

    def expected_pods(self, claim: str) -> list[str]:
        """Keys of the pods that wait for the claim."""
        return sorted(self._arrivals.pods_of(claim))

    def awaited_claims(self) -> list[str]:
        """Claims that pods wait for, by name."""
        return self._arrivals.claims()

    def unlaunched_claims(self) -> list[str]:
        """Tracked claims without a providerID; while there are any, Karpenter calls its state unsynced."""
        return [claim.name for claim in self._machines.claims() if not is_launched(claim)]

    def is_synced(self) -> bool:
        """Karpenter's meaning, for the gauge: no tracked claim lacks a providerID."""
        return not self.unlaunched_claims()

    def missing(self, claims: Iterable[str], nodes: Iterable[str]) -> list[str]:
        """Of the objects that the API server has, those that have not been observed."""
        return [
            *(f"nodeclaim/{name}" for name in claims if self._machines.claim(name) is None),
            *(f"node/{name}" for name in nodes if self._machines.node(name) is None),
        ]

    # Upkeep.

    def describe_some(self, at_most: int) -> bool:
        """Describe that many of the machines that changed; whether there are more. Any reader describes the rest."""
        return self._described.some(at_most)

    def _pending_pods(self) -> tuple[Pod, ...]:
        revision = (self._pods.unbound_revision, self._arrivals.revision)
        if revision != self._pending_revision:
            unbound = self._pods.unbound
            waiting = self._arrivals.claim_of
            self._pending = tuple(unbound[key] for key in sorted(unbound) if waiting(key) is None)
            self._pending_revision = revision
        return self._pending

    def _end_expectations(self, now: float) -> None:
        """Once a machine is ready the scheduler decides, and after a while its pods are planned like any other."""
        for claim in self._arrivals.claims():
            view = self.view_of_claim(claim)
            if view is None:
                continue
            if view.initialized and self._arrivals.is_over(claim, now):
                self._arrivals.forget_claim(claim)
                self._arrivals.touch(claim)
            elif view.nominated_until < now + self._nomination_s / 2:
                # A machine that pods wait for is as good as nominated by each plan.
                self._nominations.nominate(claim_id(claim), now + self._nomination_s)
                self._arrivals.touch(claim)
        for machine_id in self._nominations.expire(now):
            self._machines.dirty[machine_id] = None

    def _id_of(self, name: str) -> str:
        if self._machines.node(name) is not None:
            return self._machines.id_of_node(name)
        return claim_id(name) if self._machines.claim(name) is not None else node_id(name)

    def _touch_by_name(self, name: str) -> None:
        self._machines.dirty[self._id_of(name)] = None
