"""What of a provider's catalogue is used: one bad type never costs another, and prices that are none are not used."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pykarpenter.api import labels
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.cloud.errors import InsufficientCapacity
from pykarpenter.cloud.guarded import GuardedProvider
from pykarpenter.cloud.unavailable import DEFAULT_TTL_S
from pykarpenter.cloud.vetting import Vetted, vet
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.requirements import Requirements, requirement


def offering(zone: str = "a", capacity_type: str = "spot", price: float | None = 0.1) -> Offering:
    places = [requirement(labels.CAPACITY_TYPE, "In", [capacity_type])]
    if zone:
        places.append(requirement(labels.ZONE, "In", [zone]))
    return Offering(Requirements(places), price)


def machine(name: str = "m", cpu: int = 4000, offerings: tuple[Offering, ...] | None = None, **amounts: int) -> Any:
    return InstanceType(
        name,
        Requirements([requirement(labels.ZONE, "In", ["a", "b"])]),
        (offering(),) if offerings is None else offerings,
        {"cpu": cpu, "memory": 2**30, **amounts},
    )


def names(vetted: Vetted) -> list[str]:
    return [item.name for item in vetted.types]


def test_good_types_pass_as_the_same_objects() -> None:
    types = [machine("a"), machine("b")]
    vetted = vet(types)
    assert all(left is right for left, right in zip(vetted.types, types, strict=True)) and not vetted.problems


@pytest.mark.parametrize("amount", [-1, 2**63, float("nan")])
def test_b28_absurd_amounts_are_quarantined_and_the_last_good_value_kept(amount: Any) -> None:
    good = machine("m", cpu=4000)
    broken = machine("m", cpu=4000, memory=amount)
    assert vet([broken, machine("other")], {"m": good}).types[0] is good
    fresh = vet([broken, machine("other")])
    assert names(fresh) == ["other"] and fresh.dropped == {"quarantined": 1}
    assert "memory" in fresh.problems[0]


@pytest.mark.promise("API-6.4")
def test_b29_types_without_cpu_or_offerings_and_repeated_names_are_dropped_and_counted() -> None:
    vetted = vet([machine("x", cpu=0), machine("y", offerings=()), machine("z"), machine("z", cpu=1)])
    assert names(vetted) == ["z"]
    assert vetted.types[0].capacity["cpu"] == 4000
    assert vetted.dropped == {"no-cpu": 1, "no-offerings": 1, "duplicate-name": 1}


@pytest.mark.parametrize("price", [-0.1, float("nan"), float("inf")])
def test_b30_price_that_is_none_leaves_the_offering_launchable_but_without_price(price: float) -> None:
    (item,) = vet([machine(offerings=(offering(price=price), offering("b", price=0.2)))]).types
    assert [found.price for found in item.offerings] == [None, 0.2]
    assert item.offerings[0].launchable


def test_b31_offering_in_an_unknown_zone_is_dropped() -> None:
    (item,) = vet([machine(offerings=(offering("nowhere"), offering("a"), offering("")))]).types
    assert [found.zone for found in item.offerings] == ["a"]


@pytest.mark.promise("API-6.4")
def test_f45_empty_catalogue_keeps_the_last_good_one() -> None:
    good = machine("m")
    vetted = vet([], {"m": good})
    assert vetted.types == (good,) and "empty" in vetted.problems[0]
    assert vet([]).types == ()


class Listing:
    """A provider that lists what it is told to and refuses launches."""

    def __init__(self, *types: InstanceType) -> None:
        self.types = list(types)

    async def instance_types(self, pool: NodePool) -> list[InstanceType]:
        return list(self.types)

    async def create(self, claim: NodeClaim) -> NodeClaim:
        raise InsufficientCapacity("none left", (("m", "a", "spot"),))


@pytest.mark.promise("API-3.2.15")
async def test_refused_offering_is_unavailable_for_three_minutes() -> None:
    now = 1000.0
    provider = GuardedProvider(Listing(machine("m"), machine("n")), lambda: now)  # type: ignore[arg-type]
    before = await provider.instance_types(NodePool())
    with pytest.raises(InsufficientCapacity):
        await provider.create(NodeClaim())
    during = await provider.instance_types(NodePool())
    assert [item.offerings[0].available for item in during] == [False, True]
    assert during[1] is before[1], "types that are not concerned stay the same objects"
    now += DEFAULT_TTL_S
    assert [item.offerings[0].available for item in await provider.instance_types(NodePool())] == [True, True]


async def test_catalogue_that_did_not_change_is_the_same_list() -> None:
    """The packing engine keys its tables on it."""
    listing = Listing(machine("m"))
    reports: list[str] = []
    provider = GuardedProvider(listing, lambda: 0.0, lambda pool, vetted: reports.append(pool))  # type: ignore[arg-type]
    first = await provider.instance_types(NodePool())
    assert await provider.instance_types(NodePool()) is first
    listing.types = [dataclasses.replace(listing.types[0], capacity={"cpu": 8000})]
    assert await provider.instance_types(NodePool()) is not first and len(reports) == 2


async def test_f45_catalogue_that_vanishes_stays_in_use() -> None:
    listing = Listing(machine("m"))
    provider = GuardedProvider(listing, lambda: 0.0)  # type: ignore[arg-type]
    await provider.instance_types(NodePool())
    listing.types = []
    assert [item.name for item in await provider.instance_types(NodePool())] == ["m"]
    listing.types = [machine("n")]
    assert [item.name for item in await provider.instance_types(NodePool())] == ["n"]
