"""What a scenario plays on: any cluster with the program in it, and what can be asked there afterwards.

A scenario has a namespace, NodePools and nodes of its own, told apart by a label, so that several play at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import ObjectMeta, Wire, condition_status
from pykarpenter.api.nodes import EventSource, ObjectReference
from pykarpenter.kube.contract import Json, KubeApi, Selection, list_all
from pykarpenter.kube.errors import NotFound
from pykarpenter.sim.views import RawObject, whole
from tests.conformance.sides import Finding

SCENARIO = "example.com/scenario"
FOUR = "c-4x-amd64-linux"
POLL_S = 0.5
# Who speaks for Kubernetes' scheduler and for the program; what else publishes events is not compared.
SPEAKERS = ("karpenter", "default-scheduler")
# Said or not said depending on how fast the one or other is: a scheduler that retries, a node seen while it comes.
PASSING = {"DisruptionBlocked", "Unconsolidatable", "Preempted"}
SERVING = "ConsistentStateFound, Initialized, Launched, Ready, Registered"


class _Event(Wire):
    """An Event with who published it: older clients fill `source`, newer ones `reportingComponent`."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    source: EventSource = EventSource()
    reporting_component: str = ""

    @property
    def speaker(self) -> str:
        return self.reporting_component or self.source.component

    @property
    def counts(self) -> bool:
        return self.speaker in SPEAKERS and self.reason not in PASSING


_EVENT = kinds.Kind("", "v1", "Event", "events", True, _Event)


