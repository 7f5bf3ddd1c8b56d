"""What of a machine pods can use, and what of an offering can be bought."""

from __future__ import annotations

import dataclasses

import pytest

from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.requirements import Requirements
from tests.support.builders import make_offering


@pytest.mark.promise("API-6.2")
def test_allocatable_is_what_overhead_and_huge_pages_leave() -> None:
    """Pods planned onto memory that is set aside for huge pages would never start."""
    capacity = {"cpu": 4000, "memory": 1000, "hugepages-2Mi": 300, "hugepages-1Gi": 100}
    item = InstanceType("a", Requirements(), (), capacity, {"cpu": 100, "memory": 50})
    assert item.allocatable() == {"cpu": 3900, "memory": 550, "hugepages-2Mi": 300, "hugepages-1Gi": 100}
    small = dataclasses.replace(item, overhead={"cpu": 9000, "memory": 900})
    assert small.allocatable()["cpu"] == small.allocatable()["memory"] == 0


@pytest.mark.promise("API-6.2")
def test_an_offerings_overrides_replace_by_key() -> None:
    item = InstanceType("a", Requirements(), (), {"cpu": 4000, "memory": 1000}, {"cpu": 100, "memory": 50})
    offering = dataclasses.replace(
        make_offering("zone-a", "spot", 1.0), capacity_override={"memory": 800}, overhead_override={"cpu": 200}
    )
    assert item.allocatable(offering) == {"cpu": 3800, "memory": 750}


@pytest.mark.promise("API-6.3")
@pytest.mark.parametrize(
    ("capacity_type", "left", "available", "launchable"),
    [("spot", 0, True, True), ("spot", 0, False, False), ("reserved", 1, True, True), ("reserved", 0, True, False)],
)
def test_a_full_reservation_is_healthy_but_cannot_be_bought(
    capacity_type: str, left: int, available: bool, launchable: bool
) -> None:
    """Planning on it would fail at every launch."""
    offering = make_offering("zone-a", capacity_type, 1.0, reservation="r-1", reservation_capacity=left)
    assert dataclasses.replace(offering, available=available).launchable is launchable
