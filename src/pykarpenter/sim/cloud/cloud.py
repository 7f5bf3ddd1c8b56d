"""The simulated cloud: launches, boots, interrupts and ends machines, and answers about them.

A machine is not its Node: it exists from the launch on, boots after a while, registers its Node itself, and may be
gone while the Node still stands. Launches with the same token give the same machine. All timing comes from one seed.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field

from pykarpenter.api import labels
from pykarpenter.api.kinds import NODE
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.cloud.errors import CloudError, InsufficientCapacity
from pykarpenter.cloud.provider import Interruption
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.kube.contract import Json, KubeApi
from pykarpenter.kube.errors import AlreadyExists, ApiError, NotFound
from pykarpenter.runtime.clock import Clock
from pykarpenter.sim.cloud.instances import (
    PENDING,
    RUNNING,
    SHUTTING_DOWN,
    TERMINATED,
    Instance,
    node_body,
    node_resources,
    single_values,
)
from pykarpenter.sim.cloud.market import Market, OfferingKey
from pykarpenter.sim.cloud.misbehaviour import Misbehaviour, ReplyLost, Throttled
from pykarpenter.sim.conditions import with_conditions

# A Node whose machine is gone is removed by the cloud's own node controller after a while.
_NODE_CLEANUP_S = 10.0
# A terminated machine stays visible for a while, as on real clouds.
_FORGOTTEN_AFTER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that things take; (shortest, longest), drawn from the cloud's seed."""

    launch_s: tuple[float, float] = (1.0, 3.0)
    boot_s: tuple[float, float] = (20.0, 45.0)
    shutdown_s: tuple[float, float] = (5.0, 15.0)
    call_s: tuple[float, float] = (0.05, 0.2)
    interruption_notice_s: float = 120.0


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """One launch: what may be bought, in order of preference, and how the machine is marked."""

    token: str
    tags: dict[str, str]
    choices: tuple[tuple[InstanceType, Offering], ...]
    image: str
    node_name: str
    labels: dict[str, str]
    boot_delay_s: float | None = None


@dataclass(slots=True)
class Ledger:
    """What the cloud charges: money so far for machines that are gone, and how many were ever launched."""

    settled: float = 0.0
    settled_hours: float = 0.0
    launched: int = 0
    terminated: int = 0
    interrupted: int = 0
    by_type: Counter[str] = field(default_factory=Counter)


