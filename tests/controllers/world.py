"""A whole cluster in one process, on virtual time: store with our CRDs, scheduler, workloads, kubelets, operators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pykarpenter.api import crds, kinds, labels
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Event, Node
from pykarpenter.api.pods import Pod
from pykarpenter.cloud.catalog import read_catalog
from pykarpenter.cloud.plugin import BackgroundTask
from pykarpenter.controllers.context import Context, Runnable
from pykarpenter.controllers.machines import machine_controllers
from pykarpenter.controllers.nodepool import nodepool_controllers
from pykarpenter.controllers.operator import Operator
from pykarpenter.controllers.provisioning.assembly import provisioning_controllers
from pykarpenter.kube.contract import KubeApi, list_all
from pykarpenter.providers.kwok.kubelet import KubeletOptions, Kubelets
from pykarpenter.providers.kwok.provider import KwokProvider
from pykarpenter.runtime.settings import Settings
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.api import Middleware, StoreApi
from pykarpenter.sim.scheduler.scheduler import Scheduler
from pykarpenter.sim.store import Store
from pykarpenter.sim.views import Views
from pykarpenter.sim.workloads import Workloads

CLASS_REF = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}


class Recorded:
    """Metrics as a list."""

    def __init__(self) -> None:
        self.counts: list[tuple[str, dict[str, str], float]] = []
        self.gauges: dict[str, float] = {}
        # Every gauge and every observation with its labels.
        self.labelled: list[tuple[str, dict[str, str], float]] = []

    def count(self, name: str, labels: dict[str, str], amount: float = 1.0) -> None:
        self.counts.append((name, labels, amount))

    def gauge(self, name: str, labels: dict[str, str], value: float) -> None:
        self.gauges[name] = value
        self.labelled.append((name, labels, value))

    def observe(self, name: str, labels: dict[str, str], value: float) -> None:
        self.labelled.append((name, labels, value))

    def forget(self, name: str, labels: dict[str, str]) -> None:
        pass


class World:
    """`start_operator` runs a controller process, `crash` ends it where it stands."""

    def __init__(self, settings: Settings | None = None, faults: tuple[Middleware, ...] = ()) -> None:
        self.clock = running_clock()
        self.store = Store(self.clock)
        self.api: KubeApi = StoreApi(self.store, client="user")
        self.operator_api = StoreApi(self.store, client="operator", middleware=faults)
        self.settings = settings or Settings()
        self.metrics = Recorded()
        self.operator: Operator | None = None
        self.make_provider: Callable[[KubeApi], Any] = lambda api: KwokProvider(api, self.clock, read_catalog("kwok"))
        self._process: asyncio.Task[None] | None = None
        self._starts = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._scheduling: asyncio.Task[None] | None = None

    async def begin(self, *, operator: bool = True) -> None:
        for manifest in crds.crds():
            await self.api.create(kinds.CRD, manifest)
        await self.api.create(kinds.KWOK_NODE_CLASS, {"metadata": {"name": "default"}, "spec": {}})
        controlplane = StoreApi(self.store, client="controlplane")
        views = Views(controlplane, self.clock)
        scheduler = Scheduler(controlplane, views, self.clock)
        workloads = Workloads(controlplane, views, self.clock)
        kubelets = Kubelets(controlplane, self.clock, KubeletOptions(lease_interval_s=None))
        self._scheduling = asyncio.create_task(scheduler.run())
        self._tasks.append(self._scheduling)
        for part in (views.run(), workloads.run(), kubelets.run()):
            self._tasks.append(asyncio.create_task(part))
        if operator:
            self.start_operator()

    def start_operator(self, factories: Any = None) -> Operator:
        self._starts += 1
        provider = self.make_provider(self.operator_api)
        background = []
        if isinstance(provider, KwokProvider):
            background.append(BackgroundTask("kwok.registrations", provider.run_registrations))
        self.operator = Operator(
            self.operator_api,
            provider,
            self.clock,
            self.settings,
            identity=f"operator-{self._starts}",
            background=background,
            metrics=self.metrics,
            **({"factories": factories} if factories is not None else {}),
        )
        self._process = asyncio.create_task(self.operator.run(), name="operator")
        return self.operator

    async def crash(self) -> None:
        """kill -9: what is in flight is lost, the lease is not released, nothing in memory survives."""
        assert self._process is not None
        self.operator_api.middleware.insert(0, Unplugged())
        self._process.cancel()
        await asyncio.gather(self._process, return_exceptions=True)
        self.operator_api.middleware.pop(0)

    async def stop_scheduler(self) -> None:
        """Nobody binds pods any more, or says why not."""
        assert self._scheduling is not None
        self._scheduling.cancel()
        await asyncio.gather(self._scheduling, return_exceptions=True)

    async def end(self) -> None:
        tasks = [*self._tasks, *([self._process] if self._process is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Objects.

    async def pool(self, name: str = "default", **fields: Any) -> None:
        limits = fields.pop("limits", None)
        template = {"spec": {"nodeClassRef": CLASS_REF, "requirements": fields.pop("requirements", [])}}
        template["spec"] |= fields.pop("template", {})
        spec: dict[str, Any] = {"template": template, **fields}
        if limits is not None:
            spec["limits"] = limits
        await self.api.create(kinds.NODE_POOL, {"metadata": {"name": name}, "spec": spec})

    async def deployment(self, name: str, replicas: int, cpu: str = "1", **pod_spec: Any) -> None:
        labelled = {"app": name}
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
        body = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labelled},
                "template": {"metadata": {"labels": labelled}, "spec": {"containers": [container], **pod_spec}},
            },
        }
        await self.api.create(kinds.DEPLOYMENT, body, "default")

    async def scale(self, name: str, replicas: int) -> None:
        await self.api.patch(kinds.DEPLOYMENT, name, {"spec": {"replicas": replicas}}, "default")

    # Looking.

    async def claims(self) -> list[NodeClaim]:
        return await list_all(self.api, kinds.NODE_CLAIM)

    async def nodes(self) -> list[Node]:
        return await list_all(self.api, kinds.NODE)

    async def pods(self, app: str = "") -> list[Pod]:
        pods = await list_all(self.api, kinds.POD)
        return [pod for pod in pods if not app or pod.metadata.labels.get("app") == app]

    async def events(self, reason: str) -> list[Event]:
        return [event for event in await list_all(self.api, kinds.EVENT) if event.reason == reason]

    async def running(self, app: str = "") -> int:
        return sum(pod.status.phase == "Running" for pod in await self.pods(app))

    async def until(self, holds: Callable[[], Awaitable[Any]], timeout_s: float = 120.0, *, what: str = "") -> Any:
        """Wait, in virtual time, until the condition holds; its value is returned."""
        deadline = self.clock.monotonic() + timeout_s
        while True:
            value = await holds()
            if value:
                return value
            if self.clock.monotonic() > deadline:
                raise AssertionError(f"not within {timeout_s} s: {what or holds}")
            await asyncio.sleep(0.1)

    async def until_running(self, app: str, count: int, timeout_s: float = 120.0) -> None:
        async def enough() -> bool:
            return await self.running(app) == count

        await self.until(enough, timeout_s, what=f"{count} pods of {app} run")


class Unplugged(Middleware):
    """The process is gone: whatever it still tries does not reach the server."""

    async def before(self, request: Any) -> None:
        raise ConnectionResetError("the process is gone")


def story(main: Callable[[World], Awaitable[None]], **how: Any) -> None:
    """Run a story on a fresh world."""

    async def run() -> None:
        world = World(**how)
        try:
            await main(world)
        finally:
            await world.end()

    run_virtual(run())


def with_engine(engine: Any) -> tuple[Callable[[Context], list[Runnable]], ...]:
    """The operator's controllers with another packing engine."""

    def provisioning(ctx: Context) -> list[Runnable]:
        return provisioning_controllers(ctx, engine)

    return (nodepool_controllers, machine_controllers, provisioning)


def is_initialized(node: Node) -> bool:
    return node.metadata.labels.get(labels.INITIALIZED) == "true"


def is_true(claim: NodeClaim, condition: str) -> bool:
    return condition_status(claim.status.conditions, condition) == "True"
