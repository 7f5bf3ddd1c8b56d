"""Minimum values and reserved capacity."""

from __future__ import annotations

import pytest

from pykarpenter.api import labels
from pykarpenter.api.labels import LabelRules
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.reasons import Why
from tests.core.packing.support import allowed, per_claim, plan_of
from tests.support.builders import expression, make_offering, make_pod, make_pods, make_pool, make_type

RESERVATION = "test/reservation-id"
SETTINGS = PackingSettings(
    reservation_id_label=RESERVATION, label_rules=LabelRules(well_known=labels.WELL_KNOWN | {RESERVATION})
)
BEST_EFFORT = PackingSettings(min_values_policy="BestEffort")


def sizes() -> list[object]:
    return [make_type(f"t{cpu}", cpu=str(cpu), price=cpu) for cpu in (2, 4, 8)]


@pytest.mark.promise("SCH-12.3")
def test_a_claim_keeps_its_minimum_of_types() -> None:
    """Adding a pod never leaves fewer types than asked for."""
    pools = [make_pool(requirements=[expression(labels.INSTANCE_TYPE, "Exists", min_values=2)])]
    plan = plan_of(make_pods(6), pools=pools, types=sizes())
    assert all(len(claim.instance_types) >= 2 for claim in plan.claims)
    assert per_claim(plan) == [2, 4]


@pytest.mark.promise("SCH-12.3")
def test_b6_minimums_that_cannot_be_met() -> None:
    """Strict refuses; BestEffort lowers the minimum and says so."""
    pools = [make_pool(requirements=[expression(labels.INSTANCE_TYPE, "Exists", min_values=5)])]
    strict = plan_of([make_pod()], pools=pools, types=sizes())
    assert strict.unschedulable["default/pod"].pools[0].why is Why.MIN_VALUES
    relaxed = plan_of([make_pod()], BEST_EFFORT, pools=pools, types=sizes())
    claim = relaxed.claims[0]
    assert claim.annotations[labels.MIN_VALUES_RELAXED] == "true"
    assert next(r.min_values for r in claim.requirements if r.key == labels.INSTANCE_TYPE) == 3


@pytest.mark.promise("SCH-12.3")
def test_only_values_the_claim_still_allows_count() -> None:
    """A zone pinned by a volume or selector leaves one zone, whatever the types offer."""
    pools = [make_pool(requirements=[expression(labels.ZONE, "Exists", min_values=3)])]
    pod = make_pod(node_selector={labels.ZONE: "zone-a"})
    assert plan_of([pod], pools=pools).unschedulable
    claim = plan_of([pod], BEST_EFFORT, pools=pools).claims[0]
    assert next(r.min_values for r in claim.requirements if r.key == labels.ZONE) == 1


def reserved(capacity: int, *others: object, cpu: str = "4") -> object:
    offering = make_offering("zone-a", "reserved", 0.01, reservation="r-1", reservation_capacity=capacity)
    return make_type(cpu=cpu, offerings=[offering, *others])  # type: ignore[list-item]


@pytest.mark.promise("SCH-12.5")
def test_claims_hold_reservations_and_say_so() -> None:
    """The claim is narrowed to what it holds."""
    plan = plan_of([make_pod()], SETTINGS, types=[reserved(1, make_offering("zone-a"))])
    assert plan.claims[0].choice.capacity_type == "reserved"
    assert allowed(plan, 0, labels.CAPACITY_TYPE) == ["reserved"]
    assert allowed(plan, 0, RESERVATION) == ["r-1"]


@pytest.mark.promise("SCH-12.6")
def test_pods_wait_when_the_reservation_is_used_up_in_this_round() -> None:
    """Strict: better to wait a round than to pay for on-demand too early."""
    pods = make_pods(2, cpu="3")
    plan = plan_of(pods, SETTINGS, types=[reserved(1, make_offering("zone-a"))])
    assert per_claim(plan) == [1]
    assert list(plan.deferred) == ["default/pod-0001"]
    assert not plan.unschedulable


