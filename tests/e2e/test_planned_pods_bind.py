"""What the engine plans, the real kube-scheduler carries out: every planned pod is bound.

Each seed draws a mixed batch: several pools, and workloads with zones, capacity types, spreads, affinity in both
directions, taints, host ports, daemons and preferences. `plan` says which pods can have a place; those must all run,
and on the machines of the first plan: one bought later means that a pod found its room taken, which costs money. Each
such pod is shown with what kube-scheduler last said about it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from .cluster import Cluster, ProgramRunner, wait_until
from .kwok_fleet import CLAIMS, NODES, POOLS
from .workloads import pause_pod_spec

pytestmark = pytest.mark.usefixtures("crds")

ZONE = "topology.kubernetes.io/zone"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
HOSTNAME = "kubernetes.io/hostname"
ZONES = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"]
PODS, CLASSES, MACHINES = 60, 8, 8
SECOND_ROUND = 0.02
SEEDS = [1, 2, 3, 4, 5]
MORE_SEEDS = range(6, 21)


class Batch:
    """One drawn batch: pools, a DaemonSet and Deployments."""

    def __init__(self, seed: int, namespace: str) -> None:
        self.pick = random.Random(seed)
        self.namespace = namespace
        self.pools = [self._pool("general", 10), self._pool("batch", 50, taint=True)]
        self.daemon = self._daemon()
        self.workloads: list[dict[str, Any]] = []
        rules = [
            self._plain, self._zonal_spread, self._host_spread, self._apart, self._together,
            self._zone, self._spot, self._tolerating, self._ports, self._preferring, self._anyway, self._away_from,
        ]  # fmt: skip
        self.pick.shuffle(rules)
        # One rule of each kind, then more of any until there are enough pods.
        while len(self.workloads) < len(rules) or self.pod_count < PODS + 5:
            rule = rules[len(self.workloads) % len(rules)]
            self._workload(rule)

    @property
    def pod_count(self) -> int:
        return sum(item["spec"]["replicas"] for item in self.workloads)

    @property
    def node_class(self) -> dict[str, Any]:
        node_class = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass"}
        return {**node_class, "metadata": {"name": "default"}, "spec": {}}

    def objects(self) -> list[dict[str, Any]]:
        return [self.node_class, *self.pools, self.daemon, *self.workloads]

    def _pool(self, name: str, weight: int, taint: bool = False) -> dict[str, Any]:
        sizes = [f"{family}-{size}x-amd64-linux" for family in ("c", "s", "m") for size in (2, 4, 8)]
        spec: dict[str, Any] = {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": sizes},
                {"key": CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]},
            ],
        }
        if taint:
            spec["taints"] = [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]
        return {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": name},
            "spec": {
                "weight": weight,
                "template": {"metadata": {"labels": {"team": name}}, "spec": spec},
                "disruption": {"consolidateAfter": "Never"},
            },
        }

    def _daemon(self) -> dict[str, Any]:
        labels = {"app": "agent"}
        spec = {**pause_pod_spec(cpu="100m", memory="64Mi"), "tolerations": [{"operator": "Exists"}]}
        return {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent", "namespace": self.namespace},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
        }

    def _workload(self, rule: Any) -> None:
        name = f"w{len(self.workloads):02d}"
        labels = {"app": name, "kind": rule.__name__.strip("_").replace("_", "-")}
        cpu = self.pick.choice(["250m", "500m", "900m", "1500m"])
        spec = pause_pod_spec(cpu=cpu, memory=self.pick.choice(["256Mi", "1Gi", "2Gi"]))
        replicas = rule(spec, {"matchLabels": {"app": name}})
        self.workloads.append(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": {"app": name}},
                    "template": {"metadata": {"labels": labels}, "spec": spec},
                },
            }
        )

    # The rules: each changes the spec and answers how many replicas there are.

    def _plain(self, spec: dict[str, Any], _: dict[str, Any]) -> int:
        return self.pick.randint(3, 8)

    def _zonal_spread(self, spec: dict[str, Any], selector: dict[str, Any]) -> int:
        spec["topologySpreadConstraints"] = [_spread(ZONE, selector)]
        return self.pick.randint(5, 9)

    def _host_spread(self, spec: dict[str, Any], selector: dict[str, Any]) -> int:
        spec["topologySpreadConstraints"] = [_spread(HOSTNAME, selector, max_skew=2)]
        return self.pick.randint(5, 8)

    def _apart(self, spec: dict[str, Any], selector: dict[str, Any]) -> int:
        spec["affinity"] = {"podAntiAffinity": _required(HOSTNAME, selector)}
        return self.pick.randint(5, 8)

    def _together(self, spec: dict[str, Any], selector: dict[str, Any]) -> int:
        spec["affinity"] = {"podAffinity": _required(ZONE, selector)}
        return self.pick.randint(4, 6)

    def _zone(self, spec: dict[str, Any], _: dict[str, Any]) -> int:
        spec["nodeSelector"] = {ZONE: self.pick.choice(ZONES)}
        return self.pick.randint(3, 6)

    def _spot(self, spec: dict[str, Any], _: dict[str, Any]) -> int:
        spec["nodeSelector"] = {CAPACITY_TYPE: self.pick.choice(["spot", "on-demand"])}
        return self.pick.randint(3, 6)

    def _tolerating(self, spec: dict[str, Any], _: dict[str, Any]) -> int:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        spec["nodeSelector"] = {"team": "batch"}
        return self.pick.randint(3, 6)

    def _ports(self, spec: dict[str, Any], _: dict[str, Any]) -> int:
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
        return self.pick.randint(3, 5)

    def _preferring(self, spec: dict[str, Any], _: dict[str, Any]) -> int:
        expression = {"key": ZONE, "operator": "In", "values": [self.pick.choice([*ZONES, "nowhere"])]}
        preference = {"weight": 10, "preference": {"matchExpressions": [expression]}}
        spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
        return self.pick.randint(3, 6)

    def _anyway(self, spec: dict[str, Any], selector: dict[str, Any]) -> int:
        constraint = {**_spread(ZONE, selector), "whenUnsatisfiable": "ScheduleAnyway"}
        spec["topologySpreadConstraints"] = [constraint]
        return self.pick.randint(3, 6)

    def _away_from(self, spec: dict[str, Any], _: dict[str, Any]) -> int:
        spec["affinity"] = {"podAntiAffinity": _required(HOSTNAME, {"matchLabels": {"kind": "ports"}})}
        return self.pick.randint(3, 5)


def _spread(key: str, selector: dict[str, Any], max_skew: int = 1) -> dict[str, Any]:
    return {
        "maxSkew": max_skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }


def _required(key: str, selector: dict[str, Any]) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": selector}]}


class Tally:
    """Pods of all seeds that ran, and those of them that needed a second round."""

    def __init__(self) -> None:
        self.pods = 0
        self.late: list[str] = []


@pytest.fixture(scope="module")
def tally() -> Iterator[Tally]:
    """Judged once all seeds ran: a group that must stay together moves as a whole, which is much for one seed."""
    counted = Tally()
    yield counted
    found = f"{len(counted.late)} of {counted.pods} pods needed a second round of machines"
    print("\n".join([found, *counted.late]))
    assert len(counted.late) <= SECOND_ROUND * counted.pods, "\n".join([found, *counted.late])


def planned(programs: ProgramRunner, batch: Batch) -> dict[str, Any]:
    """What `plan` says about the batch on an empty cluster."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": batch.objects()})
    answer = programs.call("plan", "-f", "-", "-o", "json", input=text, timeout_s=180)
    assert answer.returncode in (0, 2), answer.stderr
    plan: dict[str, Any] = json.loads(answer.stdout)
    return plan


