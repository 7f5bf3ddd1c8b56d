"""A provider whose instance types are altered by NodeOverlays (gate NodeOverlay).

Which overlays take part is decided elsewhere, for all pools at once. A pool that has not been part of such a decision
is not answered for: with the wrong prices the wrong machines would be bought. Everything but types goes straight
through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pykarpenter.api.extras import NodeOverlay
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.cloud.errors import UnevaluatedNodePool
from pykarpenter.cloud.provider import CloudProvider, Interruption, ProviderTraits, RegistrationHook
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.overlays import apply_overlays


@dataclass(frozen=True, slots=True)
class _Answer:
    """What was made of a pool's types; reused while neither they nor the overlays change."""

    plain: list[InstanceType]
    revision: int
    types: list[InstanceType]


class OverlaidProvider:
    """Satisfies `CloudProvider`."""

    def __init__(self, inner: CloudProvider) -> None:
        self.inner = inner
        self._overlays: tuple[NodeOverlay, ...] = ()
        self._evaluated: frozenset[str] = frozenset()
        self._revision = 0
        self._answers: dict[str, _Answer] = {}

    def use(self, overlays: Sequence[NodeOverlay], evaluated: Iterable[str]) -> None:
        """Apply these overlays from now on, to the pools (by UID) that were evaluated with them."""
        self._overlays = tuple(overlays)
        self._evaluated = frozenset(evaluated)
        self._revision += 1
        self._answers = {uid: answer for uid, answer in self._answers.items() if uid in self._evaluated}

    @property
    def traits(self) -> ProviderTraits:
        return self.inner.traits

    async def instance_types(self, pool: NodePool) -> list[InstanceType]:
        """The altered types, the same list while nothing changed; raises UnevaluatedNodePool."""
        if pool.uid not in self._evaluated:
            raise UnevaluatedNodePool(f"overlays of nodepool {pool.name!r} have not been evaluated yet")
        plain = await self.inner.instance_types(pool)
        known = self._answers.get(pool.uid)
        if known is None or known.plain is not plain or known.revision != self._revision:
            altered = apply_overlays(pool, tuple(plain), self._overlays, self.traits.label_rules)
            known = self._answers[pool.uid] = _Answer(plain, self._revision, list(altered.types))
        return known.types

    async def create(self, claim: NodeClaim) -> NodeClaim:
        return await self.inner.create(claim)

    async def delete(self, claim: NodeClaim) -> None:
        await self.inner.delete(claim)

    async def get(self, provider_id: str) -> NodeClaim:
        return await self.inner.get(provider_id)

    async def list_instances(self) -> list[NodeClaim]:
        return await self.inner.list_instances()

    async def is_drifted(self, claim: NodeClaim) -> str:
        return await self.inner.is_drifted(claim)

    async def reboot(self, claim: NodeClaim, operation_id: str) -> None:
        await self.inner.reboot(claim, operation_id)

    def registration_hooks(self) -> list[RegistrationHook]:
        return self.inner.registration_hooks()

    async def interruptions(self) -> list[Interruption]:
        return await self.inner.interruptions()
