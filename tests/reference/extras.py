"""Rules that the first generator did not know, drawn on top of its clusters by a draw of their own.

Keeping them apart leaves the older draws of a seed as they were.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from pykarpenter.api import labels
from pykarpenter.api.nodes import Taint
from pykarpenter.api.pods import Pod
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView, VolumeObjects
from pykarpenter.state.views import taints_in_force

BOOT = Taint(key="boot", value="x", effect="NoSchedule")
# Taints that go by themselves once a machine is up, and one that only looks so.
EPHEMERAL = (
    Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule"),
    Taint(key="node.kubernetes.io/unreachable", effect="NoSchedule"),
    Taint(key="node.cloudprovider.kubernetes.io/uninitialized", value="true", effect="NoSchedule"),
    Taint(key="karpenter.sh/unregistered", effect="NoExecute"),
    Taint(key="readiness.k8s.io/cni", effect="NoSchedule"),
    Taint(key="node.kubernetes.io/disk-pressure", effect="NoSchedule"),
)
TIER = Taint(key="tier", value="5", effect="NoSchedule")


@dataclass
class Extras:
    """The case as far as it was drawn."""

    draw: random.Random
    snapshot: ClusterSnapshot
    settings: PackingSettings
    features: set[str]

    def maybe(self, chance: float, feature: str) -> bool:
        if self.draw.random() < chance:
            self.features.add(feature)
            return True
        return False

    def nodes(self, change: Callable[[NodeView], NodeView]) -> None:
        self.snapshot = replace(self.snapshot, nodes=tuple(change(view) for view in self.snapshot.nodes))

    def pods(self, change: Callable[[Pod], Pod]) -> None:
        self.snapshot = replace(self.snapshot, pods=tuple(change(pod) for pod in self.snapshot.pods))


def with_extras(
    seed: int, snapshot: ClusterSnapshot, settings: PackingSettings, features: set[str]
) -> tuple[ClusterSnapshot, PackingSettings]:
    """The cluster with whatever the seed draws of the further rules; their names go into `features`."""
    case = Extras(random.Random(f"{seed}-extras"), snapshot, settings, features)
    for part in (
        _taints_of_young_nodes,
        _on_their_way,
        _resizes,
        _daemons,
        _overrides,
        _overlays,
        _truncation,
        _local_volumes,
        _ephemeral_volumes,
        _terminating,
        _odd_selectors,
        _numeric_tolerations,
        _not_provisionable,
        _promised,
    ):
        part(case)
    return case.snapshot, case.settings


def _taints_of_young_nodes(case: Extras) -> None:
    """Startup and ephemeral taints on machines, in force or not; the state's own rule says which."""

    def tainted(view: NodeView) -> NodeView:
        if view.node is None:
            return view
        extra: list[Taint] = []
        claim = view.claim
        if case.maybe(0.35, "startup-taint-on-node"):
            extra.append(BOOT)
            if claim is not None:
                spec = msgspec.structs.replace(claim.spec, startup_taints=[BOOT])
                claim = msgspec.structs.replace(claim, spec=spec)
        if case.maybe(0.35, "ephemeral-taint"):
            extra.append(case.draw.choice(EPHEMERAL))
        if not extra:
            return view
        spec = msgspec.structs.replace(view.node.spec, taints=[*view.node.spec.taints, *extra])
        node = msgspec.structs.replace(view.node, spec=spec)
        hides = view.managed and (not view.initialized or view.rebooting)
        return replace(view, node=node, claim=claim, taints=taints_in_force(node.spec.taints, claim, hides=hides))

    case.nodes(tainted)


def _on_their_way(case: Extras) -> None:
    """Claims whose Node has not appeared."""

    def waiting(view: NodeView) -> NodeView:
        if view.claim is None or view.pods or view.marked_for_deletion or not case.maybe(0.4, "node-on-its-way"):
            return view
        values = {key: value for key, value in view.labels.items() if key != labels.HOSTNAME}
        claim = msgspec.structs.replace(
            view.claim, spec=msgspec.structs.replace(view.claim.spec, startup_taints=[BOOT])
        )
        return replace(view, node=None, claim=claim, labels=values, taints=(), initialized=False, registered=False)

    case.nodes(waiting)


def _resizes(case: Extras) -> None:
    """Pods whose containers have more, or less, than their spec says."""

    def resized(view: NodeView) -> NodeView:
        pods = []
        for pod in view.pods:
            if case.maybe(0.2, "in-place-resize"):
                body: dict[str, Any] = {"name": "main", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}
                status: dict[str, Any] = {"phase": "Running", "containerStatuses": [body]}
                if case.maybe(0.4, "resize-infeasible"):
                    pod = _with_spec(pod, containers=_containers(_container("3", "4Gi")))
                    body["resources"]["requests"] = {"cpu": "50m", "memory": "64Mi"}
                    status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
                pod = msgspec.structs.replace(pod, status=msgspec.convert(status, type(pod.status)))
            pods.append(pod)
        return replace(view, pods=tuple(pods))

    case.nodes(resized)


