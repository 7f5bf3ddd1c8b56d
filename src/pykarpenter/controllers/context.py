"""What every controller is given: the doors to the cluster and the cloud, time, settings and what is known.

A controller module exposes a class that takes a `Context`; it subscribes to the kinds it reacts to while it is
constructed, and `run()` works until it is cancelled. `controllers/operator.py` composes them; controllers do not
know each other except through the cluster and `state`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pykarpenter.api.kinds import Kind
from pykarpenter.api.nodes import ObjectReference
from pykarpenter.cloud.provider import CloudProvider
from pykarpenter.controllers.pod_times import PodTimes
from pykarpenter.kube.contract import KubeApi
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.gauge_tables import GaugeTable
from pykarpenter.runtime.offload import Inline, Offload
from pykarpenter.runtime.settings import Settings
from pykarpenter.state.cluster import ClusterState

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Changed(Protocol[T_co]):
    """One observed change of an object; `new` is None when it was deleted, `initial` during the first list."""

    @property
    def old(self) -> T_co | None: ...

    @property
    def new(self) -> T_co | None: ...

    @property
    def initial(self) -> bool: ...


class Cached(Protocol[T]):
    """The watched objects of one kind, by key (`namespace/name`, or the name)."""

    def get(self, key: str) -> T | None: ...

    def values(self) -> list[T]: ...

    def index(self, name: str, value: str) -> list[T]: ...

    @property
    def synced(self) -> bool: ...


class Caches(Protocol):
    """The caches of all watched kinds."""

    def of(self, kind: Kind[T]) -> Cached[T]:
        """The cache of a kind; asking for it before the operator runs is what makes the kind watched."""
        ...

    def subscribe(self, kind: Kind[T], handler: Callable[[Changed[T]], None]) -> None:
        """Call the handler for each change, after cache and state have taken it in; handlers must not block."""
        ...

    def unserved(self) -> list[str]:
        """Kinds (`group/kind`) that were served and no longer are: nothing is created, bought or removed meanwhile."""
        ...


class Recorder(Protocol):
    """Publishes events without waiting for them."""

    def publish(
        self,
        target: ObjectReference,
        type: str,
        reason: str,
        message: str,
        *,
        dedupe: tuple[str, ...] = (),
        window_s: float = 120.0,
    ) -> None: ...


class Metrics(Protocol):
    """Counters, gauges and histograms by the names of the documentation, with the `karpenter_` prefix."""

    def count(self, name: str, labels: dict[str, str], amount: float = 1.0) -> None: ...

    def gauge(self, name: str, labels: dict[str, str], value: float) -> None: ...

    def observe(self, name: str, labels: dict[str, str], value: float) -> None: ...

    def forget(self, name: str, labels: dict[str, str]) -> None:
        """Show no more what a family says with these labels; for objects that are gone."""
        ...


class NoMetrics:
    """Measures nothing."""

    def count(self, name: str, labels: dict[str, str], amount: float = 1.0) -> None:
        pass

    def gauge(self, name: str, labels: dict[str, str], value: float) -> None:
        pass

    def observe(self, name: str, labels: dict[str, str], value: float) -> None:
        pass

    def forget(self, name: str, labels: dict[str, str]) -> None:
        pass


class Synced(Protocol):
    """Whether the first complete picture of the cluster is there."""

    @property
    def is_done(self) -> bool: ...

    async def wait_first(self) -> None:
        """Before this returns, nothing that creates or removes machines may act."""
        ...


class AlwaysSynced:
    """For tests that fill the state themselves."""

    is_done = True

    async def wait_first(self) -> None:
        return


class Runnable(Protocol):
    """A controller or loop: works until it is cancelled."""

    async def run(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Context:
    """Shared by all controllers of one process."""

    api: KubeApi
    provider: CloudProvider
    clock: Clock
    settings: Settings
    caches: Caches
    state: ClusterState
    recorder: Recorder
    metrics: Metrics
    sync: Synced = field(default_factory=AlwaysSynced)
    offload: Offload = field(default_factory=Inline)
    pod_times: PodTimes = field(default_factory=PodTimes)
    # Gauges of the scheduling pass that runs now.
    passes: GaugeTable = field(default_factory=lambda: GaugeTable(lambda: 0.0))
    # This process, as the Lease names it; plan ids derive from it.
    identity: str = "pykarpenter"


Factory = Callable[[Context], list[Runnable]]
