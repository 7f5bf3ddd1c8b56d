"""A small world for the controllers of a machine's life: store, KWOK provider, kubelets and an operator to crash."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import condition_status, find_condition
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node, ObjectReference
from pykarpenter.cloud.catalog import read_catalog
from pykarpenter.controllers.context import Context, Runnable
from pykarpenter.controllers.machines import machine_controllers
from pykarpenter.controllers.watches import Watches
from pykarpenter.kube.contract import list_all
from pykarpenter.kube.errors import NotFound
from pykarpenter.providers.kwok.kubelet import KubeletOptions, Kubelets
from pykarpenter.providers.kwok.provider import KwokProvider
from pykarpenter.runtime.metric_catalog import CATALOG
from pykarpenter.runtime.settings import Settings
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.api import StoreApi
from pykarpenter.sim.store import Store
from pykarpenter.sim.store.resources import schemaless
from pykarpenter.state.cluster import ClusterState

T = TypeVar("T")

CLASS_REF = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
CLASS_LABEL = "karpenter.kwok.sh/kwoknodeclass"
ZONE = "test-zone-a"


class Recorded:
    """Events and metrics as lists."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []
        self.counts: list[tuple[str, dict[str, str]]] = []

    def publish(self, target: ObjectReference, type: str, reason: str, message: str, **_: Any) -> None:
        self.events.append((target.kind, target.name, reason, message))

    def count(self, name: str, labels: dict[str, str], amount: float = 1.0) -> None:
        _check_metric(name, labels)
        self.counts.append((name, labels))

    def gauge(self, name: str, labels: dict[str, str], value: float) -> None:
        _check_metric(name, labels)

    def observe(self, name: str, labels: dict[str, str], value: float) -> None:
        _check_metric(name, labels)

    def forget(self, name: str, labels: dict[str, str]) -> None:
        _check_metric(name, labels)

    def reasons(self, kind: str = "") -> list[str]:
        return [reason for target, _, reason, _ in self.events if not kind or target == kind]

    def counted(self, name: str, **wanted: str) -> int:
        return sum(1 for n, found in self.counts if n == name and wanted.items() <= found.items())


def _check_metric(name: str, labels: dict[str, str]) -> None:
    assert set(labels) <= set(CATALOG[name].labels), (name, labels)