class SimCloud:
    def __init__(
        self, api: KubeApi, clock: Clock, market: Market, *, seed: int = 0, timing: Timing | None = None
    ) -> None:
        self._api = api
        self._clock = clock
        self.market = market
        self.timing = timing or Timing()
        self.faults = Misbehaviour()
        self.ledger = Ledger()
        self.instances: dict[str, Instance] = {}
        self._by_token: dict[str, str] = {}
        self._interruptions: dict[str, Interruption] = {}
        self._random = random.Random(f"cloud/{seed}")
        self._seed = seed
        self._tasks: dict[asyncio.Task[None], None] = {}
        # What the cloud does goes on whatever becomes of the process that asked for it.
        self._context = copy_context()
        # Told about every machine that starts to run, for tests and faults that act on nodes.
        self.on_registered: list[Callable[[Instance], None]] = []
        # Told when somebody asks for the end of a machine that still runs.
        self.on_terminate: list[Callable[[Instance], None]] = []

    # Calls, as a provider makes them.

    async def launch(self, request: LaunchRequest) -> Instance:
        """The machine for the token: the one that exists, or a new one of the first choice that is to be had."""
        await self._wait(self.timing.launch_s)
        self.faults.check("launch")
        known = self.instances.get(self._by_token.get(request.token, ""))
        if known is not None:
            if not known.is_live:
                raise CloudError(f"token {request.token!r} belongs to instance {known.id}, which is {known.state}")
            return known
        item, offering = self._available(request)
        instance = self._start(request, item, offering)
        if self.faults.take("lose_launch_replies"):
            raise ReplyLost("launch: the connection broke before the answer came")
        if self.faults.take("throttle_after_success"):
            raise Throttled("launch: request limit exceeded while describing the new instance")
        return instance

    async def terminate(self, instance_id: str) -> bool:
        """Trigger the end of a machine; False when there is none (any more)."""
        await self._wait(self.timing.call_s)
        self.faults.check("terminate")
        instance = self.instances.get(instance_id)
        if instance is None or instance.state == TERMINATED:
            return False
        if instance.state != SHUTTING_DOWN:
            for listener in self.on_terminate:
                listener(instance)
            if not self.faults.take("ignore_deletes"):
                self._shut_down(instance)
        return True

    async def describe(self, instance_id: str) -> Instance | None:
        await self._wait(self.timing.call_s)
        self.faults.check("describe")
        return self.instances.get(instance_id)

    async def list_instances(self) -> list[Instance]:
        """Every machine that is not terminated; armed faults omit live ones or add dead ones."""
        await self._wait(self.timing.call_s)
        self.faults.check("list")
        live = [i for i in self.instances.values() if i.state != TERMINATED]
        if live and self.faults.take("short_lists"):
            live = live[: len(live) // 2]
        gone = [i for i in self.instances.values() if i.state == TERMINATED]
        if gone and self.faults.take("stale_lists"):
            live = [*live, *gone]
        if any(not i.token for i in live):
            self.faults.fired["foreign_listed"] += 1
        return live

    async def reboot(self, instance_id: str, operation_id: str) -> bool:
        await self._wait(self.timing.call_s)
        self.faults.check("reboot")
        instance = self.instances.get(instance_id)
        if instance is None or not instance.is_live:
            return False
        body = {"status": {"nodeInfo": {"bootID": f"sim-{operation_id}"}}}
        await self._on_node(instance, body, subresource="status")
        return True

    async def interruptions(self) -> list[Interruption]:
        self.faults.check("interruptions")
        return self.faults.garbled(list(self._interruptions.values()), self._clock.now())

    # What happens by itself or by a fault.

    def interrupt(self, instance_id: str) -> None:
        """Announce that a spot machine will be taken away, and take it away when the notice is over."""
        instance = self.instances[instance_id]
        if not instance.is_live or instance_id in self._interruptions:
            return
        at = self._clock.now() + self.timing.interruption_notice_s
        self._interruptions[instance_id] = Interruption(
            instance.provider_id, "SpotInterruption", at, id=f"interruption-{instance_id}"
        )
        self.ledger.interrupted += 1
        self._spawn(self._reclaim(instance), f"reclaim:{instance_id}")

    def is_interrupted(self, instance_id: str) -> bool:
        return instance_id in self._interruptions

    def lose(self, instance_id: str) -> None:
        """End a machine at once and without a word, as broken hardware does."""
        instance = self.instances[instance_id]
        if instance.is_live:
            self._end(instance)

    def add_foreign(self, instance: Instance) -> None:
        """A machine that somebody else runs in the same account."""
        self.instances[instance.id] = instance

    def reserved_used(self) -> dict[str, int]:
        used: Counter[str] = Counter()
        for instance in self.instances.values():
            if instance.is_live and instance.offering.reservation_id:
                used[instance.offering.reservation_id] += 1
        return dict(used)

    def live(self) -> list[Instance]:
        return [i for i in self.instances.values() if i.is_live]

    def price_per_hour(self) -> float:
        return sum(i.price for i in self.instances.values() if i.state != TERMINATED)

    def cost_so_far(self) -> tuple[float, float]:
        """($ charged, machine hours) up to now."""
        now = self._clock.now()
        running = [i for i in self.instances.values() if i.state != TERMINATED]
        hours = [(i.price, (now - i.launched_at) / 3600.0) for i in running]
        money = self.ledger.settled + sum(price * h for price, h in hours)
        return money, self.ledger.settled_hours + sum(h for _, h in hours)

    async def stop(self) -> None:
        """Cancel everything that is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)

    # Inside.

    def _available(self, request: LaunchRequest) -> tuple[InstanceType, Offering]:
        if request.choices and self.faults.take("exhausted_subnets"):
            self.market.run_short(self.market.keys(zone=request.choices[0][1].zone))
        refused: list[OfferingKey] = []
        used = self.reserved_used()
        for item, offering in request.choices:
            key = (item.name, offering.zone, offering.capacity_type)
            reservation = self.market.reservations.get(offering.reservation_id)
            full = reservation is not None and used.get(reservation.id, 0) >= reservation.count
            if key in self.market.shortages or full:
                refused.append(key)
                self.faults.fired["shortage"] += 1
                continue
            return item, offering
        listed = ", ".join("/".join(key) for key in refused[:3]) + (" …" if len(refused) > 3 else "")
        raise InsufficientCapacity(f"no capacity for {listed or 'any offering'}", tuple(refused))

    def _start(self, request: LaunchRequest, item: InstanceType, offering: Offering) -> Instance:
        number = len(self._by_token)
        digest = hashlib.sha256(f"{self._seed}/{number}/{request.token}".encode()).hexdigest()
        instance = Instance(
            id=f"i-{digest[:17]}",
            token=request.token,
            tags=dict(request.tags),
            item=item,
            offering=offering,
            image=request.image,
            node_name=request.node_name,
            launched_at=self._clock.now(),
            labels={**request.labels, **single_values(item.requirements, offering.requirements)},
        )
        self.instances[instance.id] = instance
        self._by_token[request.token] = instance.id
        self.ledger.launched += 1
        self.ledger.by_type[item.name] += 1
        if self.faults.take("boot_failures"):
            return instance
        if request.image in self.faults.broken_images:
            self.faults.fired["broken_images"] += 1
            return instance
        delay = request.boot_delay_s
        self._spawn(self._boot(instance, self._random.uniform(*self.timing.boot_s) if delay is None else delay), "boot")
        return instance

    async def _boot(self, instance: Instance, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if instance.state != PENDING:
            return
        instance.state = RUNNING
        late = self.faults.late_devices_s if any("/" in name for name in instance.item.capacity) else 0.0
        body = {**node_body(instance), "status": node_resources(instance, with_devices=not late)}
        try:
            await self._api.create(NODE, body)
        except AlreadyExists:
            return
        await self._on_node(instance, {"status": body["status"]}, subresource="status")
        for listener in self.on_registered:
            listener(instance)
        if late:
            self.faults.fired["late_devices"] += 1
            await asyncio.sleep(late)
            devices = {"status": node_resources(instance, with_devices=True)}
            await self._on_node(instance, devices, subresource="status")

    def _shut_down(self, instance: Instance) -> None:
        instance.state = SHUTTING_DOWN
        self._spawn(self._finish(instance), f"shutdown:{instance.id}")

    async def _finish(self, instance: Instance) -> None:
        await asyncio.sleep(self._random.uniform(*self.timing.shutdown_s))
        self._end(instance)

    async def _reclaim(self, instance: Instance) -> None:
        await asyncio.sleep(self.timing.interruption_notice_s)
        if instance.is_live:
            self._end(instance)

    def _end(self, instance: Instance) -> None:
        if instance.state == TERMINATED:
            return
        now = self._clock.now()
        hours = (now - instance.launched_at) / 3600.0
        self.ledger.settled += instance.price * hours
        self.ledger.settled_hours += hours
        self.ledger.terminated += 1
        instance.state = TERMINATED
        instance.terminated_at = now
        self._interruptions.pop(instance.id, None)
        self._spawn(self._clean_up(instance), f"cleanup:{instance.id}")

    async def _clean_up(self, instance: Instance) -> None:
        """The kubelet dies with its machine; the cloud's node controller removes what is left of the Node."""
        dead = {"metadata": {"labels": {"kwok.x-k8s.io/stage": "unhealthy"}}}
        await self._on_node(instance, dead)
        try:
            node = await self._api.get(NODE, instance.node_name)
            unknown = {
                "type": "Ready",
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "lastTransitionTime": format_timestamp(self._clock.now()),
            }
            conditions = with_conditions(node.status.conditions, unknown)
            await self._on_node(instance, {"status": {"conditions": conditions}}, subresource="status")
        except NotFound:
            pass
        await asyncio.sleep(_NODE_CLEANUP_S)
        try:
            node = await self._api.get(NODE, instance.node_name)
            if node.spec.provider_id == instance.provider_id:
                await self._api.delete(NODE, instance.node_name)
        except ApiError:
            pass
        await asyncio.sleep(_FORGOTTEN_AFTER_S)
        self.instances.pop(instance.id, None)

    async def _on_node(self, instance: Instance, patch: Json, *, subresource: str = "") -> None:
        try:
            await self._api.patch(NODE, instance.node_name, patch, subresource=subresource)
        except NotFound:
            return

    async def _wait(self, span: tuple[float, float]) -> None:
        await asyncio.sleep(self._random.uniform(*span))

    def _spawn(self, coroutine: object, name: str) -> None:
        loop = asyncio.get_running_loop()
        task: asyncio.Task[None] = loop.create_task(coroutine, name=name, context=self._context)  # type: ignore[arg-type]
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))


def foreign_instance(item: InstanceType, offering: Offering, tags: dict[str, str], now: float) -> Instance:
    """A machine of somebody else, for `add_foreign`; its tags may look like ours."""
    digest = hashlib.sha256(f"foreign/{sorted(tags.items())}/{now}".encode()).hexdigest()
    return Instance(
        id=f"i-{digest[:17]}",
        token="",
        tags=tags,
        item=item,
        offering=offering,
        image="foreign",
        node_name=f"foreign-{digest[:8]}",
        launched_at=now,
        labels={labels.ARCH: "amd64"},
        state=RUNNING,
    )
