"""Random fleets with devices: whatever type of a planned machine is bought, its pods' claims can be served there."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest

from pykarpenter.api.devices import ResourceClaim, ResourceSliceSpec
from pykarpenter.core.instance_types import InstanceType, by_name
from pykarpenter.core.plans import LaunchPlan
from pykarpenter.core.reasons import Why
from tests.core.devices.support import (
    DRIVER,
    claim,
    counter_slice,
    device,
    first_of,
    gpu_type,
    match,
    objects,
    on_node,
    option,
    plan,
    request,
    searched,
    spec,
    user,
)
from tests.support.builders import make_node, make_pods, make_type

SIZES = ("small", "large")


class World:
    """Types with plain, partitioned and shared devices, and claims of every kind that is supported."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.types = [make_type("plain", price=0.1), *(self._type(i) for i in range(4))]
        self.claims = {f"c{i}": self._claim(f"c{i}") for i in range(12)}
        names = list(self.claims)
        self.uses = {f"p{i}": self.chance.sample(names, self.chance.choice((1, 1, 2))) for i in range(14)}
        self.pods = [user(name, *used, cpu="300m") for name, used in self.uses.items()]
        self.slices = [on_node(f"n{i}", *self._devices(2)) for i in range(3)]
        self.nodes = [make_node(f"n{i}", cpu="1") for i in range(3)]

    def _devices(self, count: int, **fields: Any) -> list[dict[str, Any]]:
        return [
            device(f"d{i}", size=self.chance.choice(SIZES), numa=self.chance.randrange(2), **fields)
            for i in range(count)
        ]

    def _type(self, index: int) -> InstanceType:
        number = self.chance.randint(1, 4)
        kind = self.chance.choice(("plain", "parts", "shares"))
        slices = [spec(*self._devices(number))]
        if kind == "parts":
            slices = [counter_slice(mem=str(number)), spec(*self._devices(number + 2, counters={"mem": "1"}))]
        elif kind == "shares":
            fields = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": str(number)}}}
            slices = [spec(*(device(f"s{i}", fields=fields, size="small", numa=0) for i in range(2)))]
        return gpu_type(f"t{index}", *slices, price=1.0 + index, cpu="8")

    def _option(self) -> dict[str, Any]:
        wanted = [f'device.attributes["{DRIVER}"].size == "{self.chance.choice(SIZES)}"']
        count = self.chance.choice((1, 1, 2, 0))
        return option(count, *(wanted if self.chance.random() < 0.5 else ()))

    def _claim(self, name: str) -> ResourceClaim:
        requests = [{"name": "r0", "exactly": self._option()}]
        if self.chance.random() < 0.4:
            requests.append(first_of("r1", a=self._option(), b=self._option()))
        if self.chance.random() < 0.3:
            requests.append(request("r2", 1, capacity={"requests": {"memory": "1"}}))
        constraints = [match(f"{DRIVER}/numa")] if self.chance.random() < 0.4 else []
        return claim(name, *requests, constraints=constraints)

    def plan(self) -> LaunchPlan:
        known = objects(list(self.claims.values()), self.slices)
        return plan([*self.pods, *make_pods(6, "plain", cpu="2")], known, self.types, nodes=self.nodes)

    def claims_of(self, pods: Sequence[str]) -> list[ResourceClaim]:
        """Each claim once, in the order the pods came."""
        names = chain.from_iterable(self.uses.get(key.partition("/")[2], ()) for key in pods)
        return [self.claims[name] for name in dict.fromkeys(names)]


def served(slices: Sequence[ResourceSliceSpec], claims: Sequence[ResourceClaim]) -> bool:
    return not claims or not isinstance(searched(slices, *claims), str)


@pytest.mark.parametrize("seed", range(20))
def test_every_type_of_a_planned_machine_serves_all_its_claims_together(seed: int) -> None:
    world = World(seed)
    found = world.plan()
    assert found == World(seed).plan(), "equal input, equal plan"
    types = by_name(world.types)
    homes: dict[str, str] = {}
    for item in found.claims:
        claims = world.claims_of(item.pods)
        for name in item.instance_types:
            assert served(types[name].dynamic_resources, claims), (name, item.pods)
        homes.update((used.name, f"new {item.pods[0]}") for used in claims if homes.get(used.name) is None)
        assert all(homes[used.name] == f"new {item.pods[0]}" for used in claims), "a claim is on one machine"
    for placement in found.existing:
        (published,) = (item.spec for item in world.slices if item.spec.node_name == placement.node)
        assert served([published], world.claims_of(placement.pods))
        assert not {used.name for used in world.claims_of(placement.pods)} & set(homes)


@pytest.mark.parametrize("seed", range(20))
def test_a_pod_is_left_out_only_when_no_fresh_machine_could_serve_it_or_its_claim_is_elsewhere(seed: int) -> None:
    world = World(seed)
    found = world.plan()
    placed = [key for item in (*found.claims, *found.existing) for key in item.pods]
    taken = {used.name for used in world.claims_of(placed)}
    for key, refusal in found.unschedulable.items():
        assert refusal.why is Why.DEVICES, refusal
        own = world.claims_of([key])
        if not taken & {used.name for used in own}:
            assert not any(served(item.dynamic_resources, own) for item in world.types), key