class World:
    """Everything of one cluster. `operator()` starts a controller process, `crash()` kills it where it stands."""

    def __init__(self, *, settings: Settings | None = None, kubelets: KubeletOptions | None = None) -> None:
        self.clock = running_clock()
        self.store = Store(self.clock)
        for kind in (kinds.NODE_CLAIM, kinds.NODE_POOL, kinds.KWOK_NODE_CLASS):
            self.store.serve(schemaless(kind))
        self.api = StoreApi(self.store, client="test")
        self.operator_api = StoreApi(self.store, client="operator")
        self.settings = settings or Settings()
        self.recorded = Recorded()
        self.provider: Any = KwokProvider(self.operator_api, self.clock, read_catalog("kwok"))
        self.controllers: Callable[[Context], list[Runnable]] = machine_controllers
        self._kubelet_options = kubelets or KubeletOptions(lease_interval_s=None, status_interval_s=3600.0)
        self.kubelets = Kubelets(self.api, self.clock, self._kubelet_options)
        self._operator: asyncio.Task[None] | None = None
        self._background: list[asyncio.Task[None]] = []
        self.context: Context | None = None

    async def begin(self, *, kubelets: bool = True) -> None:
        """Class, kubelets and operator, as most stories need them."""
        await self.api.create(kinds.KWOK_NODE_CLASS, {"metadata": {"name": "default"}})
        if kubelets:
            self._background.append(asyncio.create_task(self.kubelets.run()))
        await self.operator()

    async def operator(self) -> None:
        state = ClusterState()
        caches = Watches(self.operator_api, self.clock)
        caches.feed([kinds.POD, kinds.NODE, kinds.NODE_CLAIM, kinds.NODE_POOL], state.observe)
        ctx = Context(
            self.operator_api,
            self.provider,
            self.clock,
            self.settings,
            caches,
            state,
            self.recorded,
            self.recorded,
        )
        self.context = ctx
        controllers = self.controllers(ctx)

        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(caches.run())
                await caches.wait_synced()
                for controller in controllers:
                    group.create_task(controller.run())
                if isinstance(self.provider, KwokProvider):
                    group.create_task(self.provider.run_registrations())

        self._operator = asyncio.create_task(run(), name="operator")
        await asyncio.sleep(0)

    def die(self) -> None:
        """End the controller process here and now: the caller's own task goes no further either."""
        if self._operator is not None:
            self._operator.cancel()
        raise asyncio.CancelledError

    async def crash(self) -> None:
        """End the controller process; nothing it held in memory survives."""
        if self._operator is not None:
            self._operator.cancel()
            await asyncio.gather(self._operator, return_exceptions=True)
            self._operator = None
        if isinstance(self.provider, KwokProvider):
            self.provider = KwokProvider(self.operator_api, self.clock, read_catalog("kwok"))

    async def end(self) -> None:
        await self.crash()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    # -- objects

    async def claim(self, name: str = "c1", *, pool: str = "pool", cpu: str = "1", **spec: Any) -> NodeClaim:
        meta: dict[str, Any] = {"name": name, "labels": {CLASS_LABEL: "default"}, "annotations": {}}
        if pool:
            meta["labels"][labels.NODEPOOL] = pool
        meta["labels"] |= spec.pop("labels", {})
        meta["annotations"] |= spec.pop("annotations", {})
        body = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": meta,
            "spec": {
                "nodeClassRef": CLASS_REF,
                "requirements": [
                    {"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["c-4x-amd64-linux", "s-4x-amd64-linux"]},
                    {"key": labels.ZONE, "operator": "In", "values": [ZONE]},
                ],
                "resources": {"requests": {"cpu": cpu, "pods": "1"}},
                "expireAfter": "Never",
                **spec,
            },
        }
        return await self.api.create(kinds.NODE_CLAIM, body)

    async def pod(self, name: str, node: str, *, uid: str = "", **fields: Any) -> None:
        meta = {"name": name, "namespace": "default", "labels": {"app": name}, **fields.pop("metadata", {})}
        body = {
            "metadata": meta,
            "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": node, **fields},
        }
        await self.api.create(kinds.POD, body, "default")

    async def get_claim(self, name: str = "c1") -> NodeClaim | None:
        try:
            return await self.api.get(kinds.NODE_CLAIM, name)
        except NotFound:
            return None

    async def nodes(self) -> list[Node]:
        return await list_all(self.api, kinds.NODE)

    async def node(self) -> Node:
        found = await self.nodes()
        assert len(found) == 1, [node.name for node in found]
        return found[0]

    async def pods(self) -> list[str]:
        return [pod.name for pod in await list_all(self.api, kinds.POD)]

    async def status_of(self, condition: str, name: str = "c1") -> str:
        claim = await self.get_claim(name)
        assert claim is not None
        return condition_status(claim.status.conditions, condition)

    async def reason_of(self, condition: str, name: str = "c1") -> str:
        claim = await self.get_claim(name)
        assert claim is not None
        found = find_condition(claim.status.conditions, condition)
        return found.reason if found is not None else ""

    async def until(self, what: Callable[[], Awaitable[Any]], within_s: float = 60.0) -> float:
        """Wait until it holds; returns the seconds that took."""
        started = self.clock.now()
        while not await what():
            assert self.clock.now() - started < within_s, "did not happen in time"
            await asyncio.sleep(0.5)
        return self.clock.now() - started

    async def ready(self, name: str = "c1") -> None:
        async def is_ready() -> bool:
            return await self.status_of("Ready", name) == "True"

        await self.until(is_ready)

    async def gone(self, name: str = "c1", within_s: float = 60.0) -> float:
        async def is_gone() -> bool:
            return await self.get_claim(name) is None

        return await self.until(is_gone, within_s)


def story(tell: Callable[[World], Awaitable[T]], **how: Any) -> T:
    """Run a story on virtual time in a fresh world."""

    async def main() -> T:
        world = World(**how)
        try:
            return await tell(world)
        finally:
            await world.end()

    return run_virtual(main())
