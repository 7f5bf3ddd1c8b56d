"""The program under test as a process of the embedded cluster: started, killed, started again.

Each start has an identity, a client and a provider of its own, so nothing in memory survives a crash.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextvars import copy_context

from pykarpenter.cloud.provider import CloudProvider
from pykarpenter.controllers.context import Context, Metrics, Runnable
from pykarpenter.controllers.disruption.assembly import disruption_controllers
from pykarpenter.controllers.disruption.loop import DisruptionLoop
from pykarpenter.controllers.disruption.orchestration import Orchestration
from pykarpenter.controllers.operator import FACTORIES, LeaseLost, Operator
from pykarpenter.kube.contract import KubeApi
from pykarpenter.kube.errors import ApiError
from pykarpenter.runtime.clock import Clock, SteadyClock
from pykarpenter.runtime.settings import Settings
from pykarpenter.runtime.virtual_loop import PROCESS, VirtualTimeLoop
from pykarpenter.sim.api import Middleware, Request
from pykarpenter.sim.cloud.provider import SimProvider
from pykarpenter.sim.cluster import EmbeddedCluster

ProviderFactory = Callable[[KubeApi, Clock], CloudProvider]
ClientFactory = Callable[[str, Sequence[Middleware]], KubeApi]

# What a Deployment takes to start a pod again after it ended.
RESTART_S = 10.0


class _Unplugged(Middleware):
    """The process is gone: whatever it still tries does not reach the server."""

    gone = False

    async def before(self, request: Request) -> None:
        if self.gone:
            raise ConnectionResetError("the process is gone")


class _ServersDate(Middleware):
    """Every answer of an API server says what time it is there."""

    def __init__(self, cluster: EmbeddedCluster, clock: SteadyClock) -> None:
        self._server = cluster.clock
        self._clock = clock

    async def after(self, request: Request, error: ApiError | None) -> None:
        self._clock.follow(self._server.now())


class OperatorProcess:
    def __init__(
        self,
        cluster: EmbeddedCluster,
        settings: Settings | None = None,
        *,
        middleware: Sequence[Middleware] = (),
        make_provider: ProviderFactory | None = None,
        clock: Clock | None = None,
        make_client: ClientFactory | None = None,
        name: str = "operator",
        metrics: Metrics | None = None,
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._settings = settings or Settings()
        self._middleware = list(middleware)
        self._make_provider = make_provider or self._sim_provider
        self._clock = clock or cluster.clock
        self._make_client = make_client or cluster.client
        self._metrics = metrics
        self._task: asyncio.Task[None] | None = None
        self._plug = _Unplugged()
        self._orchestration: Orchestration | None = None
        self._disruption: DisruptionLoop | None = None
        # While set, the process is not started again after it ended.
        self.held_back = False
        self.operator: Operator | None = None
        self.starts = 0
        # What a process died of other than being killed or losing its lease.
        self.failures: list[BaseException] = []

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def identity(self) -> str:
        """The name of the process that runs now or ran last; its client and its lease carry it."""
        return f"{self.name}-{self.starts}"

    @property
    def is_restarted(self) -> bool:
        """A process runs that nobody has killed."""
        return self.is_running and not self._plug.gone

    def start(self) -> Operator:
        """A new process; the one before must have ended."""
        if self.is_running:
            raise RuntimeError(f"{self.identity} still runs; stop it before starting {self.name} again")
        self.starts += 1
        identity = self.identity
        self._plug = _Unplugged()
        clock = SteadyClock(self._clock)
        api = self._make_client(identity, [self._plug, _ServersDate(self._cluster, clock), *self._middleware])
        self.operator = Operator(
            api,
            self._make_provider(api, clock),
            clock,
            self._settings,
            identity=identity,
            metrics=self._metrics,
            chance=random.Random(f"{self._cluster.options.seed}/{identity}").random,
            factories=[self._with_orchestration if f is disruption_controllers else f for f in FACTORIES],
        )
        context = copy_context()
        context.run(PROCESS.set, identity)
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._supervised(self.operator), name=identity, context=context)
        return self.operator

    def decision_of(self, claim: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """The claims that go together with this one, and those launched to replace them."""
        running = self._orchestration.running_for(claim) if self._orchestration is not None else None
        if running is None:
            return None
        return tuple(target.claim for target in running.command.targets), running.replacements

    def nodes_in_doubt(self) -> tuple[str, ...]:
        """Nodes of the command that waits for its second look."""
        waiting = self._disruption.waiting if self._disruption is not None else None
        return tuple(waiting.command.nodes) if waiting is not None else ()

    def freeze(self) -> str:
        """kill -STOP; answers whom to thaw: the process may have been started anew by then."""
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualTimeLoop):
            loop.freeze(self.identity)
        return self.identity

    def _with_orchestration(self, context: Context) -> list[Runnable]:
        controllers = disruption_controllers(context)
        self._disruption = next((c for c in controllers if isinstance(c, DisruptionLoop)), None)
        self._orchestration = next((c for c in controllers if isinstance(c, Orchestration)), None)
        return controllers

    def crash(self) -> None:
        """kill -9: what is in flight is lost, the lease is not released."""
        self._plug.gone = True
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """End the process and wait for it."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def run_for_ever(self) -> None:
        """Start the process again a while after it ended, as its Deployment would."""
        while True:
            if not self.is_running and not self.held_back:
                self.start()
            if self._task is not None:
                await asyncio.gather(self._task, return_exceptions=True)
            await asyncio.sleep(RESTART_S)

    async def _supervised(self, operator: Operator) -> None:
        try:
            await operator.run()
        except LeaseLost:
            return
        except Exception as error:
            if not self._plug.gone and not _is_lease_lost(error):
                self.failures.append(error)

    def _sim_provider(self, api: KubeApi, clock: Clock) -> CloudProvider:
        return SimProvider(api, clock, self._cluster.cloud)


def _is_lease_lost(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_lease_lost(inner) for inner in error.exceptions)
    return isinstance(error, LeaseLost)