def _daemons(case: Extras) -> None:
    """Live pods of DaemonSets: larger than their template, and some that run already."""
    live: dict[str, Pod] = {}
    for daemon_set in case.snapshot.daemon_sets:
        if case.maybe(0.3, "daemon-live-pod"):
            containers = _containers(_container("700m", "256Mi"))
            spec = msgspec.structs.replace(daemon_set.spec.template.spec, containers=containers)
            live[daemon_set.uid] = Pod(metadata=daemon_set.metadata, spec=spec)
    case.snapshot = replace(case.snapshot, daemon_pods=live)

    def running(view: NodeView) -> NodeView:
        pods = list(view.pods)
        for daemon_set in case.snapshot.daemon_sets:
            if view.node is not None and case.maybe(0.4, "daemon-runs-already"):
                meta = {
                    "name": f"{daemon_set.name}-{view.name}",
                    "namespace": daemon_set.namespace,
                    "uid": f"{daemon_set.uid}-{view.name}",
                    "ownerReferences": [
                        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": daemon_set.name, "uid": daemon_set.uid}
                    ],
                }
                spec = {"nodeName": view.name, "containers": [_container("700m", "256Mi")]}
                pods.append(msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}, Pod))
        return replace(view, pods=tuple(pods))

    case.nodes(running)


def _container(cpu: str, memory: str) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}


def _containers(container: dict[str, Any]) -> list[Any]:
    return msgspec.convert({"spec": {"containers": [container]}}, Pod).spec.containers


def _types(case: Extras, change: Callable[[InstanceType], InstanceType]) -> None:
    known: dict[int, tuple[InstanceType, ...]] = {}
    for types in case.snapshot.instance_types.values():
        if id(types) not in known:
            known[id(types)] = tuple(change(item) for item in types)
    changed = {pool: known[id(types)] for pool, types in case.snapshot.instance_types.items()}
    case.snapshot = replace(case.snapshot, instance_types=changed)


