"""Random clusters from a seed, small and nasty: every rule of scheduling occurs in a fair share of the cases."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pykarpenter.api import labels
from pykarpenter.api.meta import Object
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.api.nodes import CSINode, Node
from pykarpenter.api.pods import Pod, TopologySpreadConstraint
from pykarpenter.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from pykarpenter.api.workloads import DaemonSet, Namespace, PodDisruptionBudget, ReplicaSet, Service
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.requirements import Requirements, requirement
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView, SelectorObjects, VolumeObjects
from tests.reference.extras import with_extras

ZONES = ["zone-a", "zone-b", "zone-c"]
RESERVATION = "pykarpenter.sh/reservation-id"
RULES = labels.LabelRules(well_known=labels.WELL_KNOWN | {RESERVATION})
DRIVER = "csi.example.com"
NOW = 1_750_000_000.0
GI = 2**30


@dataclass
class Case:
    """One generated cluster and the names of the rules it exercises."""

    seed: int
    snapshot: ClusterSnapshot
    settings: PackingSettings
    features: set[str] = field(default_factory=set)


class Generator:
    """Draws one case; every choice comes from the seed."""

    def __init__(self, seed: int, pods: tuple[int, int] = (4, 24)) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.features: set[str] = set()
        self.pod_range = pods
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.reserved = self._maybe(0.15, "reserved")

    def _maybe(self, chance: float, feature: str) -> bool:
        if self.random.random() < chance:
            self.features.add(feature)
            return True
        return False

    def case(self) -> Case:
        types = self._types()
        pools = self._pools()
        daemon_sets = self._daemon_sets()
        classes = self._storage_classes()
        nodes = self._nodes(pools, types)
        pods = self._pods(pools)
        csi_nodes = self._csi_nodes(nodes)
        settings = self._settings()
        buffer_pods = self._buffer_pods()
        snapshot = ClusterSnapshot(
            now=NOW,
            pods=tuple(pods),
            buffer_pods=tuple(buffer_pods),
            nodes=tuple(nodes),
            node_pools=tuple(pools),
            instance_types={p.name: types for p in pools},
            daemon_sets=tuple(daemon_sets),
            pdbs=tuple(self._pdbs()),
            namespaces={n: _of(Namespace, {"metadata": {"name": n, "labels": {"tier": n}}}) for n in ("apps", "jobs")},
            volumes=VolumeObjects(self.claims, self.volumes, classes, csi_nodes),
            selectors=self._selectors(),
        )
        snapshot, settings = with_extras(self.seed, snapshot, settings, self.features)
        return Case(self.seed, snapshot, settings, self.features)

    def _settings(self) -> PackingSettings:
        ignore = self._maybe(0.25, "preference-policy-ignore")
        best_effort = self._maybe(0.2, "min-values-best-effort")
        spread: tuple[TopologySpreadConstraint, ...] = ()
        if self._maybe(0.12, "default-spread"):
            spread = (
                TopologySpreadConstraint(
                    max_skew=1,
                    topology_key=labels.ZONE,
                    when_unsatisfiable=self.random.choice(["DoNotSchedule", "ScheduleAnyway"]),
                ),
            )
        return PackingSettings(
            preference_policy="Ignore" if ignore else "Respect",
            min_values_policy="BestEffort" if best_effort else "Strict",
            default_spread=spread,
            label_rules=RULES,
            reservation_id_label=RESERVATION,
            effort="off",
        )

    # Supply.

    def _types(self) -> tuple[InstanceType, ...]:
        found = []
        for index in range(self.random.randint(4, 12)):
            cpu = self.random.choice([1, 2, 4, 8, 16])
            ratio = self.random.choice([2, 4, 8])
            arch = "arm64" if self._maybe(0.2, "arm64") else "amd64"
            name = f"t{index:02d}-{cpu}x{ratio}-{arch}"
            capacity = {"cpu": cpu * 1000, "memory": cpu * ratio * GI, "pods": cpu * 8, "ephemeral-storage": 20 * GI}
            if self._maybe(0.2, "gpu-type"):
                capacity["nvidia.com/gpu"] = self.random.choice([1, 2, 4])
            limits = {DRIVER: self.random.randint(1, 4)} if self._maybe(0.3, "volume-attachment-limits") else {}
            offerings = self._offerings(cpu, ratio)
            requirements = Requirements(
                [
                    requirement(labels.INSTANCE_TYPE, "In", [name]),
                    requirement(labels.ARCH, "In", [arch]),
                    requirement(labels.OS, "In", ["linux"]),
                    requirement(labels.ZONE, "In", sorted({o.zone for o in offerings})),
                    requirement(labels.CAPACITY_TYPE, "In", sorted({o.capacity_type for o in offerings})),
                    requirement(labels.REGION, "DoesNotExist"),
                    requirement(labels.WINDOWS_BUILD, "DoesNotExist"),
                ]
            )
            found.append(
                InstanceType(name, requirements, offerings, capacity, {"cpu": 100, "memory": 10 * 2**20}, limits)
            )
        return tuple(found)

    def _offerings(self, cpu: int, ratio: int) -> tuple[Offering, ...]:
        base = cpu * (0.02 + 0.005 * ratio) * self.random.uniform(0.8, 1.3)
        zones = ZONES if self.random.random() < 0.7 else self.random.sample(ZONES, 2)
        result = []
        for zone in zones:
            for capacity_type, factor in (("on-demand", 1.0), ("spot", 0.6)):
                usable = not self._maybe(0.08, "unavailable-offering")
                result.append(self._offering(zone, capacity_type, round(base * factor, 4), usable))
            if self.reserved and self.random.random() < 0.4:
                identity = f"cr-{self.random.randint(0, 1)}"
                units = self.random.choice([0, 1, 2])
                result.append(self._offering(zone, "reserved", 0.0001, True, identity, units))
        return tuple(result)

    def _offering(
        self, zone: str, capacity_type: str, price: float, usable: bool, identity: str = "", units: int = 0
    ) -> Offering:
        items = [requirement(labels.ZONE, "In", [zone]), requirement(labels.CAPACITY_TYPE, "In", [capacity_type])]
        if self.reserved:
            operator = ("In", [identity]) if identity else ("DoesNotExist", [])
            items.append(requirement(RESERVATION, *operator))
        return Offering(Requirements(items), price, usable, units, identity)

    def _pools(self) -> list[NodePool]:
        return [self._pool(index) for index in range(self.random.choice([1, 1, 2, 3]))]

    def _pool(self, index: int) -> NodePool:
        pick = self.random
        requirements: list[dict[str, Any]] = []
        if self._maybe(0.3, "pool-zone-requirement"):
            requirements.append({"key": labels.ZONE, "operator": "In", "values": pick.sample(ZONES, 2)})
        if self._maybe(0.25, "pool-arch-requirement"):
            requirements.append({"key": labels.ARCH, "operator": "In", "values": ["amd64"]})
        if self._maybe(0.15, "min-values"):
            requirements.append({"key": labels.INSTANCE_TYPE, "operator": "Exists", "minValues": pick.randint(2, 4)})
        if self._maybe(0.2, "custom-key-requirement"):
            requirements.append({"key": "example.com/disk", "operator": "In", "values": ["ssd", "hdd"]})
        if self._maybe(0.15, "numeric-requirement"):
            requirements.append({"key": "example.com/generation", "operator": "In", "values": ["3", "5", "7"]})
        spec: dict[str, Any] = {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": requirements,
        }
        if self._maybe(0.25, "pool-taint"):
            spec["taints"] = [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]
        if self._maybe(0.12, "pool-prefer-no-schedule"):
            spec.setdefault("taints", []).append({"key": "soft", "value": "x", "effect": "PreferNoSchedule"})
        if self._maybe(0.15, "startup-taint"):
            spec["startupTaints"] = [{"key": "boot", "value": "x", "effect": "NoSchedule"}]
        template: dict[str, Any] = {"metadata": {"labels": {"team": pick.choice(["red", "blue"])}}, "spec": spec}
        body: dict[str, Any] = {"template": template}
        if self._maybe(0.3, "weight"):
            body["weight"] = pick.randint(1, 100)
        if self._maybe(0.25, "limits"):
            name = pick.choice(["cpu", "memory", "nodes", "nvidia.com/gpu"])
            body["limits"] = {name: {"cpu": "24", "memory": "64Gi", "nodes": "3", "nvidia.com/gpu": "2"}[name]}
            self.features.add(f"limit-{name}")
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        if self._maybe(0.06, "pool-not-ready"):
            status = {"conditions": [{"type": "Ready", "status": "False"}]}
        if index and self._maybe(0.15, "static-pool"):
            body.pop("weight", None)
            body.pop("limits", None)
            body["replicas"] = 1
        return _of(
            NodePool, {"metadata": {"name": f"pool-{index}", "uid": f"pool-{index}"}, "spec": body, "status": status}
        )

    def _daemon_sets(self) -> list[DaemonSet]:
        found = []
        for index in range(self.random.choice([0, 0, 1, 2])):
            self.features.add("daemon-set")
            pod: dict[str, Any] = {"containers": [_container(self.random.choice([50, 200]), 64)]}
            if self._maybe(0.4, "daemon-tolerates"):
                pod["tolerations"] = [{"operator": "Exists"}]
            if self._maybe(0.3, "daemon-selects"):
                pod["nodeSelector"] = {labels.ARCH: "amd64"}
            if self._maybe(0.3, "daemon-terms"):
                pod["affinity"] = {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [_expression(labels.ZONE, "In", ["zone-x"])]},
                                {"matchExpressions": [_expression(labels.CAPACITY_TYPE, "In", ["spot"])]},
                            ]
                        }
                    }
                }
            if self._maybe(0.2, "daemon-host-port"):
                pod["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 9100}]
            meta = {"name": f"daemon-{index}", "namespace": "kube-system", "uid": f"ds-{index}"}
            found.append(_of(DaemonSet, {"metadata": meta, "spec": {"template": {"spec": pod}}}))
        return found

    def _storage_classes(self) -> dict[str, StorageClass]:
        wait = {"provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer"}
        zonal = {
            **wait,
            "allowedTopologies": [
                {"matchLabelExpressions": [{"key": labels.ZONE, "values": ["zone-a"]}]},
                {"matchLabelExpressions": [{"key": labels.ZONE, "values": ["zone-c"]}]},
            ],
        }
        immediate = {"provisioner": DRIVER, "volumeBindingMode": "Immediate"}
        return {
            name: _of(StorageClass, {"metadata": {"name": name}, **body})
            for name, body in (("wait", wait), ("zonal", zonal), ("immediate", immediate))
        }

    def _nodes(self, pools: list[NodePool], types: tuple[InstanceType, ...]) -> list[NodeView]:
        return [self._node(index, pools, types) for index in range(self.random.choice([0, 0, 1, 2, 4]))]

    def _node(self, index: int, pools: list[NodePool], types: tuple[InstanceType, ...]) -> NodeView:
        pick = self.random
        self.features.add("existing-node")
        item = pick.choice(types)
        pool = pick.choice(pools)
        managed = not self._maybe(0.25, "unmanaged-node")
        name = f"node-{index}"
        values = {
            labels.HOSTNAME: name,
            labels.ZONE: pick.choice(ZONES),
            labels.ARCH: sorted(item.requirements[labels.ARCH].values)[0],
            labels.OS: "linux",
            labels.INSTANCE_TYPE: item.name,
            labels.CAPACITY_TYPE: "on-demand",
        }
        if managed:
            values[labels.NODEPOOL] = pool.name
            values["team"] = pool.spec.template.metadata.labels["team"]
        initialized = not (managed and self._maybe(0.25, "uninitialized-node"))
        taints: list[dict[str, str]] = []
        if self._maybe(0.15, "node-taint"):
            taints.append({"key": "dedicated", "value": "batch", "effect": "NoSchedule"})
        if self._maybe(0.1, "node-prefer-no-schedule"):
            taints.append({"key": "soft", "value": "x", "effect": "PreferNoSchedule"})
        bound = [self._bound_pod(index, number, name) for number in range(pick.randint(0, 3))]
        node = _of(
            Node,
            {
                "metadata": {"name": name, "labels": values},
                "spec": {"providerID": f"test://{name}", "taints": taints},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            },
        )
        claim = _of(NodeClaim, {"metadata": {"name": f"claim-{index}", "labels": values}}) if managed else None
        return NodeView(
            name=name,
            provider_id=f"test://{name}",
            node=node,
            claim=claim,
            labels=values,
            taints=tuple(node.spec.taints),
            capacity=dict(item.capacity),
            allocatable=item.allocatable(),
            pods=tuple(bound),
            managed=managed,
            initialized=initialized,
            marked_for_deletion=managed and self._maybe(0.15, "leaving-node"),
            rebooting=initialized and managed and self._maybe(0.15, "rebooting-node"),
        )

    def _bound_pod(self, node_index: int, number: int, node: str) -> Pod:
        spec: dict[str, Any] = {"nodeName": node, "containers": [_container(self.random.choice([100, 250]), 128)]}
        if self._maybe(0.12, "bound-anti-affinity"):
            spec["affinity"] = {
                "podAntiAffinity": _required_terms([_term(labels.HOSTNAME, {"app": self.random.choice("abc")})])
            }
        # A draw of its own, so that older seeds keep their clusters.
        if number == 0 and random.Random(f"{self.seed}-{node_index}").random() < 0.2:
            self.features.add("bound-host-port")
            spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
        meta: dict[str, Any] = {
            "name": f"bound-{node_index}-{number}",
            "namespace": self.random.choice(["apps", "jobs"]),
            "uid": f"bound-{node_index}-{number}",
            "labels": {"app": self.random.choice("abc")},
        }
        if self._maybe(0.1, "bound-do-not-disrupt"):
            meta["annotations"] = {labels.DO_NOT_DISRUPT: "true"}
        return _of(Pod, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})

    def _csi_nodes(self, nodes: list[NodeView]) -> dict[str, CSINode]:
        found = {}
        for node in nodes:
            if self._maybe(0.3, "csi-node"):
                allocatable = {"count": self.random.randint(0, 2)} if self._maybe(0.7, "csi-limit") else None
                driver = {"name": DRIVER, "nodeID": node.name, "allocatable": allocatable}
                found[node.name] = _of(CSINode, {"metadata": {"name": node.name}, "spec": {"drivers": [driver]}})
        return found

    def _pdbs(self) -> list[PodDisruptionBudget]:
        if not self._maybe(0.1, "blocking-pdb"):
            return []
        spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "a"}}}
        return [_of(PodDisruptionBudget, {"metadata": {"name": "hold", "namespace": "apps"}, "spec": spec})]

    def _selectors(self) -> SelectorObjects:
        service = _of(Service, {"metadata": {"name": "a", "namespace": "apps"}, "spec": {"selector": {"app": "a"}}})
        replica_set = {
            "metadata": {"name": "rs-b", "namespace": "apps", "uid": "rs-b"},
            "spec": {"selector": {"matchLabels": {"app": "b"}}},
        }
        return SelectorObjects((service,), {"apps/rs-b": _of(ReplicaSet, replica_set)})

    def _buffer_pods(self) -> list[Pod]:
        if not self._maybe(0.1, "buffer-pods"):
            return []
        meta = {"namespace": "apps", "labels": {"app": "c"}, "annotations": {labels.CAPACITY_BUFFER_FAKE_POD: "true"}}
        spec = {"containers": [_container(500, 512)], "priority": -(2**31)}
        return [
            _of(Pod, {"metadata": {**meta, "name": f"capacity-buffer-b-{i}", "uid": f"buf-{i}"}, "spec": spec})
            for i in (1, 2)
        ]

    # Demand.

    def _pods(self, pools: list[NodePool]) -> list[Pod]:
        wanted = self.random.randint(*self.pod_range)
        pods: list[Pod] = []
        while len(pods) < wanted:
            pods += self._workload(len(pods), self.random.randint(1, 6))
        return pods

    def _workload(self, start: int, replicas: int) -> list[Pod]:
        app = self.random.choice("abc")
        namespace = "jobs" if self._maybe(0.2, "second-namespace") else "apps"
        spec = self._pod_spec(app)
        status: dict[str, Any] = {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        }
        if self._maybe(0.05, "gated-pod"):
            status["conditions"][0]["reason"] = "SchedulingGated"
        owner: list[dict[str, Any]] = []
        if app == "b" and namespace == "apps":
            owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs-b", "uid": "rs-b", "controller": True}]
        pods = []
        for offset in range(replicas):
            name = f"pod-{start + offset:03d}"
            meta = {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{start + offset:03d}",
                "labels": {"app": app, "rev": self.random.choice(["1", "1", "2"])},
                "ownerReferences": owner,
            }
            body = dict(spec)
            if "volumes" in spec:
                body["volumes"] = self._volumes(name, namespace)
            pods.append(_of(Pod, {"metadata": meta, "spec": body, "status": status}))
        return pods

    def _pod_spec(self, app: str) -> dict[str, Any]:
        pick = self.random
        cpu = pick.choice([100, 250, 500, 1000, 1900, 3000])
        container = _container(cpu, pick.choice([128, 512, 1024, 4096, 12000]))
        if self._maybe(0.06, "gpu-pod"):
            container["resources"]["requests"]["nvidia.com/gpu"] = "1"
        if self._maybe(0.03, "oversized-pod"):
            container["resources"]["requests"]["cpu"] = "500"
        spec: dict[str, Any] = {"containers": [container]}
        self._resources(spec)
        self._node_choice(spec)
        self._tolerations(spec)
        self._topology(spec, app)
        if self._maybe(0.07, "host-port"):
            container["ports"] = [{"containerPort": 80, "hostPort": pick.choice([8080, 9100])}]
        if self._maybe(0.15, "volumes"):
            spec["volumes"] = []
        if self._maybe(0.03, "dra-pod"):
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        return spec

    def _resources(self, spec: dict[str, Any]) -> None:
        if self._maybe(0.08, "init-container"):
            spec["initContainers"] = [_container(2000, 256)]
        if self._maybe(0.06, "sidecar"):
            spec.setdefault("initContainers", []).append({**_container(150, 64), "restartPolicy": "Always"})
        if self._maybe(0.05, "overhead"):
            spec["overhead"] = {"cpu": "100m", "memory": "32Mi"}
        if self._maybe(0.05, "pod-level-resources"):
            spec["resources"] = {"requests": {"cpu": "700m", "memory": "300Mi"}}

    def _node_choice(self, spec: dict[str, Any]) -> None:
        pick = self.random
        if self._maybe(0.12, "selector-zone"):
            spec["nodeSelector"] = {labels.ZONE: pick.choice(ZONES)}
        elif self._maybe(0.1, "selector-custom"):
            spec["nodeSelector"] = {pick.choice(["team", "example.com/disk"]): pick.choice(["red", "blue", "ssd"])}
        elif self._maybe(0.04, "selector-undefined"):
            spec["nodeSelector"] = {"example.com/unknown": "x"}
        elif self._maybe(0.04, "selector-alias"):
            spec["nodeSelector"] = {"failure-domain.beta.kubernetes.io/zone": pick.choice(ZONES)}
        node: dict[str, Any] = {}
        if self._maybe(0.12, "required-terms"):
            terms = [
                {"matchExpressions": [_expression(labels.ZONE, "In", [pick.choice([*ZONES, "zone-x"])])]},
                {"matchExpressions": [_expression(labels.CAPACITY_TYPE, "In", [pick.choice(["spot", "on-demand"])])]},
            ]
            node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        elif "example.com/unknown" not in spec.get("nodeSelector", {}) and self._maybe(0.1, "required-operator"):
            expression = pick.choice(
                [
                    _expression(labels.ZONE, "NotIn", [pick.choice(ZONES)]),
                    _expression("example.com/unknown", "DoesNotExist", []),
                    _expression("example.com/generation", "Gt", ["3"]),
                    _expression("example.com/generation", "Lte", ["5"]),
                    _expression("team", "Exists", []),
                ]
            )
            term = {"matchExpressions": [expression]}
            node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}
        elif self._maybe(0.03, "match-fields"):
            term = {"matchFields": [_expression("metadata.name", "In", ["node-0"])]}
            node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}
        elif self._maybe(0.03, "opted-out"):
            term = {"matchExpressions": [_expression(labels.NODEPOOL, "DoesNotExist", [])]}
            node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}
        if self._maybe(0.12, "preferred-node-affinity"):
            preference = {"matchExpressions": [_expression(labels.ZONE, "In", [pick.choice([*ZONES, "zone-x"])])]}
            node["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": 10, "preference": preference}]
        if node:
            spec.setdefault("affinity", {})["nodeAffinity"] = node

    def _tolerations(self, spec: dict[str, Any]) -> None:
        if self._maybe(0.25, "toleration"):
            toleration = self.random.choice(
                [
                    {"key": "dedicated", "operator": "Exists"},
                    {"key": "dedicated", "value": "batch", "effect": "NoSchedule"},
                    {"operator": "Exists"},
                ]
            )
            spec["tolerations"] = [toleration]

    def _topology(self, spec: dict[str, Any], app: str) -> None:
        pick = self.random
        spread = []
        if self._maybe(0.15, "zonal-spread"):
            spread.append(self._spread(labels.ZONE, app))
        if self._maybe(0.1, "hostname-spread"):
            spread.append(self._spread(labels.HOSTNAME, app))
        if self._maybe(0.05, "capacity-type-spread"):
            spread.append(self._spread(labels.CAPACITY_TYPE, app))
        if spread:
            spec["topologySpreadConstraints"] = spread
        affinity = spec.setdefault("affinity", {})
        if self._maybe(0.1, "pod-affinity"):
            key = pick.choice([labels.ZONE, labels.ZONE, labels.HOSTNAME])
            affinity["podAffinity"] = _required_terms([self._affinity_term(key, pick.choice([app, app, "a"]))])
        elif self._maybe(0.06, "preferred-pod-affinity"):
            affinity["podAffinity"] = _preferred_terms([_term(labels.ZONE, {"app": pick.choice("abc")})])
        if self._maybe(0.1, "pod-anti-affinity"):
            key = pick.choice([labels.ZONE, labels.HOSTNAME, labels.HOSTNAME])
            affinity["podAntiAffinity"] = _required_terms([self._affinity_term(key, pick.choice("abc"))])
        elif self._maybe(0.06, "preferred-pod-anti-affinity"):
            affinity["podAntiAffinity"] = _preferred_terms([_term(labels.HOSTNAME, {"app": app})])
        if not affinity:
            del spec["affinity"]

    def _spread(self, key: str, app: str) -> dict[str, Any]:
        constraint: dict[str, Any] = {
            "maxSkew": self.random.choice([1, 1, 2]),
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway" if self._maybe(0.3, "schedule-anyway") else "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
        }
        if key != labels.HOSTNAME and self._maybe(0.3, "min-domains"):
            constraint["minDomains"] = self.random.choice([2, 3, 4])
            constraint["whenUnsatisfiable"] = "DoNotSchedule"
        if self._maybe(0.25, "spread-taints-honor"):
            constraint["nodeTaintsPolicy"] = "Honor"
        if self._maybe(0.2, "spread-affinity-ignore"):
            constraint["nodeAffinityPolicy"] = "Ignore"
        if self._maybe(0.25, "match-label-keys"):
            constraint["matchLabelKeys"] = ["rev"]
        return constraint

    def _affinity_term(self, key: str, app: str) -> dict[str, Any]:
        term = _term(key, {"app": app})
        if self._maybe(0.25, "term-namespaces"):
            term["namespaces"] = ["apps", "jobs"]
        elif self._maybe(0.25, "term-namespace-selector"):
            term["namespaceSelector"] = {"matchLabels": {"tier": "apps"}}
        return term

    def _volumes(self, pod: str, namespace: str) -> list[dict[str, Any]]:
        found = []
        for index in range(self.random.choice([1, 1, 2])):
            name = "shared" if self._maybe(0.15, "shared-volume") else f"{pod}-data-{index}"
            key = f"{namespace}/{name}"
            if key not in self.claims and not self._maybe(0.06, "missing-volume-claim"):
                self.claims[key] = self._volume_claim(name, namespace)
            found.append({"name": f"v{index}", "persistentVolumeClaim": {"claimName": name}})
        return found

    def _volume_claim(self, name: str, namespace: str) -> PersistentVolumeClaim:
        meta: dict[str, Any] = {"name": name, "namespace": namespace}
        if self._maybe(0.4, "bound-volume"):
            volume = f"pv-{namespace}-{name}"
            zones = [self.random.choice(ZONES)] if self.random.random() < 0.7 else self.random.sample(ZONES, 2)
            terms = [{"matchExpressions": [_expression(labels.ZONE, "In", [zone])]} for zone in zones]
            body = {
                "metadata": {"name": volume},
                "spec": {
                    "csi": {"driver": DRIVER, "volumeHandle": volume},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
                },
            }
            if not self._maybe(0.1, "lost-volume"):
                self.volumes[volume] = _of(PersistentVolume, body)
            meta["annotations"] = {labels.BIND_COMPLETED: "yes"}
            return _of(
                PersistentVolumeClaim, {"metadata": meta, "spec": {"volumeName": volume}, "status": {"phase": "Bound"}}
            )
        storage_class = self.random.choice(["wait", "wait", "zonal", "zonal", "immediate"])
        self.features.add(f"storage-class-{storage_class}")
        return _of(PersistentVolumeClaim, {"metadata": meta, "spec": {"storageClassName": storage_class}})


def generate(seed: int, pods: tuple[int, int] = (4, 24)) -> Case:
    return Generator(seed, pods).case()


def _of(kind: type[Any], body: dict[str, Any]) -> Any:
    converted = msgspec.convert(body, kind)
    assert isinstance(converted, Object)
    return converted


def _container(cpu_m: int, memory_mi: int) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": {"cpu": f"{cpu_m}m", "memory": f"{memory_mi}Mi"}}}


def _expression(key: str, operator: str, values: list[str]) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": values}


def _term(key: str, match: dict[str, str]) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": match}}


def _required_terms(terms: list[dict[str, Any]]) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


def _preferred_terms(terms: list[dict[str, Any]]) -> dict[str, Any]:
    weighted = [{"weight": 5, "podAffinityTerm": t} for t in terms]
    return {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
