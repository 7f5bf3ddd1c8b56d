"""The controllers live through whole stories with exactly the rights of their roles."""

from __future__ import annotations

import asyncio

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.cloud.permissions import rights
from pykarpenter.controllers.operator import DEFAULT_LEASE_NAMESPACE, Operator
from pykarpenter.controllers.permissions import GATES as OWN_RIGHTS
from pykarpenter.controllers.permissions import needed_permissions
from pykarpenter.controllers.startup_checks import needed_kinds, unserved_kinds
from pykarpenter.providers.kwok.permissions import DRIVERS
from pykarpenter.runtime.feature_gates import GATES, FeatureGates
from pykarpenter.runtime.plugins import load_plugin
from pykarpenter.runtime.settings import Settings
from tests.controllers.world import World, story

from .enforcing import Rbac

ALL = {gate.field: True for gate in GATES}


def lives_with_its_rights(settings: Settings) -> Rbac:
    """Provision, consolidate, drain under a budget, terminate by force and by hand; nothing may be refused."""
    plugin = load_plugin("kwok")
    rbac = Rbac(needed_permissions(settings, plugin.permissions({})), DEFAULT_LEASE_NAMESPACE)

    async def main(world: World) -> None:
        await world.begin(operator=False)
        built = await plugin.build(world.operator_api, world.clock, {})
        assert await unserved_kinds(world.operator_api, needed_kinds(settings, built.provider.traits)) == []
        operator = Operator(
            world.operator_api,
            built.provider,
            world.clock,
            settings,
            identity="under-rbac",
            background=built.background,
        )
        running = asyncio.create_task(operator.run())
        try:
            await live(world)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    story(main, settings=settings, faults=(rbac,))
    assert rbac.refused == set()
    return rbac


async def live(world: World) -> None:
    gates = world.settings.feature_gates
    if gates.node_overlay:
        overlay = {"metadata": {"name": "dearer"}, "spec": {"requirements": [], "priceAdjustment": "+10%"}}
        await world.api.create(kinds.NODE_OVERLAY, overlay)
    if gates.capacity_buffer:
        reference = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}
        buffer = {"metadata": {"name": "spare"}, "spec": {"scalableRef": reference, "percentage": 10}}
        await world.api.create(kinds.CAPACITY_BUFFER, buffer, "default")
    # Spot machines would only be replaced by spot machines behind a gate.
    on_demand = {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}
    lasting = {"terminationGracePeriod": "2m"}
    large = {"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["c-32x-amd64-linux"]}
    await world.pool(disruption={"consolidateAfter": "10s"}, template=lasting, requirements=[on_demand, large])
    await world.deployment("web", 6, cpu="3")
    await world.until_running("web", 6)
    before = {claim.name for claim in await world.claims()}
    await world.scale("web", 1)
    wider = {"spec": {"template": {"spec": {"requirements": [on_demand]}}}}
    await world.api.patch(kinds.NODE_POOL, "default", wider)

    async def smaller() -> bool:
        return bool(before - {claim.name for claim in await world.claims()})

    await world.until(smaller, 600, what="a machine was given up")
    await asyncio.sleep(120)
    await world.until_running("web", 1)
    guard = {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}, "metadata": {"name": "web"}}
    await world.api.create(kinds.PDB, guard, "default")
    (claim, *_) = await world.claims()
    # The budget never lets the last pod go: the termination grace period ends the wait.
    await world.api.delete(kinds.NODE_CLAIM, claim.name)
    await asyncio.sleep(300)
    await world.api.delete(kinds.NODE_POOL, "default")
    if gates.capacity_buffer:
        await world.api.delete(kinds.CAPACITY_BUFFER, "spare", "default")
    await world.scale("web", 0)

    async def all_gone() -> bool:
        return not await world.claims() and not await world.nodes()

    await world.until(all_gone, 600, what="machines are gone")


# Gates without rights of their own differ in nothing that RBAC could see.
@pytest.mark.parametrize("gate", ["", *OWN_RIGHTS])
def test_controllers_work_with_exactly_their_rights(gate: str) -> None:
    """RBAC is only least privilege if the program still works under it."""
    chosen = {found.field: True for found in GATES if found.name == gate}
    lives_with_its_rights(Settings(feature_gates=FeatureGates(**chosen)))


def test_every_right_to_write_is_used_in_one_story() -> None:
    """Reading the code finds surplus rights; living finds those that only dead code would use."""
    settings = Settings(feature_gates=FeatureGates(**ALL))
    rbac = lives_with_its_rights(settings)
    given = {right for right in rights(rbac.permissions) if right[3] not in ("get", "list", "watch")}
    # Only catalogues with volume limits or devices publish these.
    drivers = {(item.namespace, item.group, item.resource, "create") for item in DRIVERS}
    assert given - rbac.used - drivers == set()