def _overrides(case: Extras) -> None:
    """Offerings that bring less than their type says: capacity and overhead of their own."""

    def changed(item: InstanceType) -> InstanceType:
        if not case.maybe(0.02, "offering-override"):
            return item
        offerings = tuple(
            replace(o, capacity_override={"memory": item.capacity["memory"] // 2}, overhead_override={"cpu": 300})
            if o.capacity_type == "spot"
            else o
            for o in item.offerings
        )
        return replace(item, offerings=offerings)

    _types(case, changed)


def _overlays(case: Extras) -> None:
    """Types that an overlay has changed: a price of their own, a resource besides the usual."""

    def changed(item: InstanceType) -> InstanceType:
        if case.maybe(0.02, "price-overlay"):
            item = replace(item, offerings=tuple(replace(o, price=0.01, price_overlaid=True) for o in item.offerings))
        if case.maybe(0.02, "capacity-overlay"):
            item = replace(item, capacity={**item.capacity, "example.com/fpga": 2}, capacity_overlaid=True)
        return item

    _types(case, changed)
    if "capacity-overlay" in case.features:

        def asking(pod: Pod) -> Pod:
            if not case.maybe(0.15, "overlay-pod"):
                return pod
            container = pod.spec.containers[0]
            requests = {**container.resources.requests, "example.com/fpga": "1"}
            grown = msgspec.structs.replace(
                container, resources=msgspec.structs.replace(container.resources, requests=requests)
            )
            return _with_spec(pod, containers=[grown, *pod.spec.containers[1:]])

        case.pods(asking)


def _truncation(case: Extras) -> None:
    if case.maybe(0.1, "truncated-types"):
        case.settings = replace(case.settings, max_instance_types=case.draw.randint(1, 3))


def _local_volumes(case: Extras) -> None:
    """Bound volumes of a node's own disk: the hostname in their affinity does not count, the zone does."""
    changed = dict(case.snapshot.volumes.volumes)
    for name, volume in sorted(changed.items()):
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None or not case.maybe(0.3, "local-volume"):
            continue
        terms = [
            {"matchExpressions": [*map(msgspec.to_builtins, term.match_expressions), _HOST]}
            for term in affinity.required.node_selector_terms
        ]
        body = {"local": {"path": "/disk"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
        changed[name] = msgspec.structs.replace(volume, spec=msgspec.convert(body, type(volume.spec)))
    case.snapshot = replace(case.snapshot, volumes=_with_volumes(case.snapshot.volumes, volumes=changed))


_HOST = {"key": labels.HOSTNAME, "operator": "In", "values": ["gone-node"]}


def _ephemeral_volumes(case: Extras) -> None:
    """Volumes that a pod brings itself; their claims carry its name."""
    claims = dict(case.snapshot.volumes.claims)

    def ephemeral(pod: Pod) -> Pod:
        if not pod.spec.volumes or not case.maybe(0.15, "ephemeral-volume"):
            return pod
        first, *rest = pod.spec.volumes
        source = first.persistent_volume_claim
        known = claims.get(f"{pod.namespace}/{source.claim_name}") if source is not None else None
        if known is not None:
            name = f"{pod.name}-{first.name}"
            meta = msgspec.structs.replace(known.metadata, name=name)
            claims[f"{pod.namespace}/{name}"] = msgspec.structs.replace(known, metadata=meta)
        volume = msgspec.convert({"name": first.name, "ephemeral": {}}, type(first))
        return _with_spec(pod, volumes=[volume, *rest])

    def mounting(view: NodeView) -> NodeView:
        if not view.pods or f"{view.pods[0].namespace}/shared" not in claims:
            return view
        if not case.maybe(0.8, "bound-shared-volume"):
            return view
        volume = {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}
        volumes = msgspec.convert({"spec": {"volumes": [volume]}}, Pod).spec.volumes
        return replace(view, pods=(_with_spec(view.pods[0], volumes=volumes), *view.pods[1:]))

    case.pods(ephemeral)
    case.nodes(mounting)
    case.snapshot = replace(case.snapshot, volumes=_with_volumes(case.snapshot.volumes, claims=claims))


def _terminating(case: Extras) -> None:
    """Bound pods on their way out: they take room but count for no rule about peers."""

    def going(view: NodeView) -> NodeView:
        pods = tuple(
            msgspec.structs.replace(
                pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp="2025-06-15T15:00:00Z")
            )
            if case.maybe(0.15, "bound-terminating")
            else pod
            for pod in view.pods
        )
        return replace(view, pods=pods)

    case.nodes(going)


def _odd_selectors(case: Extras) -> None:
    """Spreads without a selector, and label keys that a term of affinity takes from its pod."""

    def changed(pod: Pod) -> Pod:
        spec = pod.spec
        if spec.topology_spread_constraints and case.maybe(0.05, "nil-selector"):
            first, *rest = spec.topology_spread_constraints
            bare = msgspec.structs.replace(first, label_selector=None, match_label_keys=[])
            pod = _with_spec(pod, topology_spread_constraints=[bare, *rest])
        affinity = pod.spec.affinity
        anti = affinity.pod_anti_affinity if affinity is not None else None
        if affinity is not None and anti is not None and anti.required and case.maybe(0.2, "affinity-label-keys"):
            keys = {case.draw.choice(["match_label_keys", "mismatch_label_keys"]): ["rev"]}
            required = [msgspec.structs.replace(anti.required[0], **keys), *anti.required[1:]]
            changed_anti = msgspec.structs.replace(anti, required=required)
            pod = _with_spec(pod, affinity=msgspec.structs.replace(affinity, pod_anti_affinity=changed_anti))
        return pod

    case.pods(changed)


def _numeric_tolerations(case: Extras) -> None:
    """A taint with a number for a value, and tolerations that compare with it."""
    pools = list(case.snapshot.node_pools)
    if not case.maybe(0.06, "numeric-taint"):
        return
    template = pools[0].spec.template
    spec = msgspec.structs.replace(template.spec, taints=[*template.spec.taints, TIER])
    template = msgspec.structs.replace(template, spec=spec)
    pools[0] = msgspec.structs.replace(pools[0], spec=msgspec.structs.replace(pools[0].spec, template=template))
    case.snapshot = replace(case.snapshot, node_pools=tuple(pools))

    def tolerating(pod: Pod) -> Pod:
        if not case.maybe(0.6, "numeric-toleration"):
            return pod
        operator, value = case.draw.choice([("Gt", "3"), ("Lt", "9"), ("Gt", "7"), ("Lt", "x")])
        body = {"key": "tier", "operator": operator, "value": value, "effect": "NoSchedule"}
        tolerations = msgspec.convert({"spec": {"tolerations": [body]}}, Pod).spec.tolerations
        return _with_spec(pod, tolerations=[*pod.spec.tolerations, *tolerations])

    case.pods(tolerating)


def _not_provisionable(case: Extras) -> None:
    """Pending pods that are not ours: of a DaemonSet, of a node, or waiting for a preemption."""

    def changed(pod: Pod) -> Pod:
        if case.maybe(0.015, "preempting-pod"):
            return msgspec.structs.replace(
                pod, status=msgspec.structs.replace(pod.status, nominated_node_name="node-0")
            )
        if case.maybe(0.015, "daemon-owned-pod"):
            owner = {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "name": "daemon-0",
                "uid": "ds-0",
                "controller": True,
            }
            owners = msgspec.convert({"metadata": {"ownerReferences": [owner]}}, Pod).metadata.owner_references
            return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=owners))
        return pod

    case.pods(changed)


def _promised(case: Extras) -> None:
    """Capacity promised to claims that are not seen yet counts against the limits."""
    if case.features & {"limits"} and case.maybe(0.3, "promised-capacity"):
        most = {"cpu": 4000, "memory": 8 * 2**30, "nodes": 1, "nvidia.com/gpu": 1}
        case.snapshot = replace(
            case.snapshot, promised={pool.name: most for pool in case.snapshot.node_pools if pool.spec.limits}
        )


def _with_spec(pod: Pod, **parts: Any) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **parts))


def _with_volumes(objects: VolumeObjects, **parts: Any) -> VolumeObjects:
    return replace(objects, **parts)
