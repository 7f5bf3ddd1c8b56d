"""Storms: some machines, everything that can happen to them in random order from a seed, and calm in the end.

Beside the seeded worlds of the embedded cluster, which buy and consolidate, these have what those lack: claims without
a pool, grace periods, expiry in minutes, protected and critical pods, reboots in place. In the calm every claim that is
left must be ready, every deletion over, and claims, Nodes and instances must be the same machines.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.cloud.errors import CloudError, CreateError, InsufficientCapacity
from pykarpenter.kube.contract import list_all
from pykarpenter.kube.errors import ApiError, Conflict, ServerFault, TooManyRequests
from pykarpenter.providers.kwok.kubelet_status import STAGE_LABEL, UNHEALTHY_STAGE
from pykarpenter.sim.api import Middleware, Request
from tests.machines.cloud import Cloud, cloud_world
from tests.machines.test_reboot import commit
from tests.machines.world import World, story

MOST_CLAIMS = 8
CALM_S = 3000.0
_WRITES = frozenset({"create", "patch", "delete", "evict"})


class Trouble(Middleware):
    """Refuses some writes of the operator, and loses the answers to others."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.refused = self.lost = 0.0

    async def before(self, request: Request) -> None:
        if request.verb in _WRITES and self._rng.random() < self.refused:
            raise self._rng.choice([Conflict("modified"), ServerFault("overloaded"), TooManyRequests("later")])

    async def after(self, request: Request, error: ApiError | None) -> None:
        if error is None and request.verb in _WRITES and self._rng.random() < self.lost:
            raise ServerFault("connection reset")


