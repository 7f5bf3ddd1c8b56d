"""NodeOverlays change what machines cost and have, for all pools at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.extras import NodeOverlay
from pykarpenter.api.meta import condition_status, find_condition
from pykarpenter.api.nodepool import NodePool
from pykarpenter.cloud.catalog import read_catalog
from pykarpenter.cloud.errors import CloudError
from pykarpenter.core.overlays import apply_overlays, rejected_overlays
from pykarpenter.runtime.feature_gates import FeatureGates
from pykarpenter.runtime.settings import Settings
from tests.controllers.world import World, story

ON = Settings(feature_gates=FeatureGates(node_overlay=True))
FAMILIES = [
    {
        "key": labels.INSTANCE_TYPE,
        "operator": "In",
        "values": ["c-4x-amd64-linux", "s-4x-amd64-linux", "m-4x-amd64-linux"],
    }
]


async def overlay(world: World, name: str, instance_type: str, **spec: Any) -> None:
    wanted = [{"key": labels.INSTANCE_TYPE, "operator": "In", "values": [instance_type]}]
    body = {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": name},
        "spec": {"requirements": wanted, **spec},
    }
    await world.api.create(kinds.NODE_OVERLAY, body)


async def shown(world: World, name: str) -> NodeOverlay:
    return await world.api.get(kinds.NODE_OVERLAY, name)


async def bought(world: World) -> str:
    (claim,) = await world.claims()
    return claim.metadata.labels[labels.INSTANCE_TYPE]


@pytest.mark.promise("API-1.5.10")
def test_an_overlaid_price_decides_what_is_bought() -> None:
    """Discounts that the provider does not know are told by overlays."""

    async def tell(world: World) -> None:
        await world.begin()
        await overlay(world, "discount", "m-4x-amd64-linux", price="0.001")
        await world.pool(requirements=FAMILIES)
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        assert await bought(world) == "m-4x-amd64-linux"
        (claim,) = await world.claims()
        assert claim.metadata.annotations[labels.PRICE_OVERLAY_APPLIED] == "true"
        assert condition_status((await shown(world, "discount")).status.conditions, "Ready") == "True"

    story(tell, settings=ON)


@pytest.mark.promise("API-1.5.10")
def test_overlays_mean_nothing_without_their_gate() -> None:
    """Alpha features are asked for."""

    async def tell(world: World) -> None:
        await world.begin()
        await overlay(world, "discount", "m-4x-amd64-linux", price="0.001")
        await world.pool(requirements=FAMILIES)
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        assert await bought(world) == "c-4x-amd64-linux"

    story(tell)


@pytest.mark.promise("API-1.5.11")
def test_conflicting_overlays_are_named_and_the_later_applies_nowhere() -> None:
    """Two prices for one machine: the later by name order loses, in every pool."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.pool(requirements=FAMILIES)
        await overlay(world, "a", "m-4x-amd64-linux", price="0.001", weight=5)
        await overlay(world, "b", "m-4x-amd64-linux", price="9.0", weight=5)
        await asyncio.sleep(20)
        loser = find_condition((await shown(world, "a")).status.conditions, "ValidationSucceeded")
        assert loser is not None
        assert (loser.status, loser.reason) == ("False", "Conflict")
        assert condition_status((await shown(world, "b")).status.conditions, "Ready") == "True"
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        assert await bought(world) == "c-4x-amd64-linux"
        await world.api.delete(kinds.NODE_OVERLAY, "b")
        await asyncio.sleep(20)
        assert condition_status((await shown(world, "a")).status.conditions, "Ready") == "True"

    story(tell, settings=ON)


@pytest.mark.promise("API-1.5.12")
def test_a_pool_is_not_used_before_its_overlays_were_evaluated() -> None:
    """With the wrong prices the wrong machines would be bought."""

    async def tell(world: World) -> None:
        inner = world.make_provider
        broken = True

        def flaky(api: Any) -> Any:
            provider = inner(api)
            listed = provider.instance_types

            async def instance_types(pool: Any) -> Any:
                if broken:
                    raise CloudError("throttled")
                return await listed(pool)

            provider.instance_types = instance_types
            return provider

        world.make_provider = flaky
        await world.begin()
        await overlay(world, "discount", "m-4x-amd64-linux", price="0.001")
        await world.pool(requirements=FAMILIES)
        await world.deployment("web", 1)
        await asyncio.sleep(60)
        assert await world.claims() == []
        broken = False
        await world.until_running("web", 1)
        assert await bought(world) == "m-4x-amd64-linux"

    story(tell, settings=ON)


