"""Ten scenarios with the provider `kwok`, written once and played on the embedded and on a real cluster.

Each says what must come of it. Where two machines could come in either order, pods are so large that the order does
not matter: a scenario tests what is promised, not who is faster.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pykarpenter.api import kinds, labels
from pykarpenter.kube.contract import Json
from pykarpenter.sim.scheduler.volumes import NO_PROVISIONER
from pykarpenter.sim.views import whole

from .stage import SERVING, Stage

Scenario = Callable[[Stage], Awaitable[None]]

_SCHEDULED = "default-scheduler: Scheduled"
_WAITED = "default-scheduler: FailedScheduling"
_NOMINATED = "karpenter: Nominated"
_REFUSED = "karpenter: FailedScheduling"
BOUGHT = (_SCHEDULED, _WAITED, _NOMINATED)
CONSOLIDATABLE = SERVING.replace("Initialized", "Consolidatable, Initialized")


def _selector(app: str) -> Json:
    return {"matchLabels": {"app": app}}


async def plain_deployment(stage: Stage) -> None:
    await stage.pool()
    await stage.deploy("web", 6, "1")
    await stage.until_run(6)
    await stage.outcome(run="6 web", nodes=2, said=BOUGHT)


async def spread_over_zones(stage: Stage) -> None:
    await stage.pool(zones=["test-zone-a", "test-zone-b", "test-zone-c"])
    spread = {"maxSkew": 1, "topologyKey": labels.ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    await stage.deploy("web", 3, "3", topologySpreadConstraints=[{**spread, "labelSelector": _selector("web")}])
    await stage.until_run(3)
    await stage.outcome(run="3 web", nodes=3, said=BOUGHT)
    await stage.find_zones("test-zone-a 1, test-zone-b 1, test-zone-c 1")


async def one_pod_per_host(stage: Stage) -> None:
    await stage.pool()
    term = {"labelSelector": _selector("web"), "topologyKey": labels.HOSTNAME}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await stage.deploy("web", 3, "500m", affinity=apart)
    await stage.until_run(3)
    await stage.outcome(run="3 web", nodes=3, said=BOUGHT)


async def daemons_need_room(stage: Stage) -> None:
    """Without the daemon two machines would do for six pods; with it they are three."""
    await stage.pool()
    # As daemons are: they go first, wherever they are wanted.
    first = {"tolerations": [{"operator": "Exists"}], "priorityClassName": "system-node-critical"}
    await stage.workload(kinds.DAEMON_SET, "agent", stage.template("agent", "1", **first))
    await stage.deploy("web", 6, "1")
    await stage.until_run(9)
    await stage.outcome(run="3 agent, 6 web", nodes=3, said=BOUGHT)


async def two_pools_by_weight(stage: Stage) -> None:
    """Who tolerates the preferred pool's taint goes there, the other does not."""
    await stage.pool("-red", weight=50, taints=[{"key": "team", "value": "red", "effect": "NoSchedule"}])
    await stage.pool("-any", weight=1)
    await stage.deploy("tolerant", 1, "3", tolerations=[{"key": "team", "operator": "Exists"}])
    await stage.until_run(1)
    await stage.deploy("other", 1, "3")
    await stage.until_run(2)
    await stage.outcome(run="1 other, 1 tolerant", nodes=2, said=BOUGHT)
    where = {n.name: n.metadata.labels[labels.NODEPOOL].removeprefix(stage.name) for n in await stage.all(kinds.NODE)}
    placed = {p.metadata.labels["app"]: where[p.spec["nodeName"]] for p in await stage.running()}
    stage.find("pools", sorted(placed.items()), [("other", "-any"), ("tolerant", "-red")])


async def limit_reached(stage: Stage) -> None:
    await stage.pool(limits={"cpu": "4"})
    await stage.deploy("web", 3, "3")
    await stage.until_run(1)
    await stage.until_said("FailedScheduling", about=2)
    await stage.outcome(run="1 web", wait="2 web False Unschedulable", nodes=1, said=(*BOUGHT, _REFUSED))


async def pods_that_fit_nowhere(stage: Stage) -> None:
    """Two impossible pods are told so and do not hold up the third."""
    await stage.pool()
    await stage.deploy("huge", 1, "1000")
    await stage.deploy("elsewhere", 1, "1", nodeSelector={labels.ZONE: "nowhere"})
    await stage.deploy("fine", 1, "1")
    await stage.until_run(1)
    await stage.until_said("FailedScheduling", about=2)
    waiting = "1 elsewhere False Unschedulable, 1 huge False Unschedulable"
    await stage.outcome(run="1 fine", wait=waiting, nodes=1, said=(*BOUGHT, _REFUSED))


