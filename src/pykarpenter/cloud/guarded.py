"""A provider as controllers see it: what it lists is vetted, what it refused is remembered.

Everything else goes straight through. Types that did not change come back as the very same tuple, because the packing
engine keys its tables on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.cloud.errors import InsufficientCapacity
from pykarpenter.cloud.provider import CloudProvider, Interruption, ProviderTraits, RegistrationHook
from pykarpenter.cloud.unavailable import OfferingKey, UnavailableOfferings, without_offerings
from pykarpenter.cloud.vetting import Vetted, vet
from pykarpenter.core.instance_types import InstanceType

Report = Callable[[str, Vetted], None]


def _silent(pool: str, vetted: Vetted) -> None:
    del pool, vetted


@dataclass(slots=True)
class _Known:
    """The last catalogue of one pool: as it came, as it was judged, and as it was handed out."""

    raw: list[InstanceType]
    vetted: tuple[InstanceType, ...]
    by_name: dict[str, InstanceType]
    handed_out: list[InstanceType] = field(default_factory=list)
    unavailable: frozenset[OfferingKey] = frozenset()


class GuardedProvider:
    """Satisfies `CloudProvider`; `report` hears what is wrong with a catalogue each time it changed."""

    def __init__(self, inner: CloudProvider, now: Callable[[], float], report: Report = _silent) -> None:
        self._inner = inner
        self._report = report
        self._known: dict[str, _Known] = {}
        self._now = now
        self.unavailable = UnavailableOfferings()

    @property
    def traits(self) -> ProviderTraits:
        return self._inner.traits

    async def create(self, claim: NodeClaim) -> NodeClaim:
        try:
            return await self._inner.create(claim)
        except InsufficientCapacity as error:
            for offering in error.offerings:
                self.unavailable.mark(offering, self._now())
            raise

    async def delete(self, claim: NodeClaim) -> None:
        await self._inner.delete(claim)

    async def get(self, provider_id: str) -> NodeClaim:
        return await self._inner.get(provider_id)

    async def list_instances(self) -> list[NodeClaim]:
        return await self._inner.list_instances()

    async def instance_types(self, pool: NodePool) -> list[InstanceType]:
        """Vetted types with refused offerings unavailable; the same list object while nothing changed."""
        raw = await self._inner.instance_types(pool)
        known = self._known.get(pool.uid)
        if known is None or not _same_objects(known.raw, raw):
            judged = vet(raw, known.by_name if known is not None else None)
            self._report(pool.name, judged)
            known = _Known(list(raw), judged.types, {item.name: item for item in judged.types})
            known.handed_out = list(judged.types)
            self._known[pool.uid] = known
        refused = self.unavailable.current(self._now())
        if refused != known.unavailable:
            known.handed_out = [without_offerings(item, refused) for item in known.vetted]
            known.unavailable = refused
        return known.handed_out

    def forget_pool(self, uid: str) -> None:
        """Drop what is kept for a pool that is gone."""
        self._known.pop(uid, None)

    async def is_drifted(self, claim: NodeClaim) -> str:
        return await self._inner.is_drifted(claim)

    async def reboot(self, claim: NodeClaim, operation_id: str) -> None:
        await self._inner.reboot(claim, operation_id)

    def registration_hooks(self) -> list[RegistrationHook]:
        return self._inner.registration_hooks()

    async def interruptions(self) -> list[Interruption]:
        return await self._inner.interruptions()


def _same_objects(left: list[InstanceType], right: list[InstanceType]) -> bool:
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))