@pytest.mark.promise("SCH-12.7")
def test_a_full_reservation_falls_back_to_on_demand() -> None:
    """Full is not a reason to wait when something else can be bought."""
    plan = plan_of([make_pod()], SETTINGS, types=[reserved(0, make_offering("zone-a"))])
    assert plan.claims[0].choice.capacity_type == "on-demand"
    assert allowed(plan, 0, labels.CAPACITY_TYPE) == ["on-demand"]


@pytest.mark.promise("SCH-12.7")
def test_a_full_reservation_without_fallback_defers_and_forbids_lower_pools() -> None:
    """A deferral on a pool stops the search there."""
    types = {"first": (reserved(0),), "second": (make_type(),)}
    pools = [make_pool("first", weight=9), make_pool("second")]
    plan = plan_of([make_pod()], SETTINGS, pools=pools, types=types)
    assert plan.claims == ()
    assert "all compatible reserved offerings are full" in plan.deferred["default/pod"].message


@pytest.mark.promise("SCH-20.15")
def test_a_type_with_only_a_full_reservation_is_not_offered() -> None:
    """It could not be launched, so it must not count."""
    full = make_type("full", offerings=[make_offering("zone-a", "reserved", 0.01, reservation="r-1")])
    plan = plan_of([make_pod()], SETTINGS, types=[full, make_type("fine")])
    assert plan.claims[0].instance_types == ("fine",)


def test_units_are_shared_by_all_offerings_of_a_reservation() -> None:
    """Two types of one reservation draw on the same units."""
    offer = make_offering("zone-a", "reserved", 0.01, reservation="r-1", reservation_capacity=1)
    types = [make_type("x", offerings=[offer]), make_type("y", offerings=[offer])]
    plan = plan_of(make_pods(3, cpu="3"), SETTINGS, types=types)
    assert len(plan.claims) == 1
    assert len(plan.deferred) == 2


def few_reserved(units: int) -> list[object]:
    fallback = make_offering("zone-a")
    return [reserved(units, fallback), make_type("plain", offerings=[fallback])]


TWO_TYPES = make_pool(requirements=[expression(labels.INSTANCE_TYPE, "Exists", min_values=2)])


@pytest.mark.promise("SCH-12.3")
def test_b6_a_reservation_that_leaves_too_few_types_is_not_taken() -> None:
    """A claim is narrowed to the reservation it holds: found out at the end, its pods would have no machine at all."""
    plan = plan_of(make_pods(2, cpu="3"), SETTINGS, pools=[TWO_TYPES], types=few_reserved(1))
    assert [claim.instance_types for claim in plan.claims] == [("plain", "small")] * 2
    assert {claim.choice.capacity_type for claim in plan.claims} == {"on-demand"}
    assert not plan.deferred


@pytest.mark.promise("SCH-12.3")
def test_a_pod_for_which_only_the_reservation_is_left_is_refused_for_the_minimum() -> None:
    """Waiting for a unit would not help."""
    pod = make_pod(node_selector={labels.CAPACITY_TYPE: "reserved"})
    plan = plan_of([pod], SETTINGS, pools=[TWO_TYPES], types=few_reserved(1))
    assert plan.unschedulable["default/pod"].pools[0].why is Why.MIN_VALUES


@pytest.mark.promise("SCH-12.5")
def test_a_reservation_of_enough_types_is_held_whatever_the_minimum() -> None:
    """The minimum counts the types that the reservation offers."""
    offer = make_offering("zone-a", "reserved", 0.01, reservation="r-1", reservation_capacity=1)
    types = [make_type(name, offerings=[offer, make_offering("zone-a")]) for name in ("x", "y")]
    plan = plan_of([make_pod()], SETTINGS, pools=[TWO_TYPES], types=[*types, make_type("plain")])
    assert allowed(plan, 0, RESERVATION) == ["r-1"]
    assert plan.claims[0].instance_types == ("x", "y")