@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.full) for seed in MORE_SEEDS)])
def test_the_real_scheduler_binds_every_planned_pod(
    cluster: Cluster, namespace: str, programs: ProgramRunner, tally: Tally, seed: int
) -> None:
    """A plan is worth nothing unless kube-scheduler agrees with it, pod by pod."""
    batch = Batch(seed, namespace)
    plan = planned(programs, batch)
    expected = sum(len(node["pods"]) for node in plan["nodes"])
    assert expected >= PODS
    assert len(batch.workloads) >= CLASSES
    assert len(plan["nodes"]) >= MACHINES
    assert not plan["unschedulable"]

    # All pods are pending and all pools usable before the first decision, as at a roll-out: one plan for all of them.
    make_ready(cluster, programs, batch)
    cluster.apply(batch.daemon, *batch.workloads)
    wait_until(
        lambda: sum(is_unschedulable(pod) for pod in pods(cluster, namespace)) == expected,
        what=f"kube-scheduler has no place for {expected} pods",
    )
    program = programs.start("run", "--provider", "kwok")
    wait_until(
        lambda: all(pod["spec"].get("nodeName") for pod in pods(cluster, namespace)),
        180,
        what=lambda: f"all {expected} pods are bound; waiting: {waiting(cluster, namespace)}",
    )
    plans = [entry for entry in program.log_entries() if entry["message"] == "computed new nodeclaim(s) to fit pod(s)"]
    assert plans[0]["pods"] == expected, "the first plan is not about all pods"
    late = second_round(cluster, namespace, plans[0]["plan"])
    found = f"seed {seed}: {expected} pods on {len(cluster.admin.items(NODES))} nodes, {len(late)} in a second round"
    print("\n".join([found, *late]))
    tally.pods += expected
    tally.late.extend(f"seed {seed}: {pod}" for pod in late)