async def budget_holds_a_drain(stage: Stage) -> None:
    """A deleted machine waits for the budget of its pod; when it is raised, the pod moves and the machine goes."""
    await stage.pool()
    await stage.deploy("web", 2, "3")
    await stage.until_run(2)
    await stage.create(kinds.PDB, "web", {"minAvailable": 2, "selector": _selector("web")})

    async def budget_counts() -> bool:
        (budget,) = await stage.all(kinds.PDB)
        return bool(budget.status.get("currentHealthy") == 2)

    await stage.until(budget_counts)
    victim = (await stage.all(kinds.NODE_CLAIM))[0].name
    await stage.api.delete(kinds.NODE_CLAIM, victim)
    await stage.until_said("FailedDraining")
    held = await stage.api.get(whole(kinds.NODE_CLAIM), victim)
    drained = next((c["status"] for c in held.status["conditions"] if c["type"] == "Drained"), "none")
    stage.find("Drained while the budget holds", drained, "Unknown")
    stage.find("pods that run while the budget holds", len(await stage.running()), 2)
    await stage.api.patch(kinds.PDB, "web", {"spec": {"minAvailable": 1}}, stage.namespace)
    await stage.until(lambda: stage.gone(kinds.NODE_CLAIM, victim))
    await stage.until_run(2)
    said = (*BOUGHT, "karpenter: FailedDraining", "karpenter: Evicted")
    await stage.outcome(run="2 web", nodes=2, said=said)


async def volumes_decide_the_zone(stage: Stage) -> None:
    """Volumes that exist in one zone only, bound when their first pod is placed."""
    await stage.pool()
    await _volumes(stage, "test-zone-b", 2)
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": stage.name,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    template = stage.template("db", "3")
    template["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    claims = [{"metadata": {"name": "data"}, "spec": claim}]
    await stage.workload(kinds.STATEFUL_SET, "db", template, replicas=2, serviceName="db", volumeClaimTemplates=claims)
    await stage.until_run(2)
    await stage.outcome(run="2 db", nodes=2, said=BOUGHT)
    await stage.find_zones("test-zone-b 2")
    phases = [c.status.get("phase") for c in await stage.all(kinds.PVC)]
    stage.find("volume claims", phases, ["Bound", "Bound"])


async def _volumes(stage: Stage, zone: str, count: int) -> None:
    expression = {"key": labels.ZONE, "operator": "In", "values": [zone]}
    body: Json = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": stage.name},
        "provisioner": NO_PROVISIONER,
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": labels.ZONE, "values": [zone]}]}],
    }
    await stage.api.create(kinds.STORAGE_CLASS, body)
    for number in range(count):
        spec: Json = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": stage.name,
            "local": {"path": f"/disks/{number}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        }
        await stage.create(kinds.PV, f"{stage.name}-{number}", spec)


async def empty_nodes_go(stage: Stage) -> None:
    await stage.pool(consolidate_after="0s")
    await stage.deploy("web", 2, "3")
    await stage.until_run(2)
    await stage.api.patch(kinds.DEPLOYMENT, "web", {"spec": {"replicas": 1}}, stage.namespace)

    async def one_left() -> bool:
        return len(await stage.all(kinds.NODE_CLAIM)) == 1

    await stage.until(one_left)
    said = (*BOUGHT, "karpenter: DisruptionTerminating")
    await stage.outcome(run="1 web", nodes=1, said=said, conditions=CONSOLIDATABLE)


# Those that take longest first: they are played side by side.
TEN: dict[str, Scenario] = {
    "Empty nodes go": empty_nodes_go,
    "A budget holds a drain": budget_holds_a_drain,
    "Volumes decide the zone": volumes_decide_the_zone,
    "Two pools by weight, one tainted": two_pools_by_weight,
    "A limit is reached": limit_reached,
    "Pods that fit nowhere": pods_that_fit_nowhere,
    "Daemons need room": daemons_need_room,
    "A plain Deployment": plain_deployment,
    "Spread over zones": spread_over_zones,
    "One pod per host": one_pod_per_host,
}
