"""A provider whose calls are measured: how long each took, for which controller, and what failed."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from pykarpenter.api import labels
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.cloud.errors import InsufficientCapacity, NodeClaimNotFound, NodeClassNotReady
from pykarpenter.cloud.provider import CloudProvider, Interruption, ProviderTraits, RegistrationHook
from pykarpenter.controllers.context import Metrics
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.controller import AT_WORK

T = TypeVar("T")


def error_label(error: BaseException) -> str:
    """Karpenter's name of a provider's error; `unknown` for any other."""
    for kind, name in (
        (NodeClaimNotFound, "NodeClaimNotFoundError"),
        (NodeClassNotReady, "NodeClassNotReadyError"),
        (InsufficientCapacity, "InsufficientCapacityError"),
    ):
        if isinstance(error, kind):
            return name
    return "unknown"


class MeteredProvider:
    """Satisfies `CloudProvider`."""

    def __init__(self, inner: CloudProvider, clock: Clock, metrics: Metrics) -> None:
        self._inner = inner
        self._clock = clock
        self._metrics = metrics

    @property
    def traits(self) -> ProviderTraits:
        return self._inner.traits

    async def create(self, claim: NodeClaim) -> NodeClaim:
        return await self._measured("Create", self._inner.create(claim), _pool_of(claim))

    async def delete(self, claim: NodeClaim) -> None:
        await self._measured("Delete", self._inner.delete(claim), _pool_of(claim))

    async def get(self, provider_id: str) -> NodeClaim:
        return await self._measured("Get", self._inner.get(provider_id))

    async def list_instances(self) -> list[NodeClaim]:
        return await self._measured("List", self._inner.list_instances())

    async def instance_types(self, pool: NodePool) -> list[InstanceType]:
        return await self._measured("GetInstanceTypes", self._inner.instance_types(pool), pool.name)

    async def is_drifted(self, claim: NodeClaim) -> str:
        return await self._measured("IsDrifted", self._inner.is_drifted(claim), _pool_of(claim))

    async def reboot(self, claim: NodeClaim, operation_id: str) -> None:
        await self._measured("Reboot", self._inner.reboot(claim, operation_id), _pool_of(claim))

    def registration_hooks(self) -> list[RegistrationHook]:
        return self._inner.registration_hooks()

    async def interruptions(self) -> list[Interruption]:
        return await self._inner.interruptions()

    async def _measured(self, method: str, call: Awaitable[T], pool: str = "") -> T:
        labelled = {"controller": AT_WORK.get(), "method": method, "provider": self._inner.traits.name}
        started = self._clock.monotonic()
        try:
            return await call
        except Exception as error:
            failed = {**labelled, "error": error_label(error), "nodepool": pool}
            self._metrics.count("karpenter_cloudprovider_errors_total", failed)
            raise
        finally:
            self._metrics.observe(
                "karpenter_cloudprovider_duration_seconds", labelled, self._clock.monotonic() - started
            )


def _pool_of(claim: NodeClaim) -> str:
    return claim.metadata.labels.get(labels.NODEPOOL, "")