def make_ready(cluster: Cluster, programs: ProgramRunner, batch: Batch) -> None:
    """Create the pools and let a first process find them Ready."""
    cluster.apply(batch.node_class, *batch.pools)
    first = programs.start("run", "--provider", "kwok")
    wait_until(lambda: all(is_ready(pool) for pool in cluster.admin.items(POOLS)), what="the pools are Ready")
    first.terminate()


def pods(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """The pods of the workloads, without the daemons."""
    found = cluster.admin.items(f"/api/v1/namespaces/{namespace}/pods")
    return [pod for pod in found if pod["metadata"]["labels"]["app"] != "agent"]


def is_unschedulable(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)


def is_ready(pool: dict[str, Any]) -> bool:
    conditions = pool.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def waiting(cluster: Cluster, namespace: str) -> list[str]:
    return [
        f"{pod['metadata']['name']}: {condition.get('message')}"
        for pod in pods(cluster, namespace)
        if not pod["spec"].get("nodeName")
        for condition in pod["status"].get("conditions", [])
    ]


def second_round(cluster: Cluster, namespace: str, first_plan: str) -> list[str]:
    """Pods on machines that were bought after the first plan, each with the scheduler's last word on it."""
    later = {
        claim["status"]["nodeName"]: claim["metadata"]["name"]
        for claim in cluster.admin.items(CLAIMS)
        if claim["metadata"]["annotations"]["pykarpenter.sh/plan-id"] != first_plan
    }
    refusals = {
        event["involvedObject"]["name"]: event["message"]
        for event in cluster.admin.items(f"/api/v1/namespaces/{namespace}/events")
        if event["reason"] == "FailedScheduling" and event["reportingComponent"] == "default-scheduler"
    }
    return [
        f"{name} ({pod['metadata']['labels']['kind']}) is on {node}, bought later as {later[node]}; "
        f"before: {refusals.get(name, 'nothing was said')}"
        for pod in pods(cluster, namespace)
        for name, node in [(pod["metadata"]["name"], pod["spec"]["nodeName"])]
        if node in later
    ]
