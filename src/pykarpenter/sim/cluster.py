"""A Kubernetes in one process: store, scheduler, controllers, kubelets and a cloud on the current event loop.

On a virtual-time loop a day passes in seconds and one seed gives one history; on a real loop the same cluster can be
served to kubectl. Faults enter through middleware of the clients it hands out, never through the cluster's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from pykarpenter.api import kinds
from pykarpenter.api.crds import crds
from pykarpenter.cloud.catalog import Catalog, read_catalog
from pykarpenter.cloud.provider import CloudProvider
from pykarpenter.kube.contract import Json, Selection
from pykarpenter.kube.events import EventRecorder
from pykarpenter.providers.kwok.kubelet import KubeletOptions, Kubelets
from pykarpenter.providers.kwok.provider import KwokProvider
from pykarpenter.runtime.clock import Clock
from pykarpenter.sim.api import Middleware, StoreApi
from pykarpenter.sim.cloud.cloud import SimCloud, Timing
from pykarpenter.sim.cloud.market import Market
from pykarpenter.sim.cloud.provider import SimProvider
from pykarpenter.sim.scheduler.scheduler import Scheduler
from pykarpenter.sim.store import Store
from pykarpenter.sim.views import Views
from pykarpenter.sim.workloads import Workloads
from pykarpenter.sim.workloads.node_lifecycle import GRACE_S


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What kind of cluster to start."""

    seed: int = 1
    # `sim`: a cloud whose machines are apart from Nodes; `kwok`: machines are Nodes.
    provider: str = "sim"
    catalog: Catalog | None = None
    timing: Timing = field(default_factory=Timing)
    # Spot prices change this often; None leaves them alone.
    price_period_s: float | None = None
    kubelet: KubeletOptions = field(default_factory=lambda: KubeletOptions(nodes=Selection()))
    node_grace_s: float = GRACE_S
    # Scheduled and FailedScheduling events: wanted by people, a cost in large simulations.
    scheduler_events: bool = True


class EmbeddedCluster:
    """Use as an async context manager: inside, everything runs; afterwards, nothing is left."""

    def __init__(self, clock: Clock, options: ClusterOptions | None = None) -> None:
        self.options = options or ClusterOptions()
        self.clock = clock
        seed = self.options.seed
        self.store = Store(clock, seed=seed)
        self.api = self.client("cluster")
        catalog = self.options.catalog or read_catalog("demo" if self.options.provider == "sim" else "kwok")
        market = Market(catalog, seed=seed, price_period_s=self.options.price_period_s)
        self.cloud = SimCloud(self.api, clock, market, seed=seed, timing=self.options.timing)
        self.provider, self._background = self._make_provider(catalog)
        self.views = Views(self.api, clock)
        recorder = EventRecorder(self.api, clock, identity="default-scheduler", source="default-scheduler")
        self._recorder = recorder
        self.scheduler = Scheduler(
            self.api, self.views, clock, seed=seed, recorder=recorder if self.options.scheduler_events else None
        )
        self.workloads = Workloads(self.api, self.views, clock, node_grace_s=self.options.node_grace_s)
        self.kubelets = Kubelets(self.api, clock, self.options.kubelet)
        self._running: asyncio.Task[None] | None = None

    def client(self, name: str, middleware: Sequence[Middleware] = ()) -> StoreApi:
        """Another client of the same cluster, with a name and perhaps with faults."""
        return StoreApi(self.store, client=name, middleware=middleware)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Install the kinds, start every part and wait until all of them see the cluster."""
        await self.install(crds(self.options.provider))
        self._running = asyncio.get_running_loop().create_task(self._run(), name="embedded-cluster")
        synced = asyncio.get_running_loop().create_task(self.views.wait_synced(), name="embedded-cluster:sync")
        await synced

    async def stop(self) -> None:
        """End every part; raises what one of them died of."""
        await self.cloud.stop()
        running, self._running = self._running, None
        if running is None:
            return
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    async def install(self, objects: Sequence[Json]) -> None:
        """Create objects of any known kind, each in the namespace it names (default `default`)."""
        for body in objects:
            kind = kind_of(body)
            namespace = body.get("metadata", {}).get("namespace", "default") if kind.namespaced else ""
            await self.api.create(kind, body, namespace)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name, part in (
                ("views", self.views.run),
                ("scheduler", self.scheduler.run),
                ("workloads", self.workloads.run),
                ("kubelets", self.kubelets.run),
                *self._background,
            ):
                group.create_task(part(), name=f"sim:{name}")

    def _make_provider(self, catalog: Catalog) -> tuple[CloudProvider, list[tuple[str, Any]]]:
        if self.options.provider == "kwok":
            provider = KwokProvider(self.api, self.clock, catalog)
            return provider, [("kwok.registrations", provider.run_registrations)]
        return SimProvider(self.api, self.clock, self.cloud), []


def kind_of(body: Json) -> kinds.Kind[Any]:
    """The kind of a manifest; ValueError names what is unknown."""
    group, _, _ = str(body.get("apiVersion", "")).rpartition("/")
    kind = kinds.BY_KIND.get((group, str(body.get("kind", ""))))
    if kind is None:
        raise ValueError(
            f"unknown kind {body.get('apiVersion')}/{body.get('kind')}: not served by the embedded cluster"
        )
    return kind