@pytest.mark.promise("API-1.5.10")
def test_overlays_are_evaluated_again_when_a_class_changes() -> None:
    """Another class may mean other machines; waiting hours for the next look would buy the wrong ones."""

    async def tell(world: World) -> None:
        inner = world.make_provider
        asked: list[float] = []

        def counting(api: Any) -> Any:
            provider = inner(api)
            listed = provider.instance_types

            async def instance_types(pool: Any) -> Any:
                asked.append(world.clock.monotonic())
                return await listed(pool)

            provider.instance_types = instance_types
            return provider

        world.make_provider = counting
        await world.begin()
        await overlay(world, "discount", "m-4x-amd64-linux", price="0.001")
        await world.pool(requirements=FAMILIES)
        await asyncio.sleep(60)
        assert world.operator is not None
        revision = world.operator.state.consolidation_revision
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"metadata": {"labels": {"a": "b"}}})
        await asyncio.sleep(5)
        assert world.operator.state.consolidation_revision == revision, "a label is no new generation"
        asked.clear()
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "1s"}})
        await asyncio.sleep(5)
        assert asked
        assert world.operator.state.consolidation_revision != revision

    story(tell, settings=ON)


@pytest.mark.promise("API-1.5.11")
def test_an_overlay_that_takes_no_part_stands_in_nobodys_way() -> None:
    """`b` conflicts with `c` in one pool and so applies nowhere; in the other pool `a` has nothing to conflict with."""
    catalog = read_catalog("kwok")
    types = tuple(t for t in catalog.types if t.name in ("c-4x-amd64-linux", "s-4x-amd64-linux"))

    def pool(name: str) -> NodePool:
        return msgspec.convert({"metadata": {"name": name}, "spec": {"template": {"spec": {}}}}, NodePool, strict=False)

    def priced(name: str, *pools: str) -> NodeOverlay:
        wanted = [{"key": labels.NODEPOOL, "operator": "In", "values": list(pools)}]
        body = {"metadata": {"name": name}, "spec": {"requirements": wanted, "price": "1"}}
        return msgspec.convert(body, NodeOverlay, strict=False)

    overlays = [priced("a", "second"), priced("b", "first", "second"), priced("c", "first")]
    rejected = rejected_overlays([(pool("first"), types), (pool("second"), types)], overlays, catalog.label_rules)
    assert {name: why for name, (why, _) in rejected.items()} == {"b": "Conflict"}


@pytest.mark.parametrize(
    ("adjustment", "price"), [("+.5", 1.5), ("-0.25", 0.75), ("+.5%", 1.005), ("-10%", 0.9), ("-2", 0.0)]
)
@pytest.mark.promise("API-1.5.13")
def test_every_adjustment_that_the_schema_allows_is_understood(adjustment: str, price: float) -> None:
    """A price moves by an amount or a share, and never below zero."""
    catalog = read_catalog("kwok")
    (plain,) = (t for t in catalog.types if t.name == "c-4x-amd64-linux")
    dollar = replace(plain, offerings=tuple(replace(o, price=1.0) for o in plain.offerings))
    wanted = [{"key": labels.INSTANCE_TYPE, "operator": "In", "values": [plain.name]}]
    body = {"metadata": {"name": "x"}, "spec": {"requirements": wanted, "priceAdjustment": adjustment}}
    pool = msgspec.convert({"metadata": {"name": "p"}, "spec": {"template": {"spec": {}}}}, NodePool, strict=False)
    overlay = msgspec.convert(body, NodeOverlay, strict=False)
    (altered,) = apply_overlays(pool, (dollar,), [overlay], catalog.label_rules).types
    assert [o.price for o in altered.offerings] == pytest.approx([price] * len(altered.offerings))