@dataclass
class Stage:
    """One scenario on one cluster."""

    api: KubeApi
    name: str
    namespace: str
    patience_s: float = 120.0
    findings: list[Finding] = field(default_factory=list)

    # Doing.

    async def pool(
        self,
        suffix: str = "",
        *,
        zones: list[str] | None = None,
        limits: Json | None = None,
        weight: int | None = None,
        taints: list[Json] | None = None,
        consolidate_after: str = "Never",
    ) -> None:
        """A NodePool of machines with four cores; nodes stay unless the scenario says otherwise."""
        requirements = [_in(labels.INSTANCE_TYPE, [FOUR]), _in(labels.CAPACITY_TYPE, ["on-demand"])]
        if zones:
            requirements.append(_in(labels.ZONE, zones))
        spec: Json = {
            "template": {
                "metadata": {"labels": {SCENARIO: self.name}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": requirements,
                    "expireAfter": "Never",
                },
            },
            "disruption": {"consolidateAfter": consolidate_after, "budgets": [{"nodes": "100%"}]},
        }
        if taints:
            spec["template"]["spec"]["taints"] = taints
        if limits:
            spec["limits"] = limits
        if weight:
            spec["weight"] = weight
        body = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": self.name + suffix}}
        await self.api.create(kinds.NODE_POOL, {**body, "spec": spec})

        async def ready() -> bool:
            pool = await self.api.get(kinds.NODE_POOL, self.name + suffix)
            return condition_status(pool.status.conditions, "Ready") == "True"

        # How soon a pool is Ready is a matter of load; pods that come before it hear so, which is no difference.
        await self.until(ready)

    def template(self, app: str, cpu: str, **spec: Any) -> Json:
        """A pod template that only this scenario's nodes satisfy."""
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
        chosen = {SCENARIO: self.name, **spec.pop("nodeSelector", {})}
        return {
            "metadata": {"labels": {"app": app}},
            "spec": {"containers": [container], "nodeSelector": chosen, **spec},
        }

    async def deploy(self, app: str, replicas: int, cpu: str, **spec: Any) -> None:
        await self.workload(kinds.DEPLOYMENT, app, self.template(app, cpu, **spec), replicas=replicas)

    async def workload(self, kind: kinds.Kind[Any], app: str, template: Json, **spec: Any) -> None:
        body = {"selector": {"matchLabels": {"app": app}}, "template": template, **spec}
        await self.create(kind, app, body)

    async def create(self, kind: kinds.Kind[Any], name: str, spec: Json) -> None:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}
        await self.api.create(kind, body, self.namespace if kind.namespaced else "")

    # Asking.

    async def all(self, kind: kinds.Kind[Any]) -> list[RawObject]:
        """The scenario's objects of a kind, by name."""
        if kind.namespaced:
            selection = Selection(namespace=self.namespace)
        else:
            selection = Selection(label_selector=f"{SCENARIO}={self.name}")
        found = await list_all(self.api, whole(kind), selection)
        return sorted(found, key=lambda item: item.name)

    async def running(self) -> list[RawObject]:
        pods = await self.all(kinds.POD)
        return [p for p in pods if p.status.get("phase") == "Running" and not p.is_deleting]

    async def until(self, look: Callable[[], Awaitable[object]]) -> None:
        """Wait until it is so; a scenario that waits in vain goes on, and its answers tell."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self.patience_s
        while not await look() and loop.time() < ends:
            await asyncio.sleep(POLL_S)

    async def until_run(self, count: int) -> None:
        """So many pods run on nodes that are in service."""

        async def look() -> bool:
            return len(await self.running()) == count and await self._in_service()

        await self.until(look)

    async def until_said(self, reason: str, about: int = 1) -> None:
        """The program has said it about so many objects."""

        async def look() -> bool:
            events = [e for e in await self._events() if e.reason == reason and e.speaker == "karpenter"]
            return len({e.involved_object.name for e in events}) >= about

        await self.until(look)

    def find(self, question: str, answer: object, expected: object) -> None:
        self.findings.append(Finding(question, str(answer), str(expected)))

    async def outcome(
        self,
        *,
        run: str,
        wait: str = "none",
        nodes: int,
        said: Iterable[str],
        conditions: str = SERVING,
        when: str = "",
    ) -> None:
        """The answers of every scenario: which pods run and wait, the nodes, conditions, and reasons of events."""
        alive = [p for p in await self.all(kinds.POD) if not p.is_deleting]
        self.find(f"pods that run{when}", _counted(p for p in alive if p.status.get("phase") == "Running"), run)
        waiting = _counted((p for p in alive if p.status.get("phase") == "Pending"), _why)
        self.find(f"pods that wait{when}", waiting, wait)
        self.find(f"nodes{when}", len(await self.all(kinds.NODE)), nodes)
        held = sorted({_conditions(claim) for claim in await self.all(kinds.NODE_CLAIM)})
        self.find(f"conditions of machines{when}", "; ".join(held) or "none", conditions)
        heard = sorted({f"{e.speaker}: {e.reason}" for e in await self._events() if e.counts})
        self.find(f"events{when}", ", ".join(heard), ", ".join(sorted(said)))

    async def find_zones(self, expected: str) -> None:
        zones = Counter(n.metadata.labels.get(labels.ZONE, "") for n in await self.all(kinds.NODE))
        self.find("nodes by zone", ", ".join(f"{z} {n}" for z, n in sorted(zones.items())), expected)

    async def _in_service(self) -> bool:
        found = await self.all(kinds.NODE)
        return all(n.metadata.labels.get("karpenter.sh/initialized") == "true" for n in found)

    async def _events(self) -> list[_Event]:
        """Events about what is in the namespace, and about this scenario's pools, machines and nodes."""
        return [event for event in await list_all(self.api, _EVENT) if self._is_ours(event.involved_object)]

    def _is_ours(self, target: ObjectReference) -> bool:
        return target.namespace == self.namespace or (not target.namespace and self.name in target.name)

    async def gone(self, kind: kinds.Kind[Any], name: str) -> bool:
        try:
            await self.api.get(kind, name, self.namespace if kind.namespaced else "")
        except NotFound:
            return True
        return False


def _in(key: str, values: list[str]) -> Json:
    return {"key": key, "operator": "In", "values": values}


def _why(pod: RawObject) -> str:
    found = next((c for c in pod.status.get("conditions", []) if c["type"] == "PodScheduled"), {})
    return f" {found.get('status', '')} {found.get('reason', '')}"


def _counted(pods: Iterable[RawObject], detail: Callable[[RawObject], str] = lambda _: "") -> str:
    counts = Counter(pod.metadata.labels.get("app", pod.name) + detail(pod) for pod in pods)
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def _conditions(claim: RawObject) -> str:
    return ", ".join(sorted(c["type"] for c in claim.status.get("conditions", []) if c["status"] == "True"))
