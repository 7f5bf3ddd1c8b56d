"""The whole program as one object: caches, state, controllers, leadership, started and stopped together.

Caches follow the cluster whether this process leads or not, so that a successor starts warm. Controllers and the
provider's background work run only while the lease is held, and every write they make checks it again when it is sent.
Losing the lease ends the operator: a new process starts from what the cluster says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pykarpenter.api import kinds
from pykarpenter.api.kinds import Kind
from pykarpenter.api.nodepool import NodePool
from pykarpenter.cloud.guarded import GuardedProvider
from pykarpenter.cloud.overlaid import OverlaidProvider
from pykarpenter.cloud.plugin import BackgroundTask
from pykarpenter.cloud.provider import CloudProvider
from pykarpenter.cloud.vetting import Vetted
from pykarpenter.controllers.context import Changed, Context, Factory, Metrics, NoMetrics, Recorder, Runnable
from pykarpenter.controllers.disruption.assembly import disruption_controllers
from pykarpenter.controllers.machines import machine_controllers
from pykarpenter.controllers.metrics.assembly import Tables, observability_controllers
from pykarpenter.controllers.metrics.provider import MeteredProvider
from pykarpenter.controllers.nodepool import nodepool_controllers
from pykarpenter.controllers.provisioning.assembly import provisioning_controllers
from pykarpenter.controllers.state_gauges import StateGauges
from pykarpenter.controllers.sync import FirstSync
from pykarpenter.controllers.watches import Watches
from pykarpenter.kube.contract import KubeApi
from pykarpenter.kube.dry_run import DryRunApi
from pykarpenter.kube.events import EventRecorder
from pykarpenter.kube.fence import FencedApi
from pykarpenter.kube.leases import LeaderElector, new_identity
from pykarpenter.kube.observer import IGNORE_KUBE, KubeObserver
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.garbage import GarbagePause
from pykarpenter.runtime.gauge_tables import GaugeTable
from pykarpenter.runtime.logs import get_logger
from pykarpenter.runtime.offload import Inline, Offload
from pykarpenter.runtime.settings import Settings
from pykarpenter.state.cluster import ClusterState

# What every plan reads.
CORE_KINDS: tuple[Kind[Any], ...] = (
    kinds.POD,
    kinds.NODE,
    kinds.NODE_CLAIM,
    kinds.NODE_POOL,
    kinds.DAEMON_SET,
    kinds.PDB,
    kinds.NAMESPACE,
    kinds.PVC,
    kinds.PV,
    kinds.STORAGE_CLASS,
    kinds.CSI_NODE,
)
# Only for `scheduler-config`: selectors are deduced from them.
SPREAD_KINDS = (kinds.SERVICE, kinds.REPLICA_SET, kinds.STATEFUL_SET, kinds.REPLICATION_CONTROLLER)
# Only with `ignore-dra-requests=false`.
DEVICE_KINDS = (kinds.RESOURCE_CLAIM, kinds.RESOURCE_CLAIM_TEMPLATE, kinds.DEVICE_CLASS, kinds.RESOURCE_SLICE)

# Where the Lease lives when neither a setting nor the cluster says where this process runs.
DEFAULT_LEASE_NAMESPACE = "kube-system"

FACTORIES: tuple[Factory, ...] = (
    nodepool_controllers,
    machine_controllers,
    provisioning_controllers,
    disruption_controllers,
)
# A dry run decides and reports; nothing else of the program has anything to do then.
DRY_RUN_FACTORIES: tuple[Factory, ...] = (provisioning_controllers, disruption_controllers)

# A few milliseconds of work.
_DESCRIBED_AT_ONCE = 100


class LeaseLost(RuntimeError):
    """Another process may lead now; this one must not go on."""


class Operator:
    """One process's worth of controllers; `run` works until it is cancelled or the lease is lost."""

    def __init__(
        self,
        api: KubeApi,
        provider: CloudProvider,
        clock: Clock,
        settings: Settings,
        *,
        identity: str = "",
        elector: LeaderElector | None = None,
        background: Sequence[BackgroundTask] = (),
        offload: Offload | None = None,
        metrics: Metrics | None = None,
        observer: KubeObserver = IGNORE_KUBE,
        garbage: GarbagePause | None = None,
        chance: Callable[[], float] | None = None,
        factories: Sequence[Factory] | None = None,
        tables: Tables | None = None,
    ) -> None:
        """`elector` is given when the provider writes through the same fence; `chance` makes jitter repeatable.

        Gauges of nodes, pools, pods and conditions, and the events of conditions, need `tables` to be shown in.
        """
        self.settings = settings
        self.identity = elector.identity if elector is not None else identity or new_identity()
        self._clock = clock
        self._background = () if settings.dry_run else tuple(background)
        self._log = get_logger(controller="operator")
        metrics = metrics or NoMetrics()
        self._elector = elector or elector_for(api, clock, settings, self.identity, chance, observer)
        self._leads_alone = settings.disable_leader_election or settings.dry_run
        writer: KubeApi = api if self._leads_alone else FencedApi(api, self._elector, observer)
        if settings.dry_run:
            writer = DryRunApi(api)
        metered = MeteredProvider(provider, clock, metrics)
        guarded = GuardedProvider(metered, clock.now, _catalogue_reporter(metrics))
        classes = frozenset((kind.group, kind.kind) for kind in provider.traits.node_classes)
        self.state = ClusterState(classes, settings.nomination_s)
        self.watches = Watches(api, clock, observer=observer, garbage=garbage, chance=chance)
        self.watches.feed(watched_kinds(settings), self.state.observe)
        self.watches.subscribe(kinds.NODE_POOL, lambda change: _forget_gone(guarded, change))
        self.sync = FirstSync(api, self.state, provider.traits, clock)
        self._recorder = EventRecorder(writer, clock, identity=self.identity, observer=observer)
        recorder: Recorder = self._recorder
        self.context = Context(
            api=writer,
            provider=OverlaidProvider(guarded) if settings.feature_gates.node_overlay else guarded,
            clock=clock,
            settings=settings,
            caches=self.watches,
            state=self.state,
            recorder=recorder,
            metrics=metrics,
            sync=self.sync,
            offload=offload or Inline(),
            identity=self.identity,
            passes=GaugeTable(clock.now),
        )
        self._controllers = self._composed(factories, tables)

    def _composed(self, factories: Sequence[Factory] | None, tables: Tables | None) -> list[Runnable]:
        if factories is None:
            factories = DRY_RUN_FACTORIES if self.settings.dry_run else FACTORIES
        made: list[Runnable] = [item for factory in factories for item in factory(self.context)]
        made.append(StateGauges(self.context))
        if tables is not None:
            tables.use_table("scheduling", self.context.passes)
            if not self.settings.disable_cluster_state_observability:
                made.extend(observability_controllers(self.context, tables))
        return made

    @property
    def is_ready(self) -> bool:
        """Caches are filled: the process could lead."""
        return self.watches.synced

    @property
    def is_leading(self) -> bool:
        return self._leads_alone or self._elector.holds_lease()

    async def run(self) -> None:
        """Follow the cluster, wait for the lease, control; raises LeaseLost when it is lost."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.watches.run(), name="watches")
                for task in self._background:
                    if not task.leader_only:
                        group.create_task(_awaited(task), name=task.name)
                await self._lead_when_elected()
        except BaseExceptionGroup as errors:
            lost = errors.subgroup(LeaseLost)
            if lost is not None:
                raise LeaseLost(f"the lease {self.settings.leader_election_name} is lost") from errors
            raise
        finally:
            await self._recorder.flush()

    async def _lead_when_elected(self) -> None:
        if self._leads_alone:
            await self._lead()
            return
        # A candidate that knows nothing yet would hold the lease without serving.
        await self.watches.wait_synced()
        await self._elector.run(self._lead, lambda: None)
        raise LeaseLost(f"the lease {self.settings.leader_election_name} is lost")

    async def _lead(self) -> None:
        await self.watches.wait_synced()
        while self.state.describe_some(_DESCRIBED_AT_ONCE):  # noqa: ASYNC110 - the work itself, in slices
            # Whoever asks first would do it for 10,000 machines in one go, while leases and probes wait.
            await asyncio.sleep(0)
        self._log.info("starting controllers", controllers=len(self._controllers), identity=self.identity)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.sync.run(), name="first-sync")
            for controller in self._controllers:
                group.create_task(controller.run(), name=type(controller).__name__)
            for task in self._background:
                if task.leader_only:
                    group.create_task(_awaited(task), name=task.name)


def _forget_gone(provider: GuardedProvider, change: Changed[NodePool]) -> None:
    """The types of a pool are kept as long as the pool lives, and no longer."""
    if change.new is None and change.old is not None:
        provider.forget_pool(change.old.uid)


def elector_for(
    api: KubeApi,
    clock: Clock,
    settings: Settings,
    identity: str,
    chance: Callable[[], float] | None = None,
    observer: KubeObserver = IGNORE_KUBE,
) -> LeaderElector:
    """The elector that the settings describe; `api` should not share a rate limit with the work it guards."""
    namespace = settings.leader_election_namespace or DEFAULT_LEASE_NAMESPACE
    return LeaderElector(
        api, settings.leader_election_name, namespace, identity, clock, chance=chance, observer=observer
    )


def watched_kinds(settings: Settings) -> list[Kind[Any]]:
    """The kinds that plans read with these settings; controllers add those that they react to."""
    watched = list(CORE_KINDS)
    if settings.scheduler_config:
        watched.extend(SPREAD_KINDS)
    if not settings.ignore_dra_requests:
        watched.extend(DEVICE_KINDS)
    return watched


async def _awaited(task: BackgroundTask) -> None:
    await task.run()


def _catalogue_reporter(metrics: Metrics) -> Callable[[str, Vetted], None]:
    log = get_logger(controller="instance-types")

    def report(pool: str, vetted: Vetted) -> None:
        for what, count in sorted(vetted.dropped.items()):
            metrics.count("pykarpenter_catalogue_rejected_total", {"nodepool": pool, "reason": what}, count)
        if vetted.problems:
            log.error(
                "instance types are not usable as listed",
                NodePool=pool,
                problems=len(vetted.problems),
                first=vetted.problems[0],
            )

    return report