class Storm:
    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.rng = random.Random(f"storm/{seed}")
        self.cloud: Cloud = cloud_world(world)
        self.trouble = Trouble(self.rng)
        self.told: list[str] = []
        self._number = 0
        self._boots: list[asyncio.Task[None]] = []
        self.cloud.faults["reboot"] = self._rebooted
        world.operator_api.middleware.append(self.trouble)

    async def blow(self, steps: int) -> None:
        deeds: list[Callable[[], Awaitable[None]]] = [
            *[self.claim] * 2,
            *[self.pod] * 3,
            *(self.delete_claim, self.delete_node, self.delete_pod, self.reboot, self.break_cloud, self.crash),
            *(self.lose, self.refuse_writes, self.orphan, self.hide, self.ignore_deletes),
        ]
        for _ in range(steps):
            deed = self.rng.choice(deeds)
            self.told.append(f"{self.world.clock.now() % 100_000:.0f} {deed.__name__}")
            try:
                await deed()
            except ApiError as error:
                self.told.append(f"  refused: {error}")
            await asyncio.sleep(self.rng.choice([0.1, 1, 5, 20, 60, 120]))

    async def calm(self) -> None:
        """Every fault is over, and whoever held something up lets go."""
        api = self.world.api
        self.trouble.refused = self.trouble.lost = 0.0
        self.cloud.faults = {"reboot": self._rebooted}
        self.cloud.hidden, self.cloud.ignored_deletes = set(), 0
        for budget in await list_all(api, kinds.PDB):
            await api.delete(kinds.PDB, budget.name, "default")
        for pod in await list_all(api, kinds.POD):
            if labels.DO_NOT_DISRUPT in pod.metadata.annotations:
                body = {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: None}}}
                await api.patch(kinds.POD, pod.name, body, "default")
        await asyncio.sleep(CALM_S / 2)
        # As the cloud's own controller does; a Node that never became a claim's is nobody else's to remove.
        for node in await list_all(api, kinds.NODE):
            if node.spec.provider_id not in self.cloud.instances:
                await api.delete(kinds.NODE, node.name)
        await asyncio.sleep(CALM_S / 2)
        for boot in self._boots:
            boot.cancel()

    async def problems(self) -> list[str]:
        claims = await list_all(self.world.api, kinds.NODE_CLAIM)
        found = [text for claim in claims if (text := _unsettled(claim))]
        ours, instances = {claim.status.provider_id for claim in claims}, set(self.cloud.instances)
        if ours != instances:
            found.append(f"claims without instance {sorted(ours - instances)}, others {sorted(instances - ours)}")
        for node in await list_all(self.world.api, kinds.NODE):
            if node.is_deleting or node.spec.provider_id not in ours:
                found.append(f"Node {node.name} is left over")
            found.extend(f"Node {node.name} has taint {t.key}" for t in node.spec.taints if labels.GROUP in t.key)
        return found

    # -- what people do

    async def claim(self) -> None:
        claims = await list_all(self.world.api, kinds.NODE_CLAIM)
        if len(claims) >= MOST_CLAIMS:
            return
        spec: dict[str, Any] = {}
        if self.rng.random() < 0.4:
            spec["terminationGracePeriod"] = self.rng.choice(["0s", "30s", "120s", "10m"])
        if self.rng.random() < 0.2:
            spec["expireAfter"] = self.rng.choice(["5m", "20m"])
        await self.world.claim(self._name("c"), pool=self.rng.choice(["", "pool"]), **spec)

    async def pod(self) -> None:
        nodes = await list_all(self.world.api, kinds.NODE)
        if not nodes:
            return
        name, fields = self._name("p"), dict[str, Any]()
        protection = self.rng.choice([None, None, "true", "3m", "soon", "-1m"])
        if self.rng.random() < 0.2:
            fields["priorityClassName"] = "system-node-critical"
        if self.rng.random() < 0.3:
            fields["terminationGracePeriodSeconds"] = self.rng.choice([0, 5, 300])
        metadata = {"annotations": {labels.DO_NOT_DISRUPT: protection}} if protection else {}
        await self.world.pod(name, self.rng.choice(nodes).name, metadata=metadata, **fields)
        if self.rng.random() < 0.2:
            spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": name}}}
            await self.world.api.create(kinds.PDB, {"metadata": {"name": name}, "spec": spec}, "default")

    async def delete_claim(self) -> None:
        await self._delete_one(kinds.NODE_CLAIM)

    async def delete_node(self) -> None:
        await self._delete_one(kinds.NODE)

    async def delete_pod(self) -> None:
        await self._delete_one(kinds.POD, "default")

    async def reboot(self) -> None:
        """As repair commits it, with grace periods of every kind."""
        claims = [c for c in await list_all(self.world.api, kinds.NODE_CLAIM) if _is_in_service(c)]
        if claims:
            grace = self.rng.choice([None, "0s", "60s", "10m", "soon", "-5s"])
            await commit(self.world, grace, name=self.rng.choice(claims).name)

    # -- what goes wrong

    async def break_cloud(self) -> None:
        call = self.rng.choice(["create", "delete", "get", "list"])

        def fail(_: Any) -> None:
            words = f"refused (request {self.rng.random()})"
            errors = [CloudError(words)]
            if call == "create":
                errors += [InsufficientCapacity("none left"), CreateError("Odd", words)]
            raise self.rng.choice(errors)

        self.cloud.faults[call] = fail
        self._later(300, lambda: self.cloud.faults.pop(call, None))

    async def crash(self) -> None:
        await self.world.crash()
        await asyncio.sleep(self.rng.randint(0, 60))
        await self.world.operator()

    async def lose(self) -> None:
        """A machine vanishes, and its kubelet with it; one that no claim knows yet would be launched anew."""
        claims = await list_all(self.world.api, kinds.NODE_CLAIM)
        known = sorted({claim.status.provider_id for claim in claims} & set(self.cloud.instances))
        if not known:
            return
        provider_id = self.rng.choice(known)
        del self.cloud.instances[provider_id]
        for node in await list_all(self.world.api, kinds.NODE):
            if node.spec.provider_id == provider_id:
                silent = {"metadata": {"labels": {STAGE_LABEL: UNHEALTHY_STAGE}}}
                await self.world.api.patch(kinds.NODE, node.name, silent)
                unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
                await self.world.api.patch(kinds.NODE, node.name, unknown, subresource="status")

    async def refuse_writes(self) -> None:
        self.trouble.refused, self.trouble.lost = self.rng.choice([0, 0.1, 0.4]), self.rng.choice([0, 0.1, 0.3])
        self._later(200, self._write_again)

    async def orphan(self) -> None:
        self.cloud.orphan(self._name("o"), age_s=self.rng.choice([1, 3600]))

    async def hide(self) -> None:
        known = sorted(self.cloud.instances)
        self.cloud.hidden = set(self.rng.sample(known, k=min(len(known), 2)))
        self._later(100, self.cloud.hidden.clear)

    async def ignore_deletes(self) -> None:
        self.cloud.ignored_deletes = self.rng.randint(1, 3)

    # -- how

    def _name(self, kind: str) -> str:
        self._number += 1
        return f"{kind}{self._number}"

    def _later(self, most_s: int, action: Callable[[], Any]) -> None:
        asyncio.get_running_loop().call_later(self.rng.randint(5, most_s), action)

    def _write_again(self) -> None:
        self.trouble.refused = self.trouble.lost = 0.0

    async def _delete_one(self, kind: kinds.Kind[Any], namespace: str = "") -> None:
        found = await list_all(self.world.api, kind)
        if found:
            await self.world.api.delete(kind, self.rng.choice(found).name, namespace)

    def _rebooted(self, operation_id: str) -> None:
        """Most machines come back after a while."""
        if self.rng.random() < 0.8:
            self._boots.append(asyncio.ensure_future(self._boot(operation_id, self.rng.randint(5, 400))))

    async def _boot(self, operation_id: str, after_s: int) -> None:
        await asyncio.sleep(after_s)
        claims = await list_all(self.world.api, kinds.NODE_CLAIM)
        ids = {claim.status.provider_id for claim in claims if operation_id.startswith(claim.uid)}
        for node in await list_all(self.world.api, kinds.NODE):
            if node.spec.provider_id in ids:
                body = {"status": {"nodeInfo": {"bootID": f"boot-{self.rng.random()}"}}}
                await self.world.api.patch(kinds.NODE, node.name, body, subresource="status")


def run_storm(seed: int) -> tuple[list[str], list[str]]:
    """What is wrong in the calm after the storm, and what happened in it."""

    async def tell(world: World) -> tuple[list[str], list[str]]:
        storm = Storm(world, seed)
        await world.begin()
        await storm.blow(storm.rng.choice([15, 30, 60]))
        await storm.calm()
        return await storm.problems(), storm.told

    return story(tell)


def _is_in_service(claim: NodeClaim) -> bool:
    return not claim.is_deleting and condition_status(claim.status.conditions, "Registered") == "True"


def _unsettled(claim: NodeClaim) -> str:
    shown = {c.type: f"{c.status} {c.reason} {c.message}" for c in claim.status.conditions if c.status != "True"}
    if claim.is_deleting:
        return f"{claim.name} is still going: {shown}"
    if condition_status(claim.status.conditions, "Ready") != "True":
        return f"{claim.name} is not ready: {shown}"
    rebooting = condition_status(claim.status.conditions, "Rebooting") == "True"
    return f"{claim.name} is still rebooting" if rebooting else ""
