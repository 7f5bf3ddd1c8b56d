"""Pools, requests, constraints, counters and capacity: the search on one machine."""

from __future__ import annotations

from typing import Any

import pytest

from pykarpenter.core.devices.consumption import consumed_capacity
from pykarpenter.core.devices.demand import DemandError, DemandReader
from pykarpenter.core.devices.matching import Bindings
from pykarpenter.core.devices.pools import PROMISED, Amount, gather
from pykarpenter.core.devices.search import Candidate, Supply
from pykarpenter.core.instance_types import AttributeBinding
from pykarpenter.core.reasons import Refusal, Why

from .support import (
    DRIVER,
    claim,
    counter_slice,
    device,
    device_class,
    first_of,
    match,
    objects,
    option,
    request,
    searched,
    spec,
    user,
)

NUMA = f"{DRIVER}/numa"
BIG = f'device.attributes["{DRIVER}"].size == "big"'


def picked(*args: Any, **kwargs: Any) -> list[tuple[str, str]]:
    """Request and device of every pick."""
    found = searched(*args, **kwargs)
    assert not isinstance(found, str), found
    return [(name, item) for _, name, item in found]


def refused(*claims: Any, classes: Any = None) -> Refusal:
    with pytest.raises(DemandError) as caught:
        DemandReader(objects(claims, classes=classes)).demand(user("pod", *(item.name for item in claims)))
    return caught.value.refusal


# Pools.


@pytest.mark.promise("SCH-17.6")
def test_only_the_highest_generation_of_a_pool_counts() -> None:
    (pool,) = gather([spec("old", pool="p", generation=1), spec("new", pool="p", generation=2)])
    assert [item.id.name for item in pool.devices] == ["new"]


@pytest.mark.promise("SCH-17.7")
def test_incomplete_pools_give_no_devices() -> None:
    """A driver that is still publishing may be about to take a device away."""
    (pool,) = gather([spec("gpu-0", pool="p", of=2)])
    assert not pool.devices and "1 of 2 slices" in pool.problem
    (whole,) = gather([spec("gpu-0", pool="p", of=2), spec("gpu-1", pool="p", of=2)])
    assert len(whole.devices) == 2


@pytest.mark.promise("SCH-17.8")
@pytest.mark.parametrize(
    ("slices", "problem"),
    [
        ([spec("a", "a")], "device 'a' occurs twice"),
        ([counter_slice(of=2, mem="1"), counter_slice(of=2, mem="1")], "counter set 'set' occurs twice"),
        ([spec(device("a", counters={"mem": "1"}))], "unknown counter set/mem"),
        ([spec(device("a", fields={"capacity": {"memory": {"value": "lots"}}}))], "invalid quantity"),
    ],
)
def test_invalid_pools_are_unusable_and_say_why(slices: Any, problem: str) -> None:
    (pool,) = gather(slices)
    assert not pool.devices and problem in pool.problem


# Requests.


@pytest.mark.promise("SCH-17.18")
def test_exact_count_takes_that_many_and_all_takes_every_one() -> None:
    machine = [spec("a", "b", "c")]
    assert picked(machine, claim("c", request(count=2))) == [("gpu", "a"), ("gpu", "b")]
    assert [name for _, name in picked(machine, claim("c", request(count=0)))] == ["a", "b", "c"]
    assert "1 more needed" in str(searched(machine, claim("c", request(count=4))))


@pytest.mark.promise("SCH-17.26")
def test_all_needs_whole_and_valid_pools_and_at_least_one_device() -> None:
    everything = claim("c", request(count=0))
    assert "no device of class" in str(searched([], everything))
    broken = [spec("a", pool="good"), spec("b", "b", pool="bad")]
    assert "'bad' is invalid" in str(searched(broken, everything))
    assert picked(broken, claim("c", request())) == [("gpu", "a")], "a counted request uses what is valid"


@pytest.mark.promise("SCH-17.14")
def test_the_search_goes_back_when_a_choice_blocks_what_follows() -> None:
    """Across slots, requests and claims alike."""
    machine = [spec(device("a", size="big"), device("b", size="small"))]
    across_requests = claim("c", request("any"), request("big", 1, BIG))
    assert picked(machine, across_requests) == [("any", "b"), ("big", "a")]
    found = searched(machine, claim("one", request("any")), claim("two", request("big", 1, BIG)))
    assert found == [("one", "any", "b"), ("two", "big", "a")]
    numas = [spec(device("a", numa=0), device("b", numa=1), device("c", numa=1))]
    assert [name for _, name in picked(numas, claim("c", request(count=2), constraints=[match(NUMA)]))] == ["b", "c"]


@pytest.mark.promise("SCH-17.15")
def test_effort_is_counted_in_tries_and_a_search_that_exceeds_it_gives_up() -> None:
    machine = [spec(*(device(f"d{i:02d}", numa=i) for i in range(20)))]
    hard = claim("c", request(count=8), constraints=[match(f"{DRIVER}/absent")])
    assert "absent" not in str(searched(machine, hard))
    pairs = claim("c", *(request(f"r{i}", 1) for i in range(6)), request("last", 1, "false"))
    assert searched(machine, pairs, limit=500) == "the search for devices was given up after 500 tries"
    assert searched(machine, pairs, limit=500) == searched(machine, pairs, limit=500)


def test_devices_that_are_alike_are_tried_once() -> None:
    """Sixteen equal devices must not make a hopeless search exponential."""
    machine = [spec(*(f"d{i:02d}" for i in range(16)))]
    pairs = claim("c", *(request(f"r{i}", 2) for i in range(6)), request("last", 1, "false"))
    assert "request 'last'" in str(searched(machine, pairs, limit=1_000))


@pytest.mark.promise("SCH-17.19")
def test_first_available_takes_the_first_that_the_whole_rest_allows() -> None:
    machine = [spec(device("a", size="big"), device("b", size="small"))]
    either = first_of("gpu", big=option(1, BIG), any=option(1))
    assert picked(machine, claim("c", either)) == [("gpu/big", "a")]
    later = claim("later", request("must", 1, BIG))
    assert searched(machine, claim("c", either), later) == [("c", "gpu/any", "b"), ("later", "must", "a")]


@pytest.mark.promise("SCH-17.21")
def test_an_alternative_is_named_request_slash_sub_request() -> None:
    assert picked([spec("a")], claim("c", first_of("gpu", two=option(2), one=option(1)))) == [("gpu/one", "a")]


@pytest.mark.promise("SCH-17.22")
def test_every_alternative_must_be_valid() -> None:
    wrong = first_of("gpu", good=option(1), bad=option(1, device_class="absent"))
    assert "deviceclass 'absent' does not exist" in refused(claim("c", wrong)).message


@pytest.mark.promise("SCH-17.23")
def test_the_device_class_must_exist() -> None:
    refusal = refused(claim("c", request(device_class="nope")))
    assert refusal.why is Why.DEVICES and "deviceclass 'nope' does not exist" in refusal.message


@pytest.mark.promise("SCH-17.24")
def test_selectors_of_class_and_request_must_both_hold_and_only_cel_is_known() -> None:
    machine = [spec(device("a", size="big", n=1), device("b", size="small", n=2), device("c", size="big", n=2))]
    classes = [device_class("gpu", BIG)]
    wanted = claim("c", request("gpu", 1, f'device.attributes["{DRIVER}"].n == 2'))
    assert picked(machine, wanted, classes=classes) == [("gpu", "c")]
    other = claim("c", {"name": "gpu", "exactly": {"deviceClassName": "gpu", "selectors": [{}]}})
    assert refused(other).why is Why.DRA_UNSUPPORTED and "only CEL" in refused(other).message
    broken = claim("c", request("gpu", 1, "device.wat("))
    assert refused(broken).why is Why.DRA_UNSUPPORTED and "device.wat(" in refused(broken).message


def test_a_selector_that_fails_on_a_device_fails_the_machine_with_its_reason() -> None:
    wanted = claim("c", request("gpu", 1, f'device.attributes["{DRIVER}"].absent == 1'))
    assert "failed on device" in str(searched([spec("a")], wanted))


@pytest.mark.promise("SCH-17.25")
def test_a_claim_has_at_most_32_devices_reckoned_with_the_smallest_alternative() -> None:
    assert "at least 33 devices" in refused(claim("c", request(count=33))).message
    machine = [spec(*(f"d{i:02d}" for i in range(40)))]
    both = claim("c", request("fixed", 30), first_of("rest", many=option(8), few=option(2)))
    names = [name for name, _ in picked(machine, both)]
    assert names.count("rest/few") == 2 and len(names) == 32
    assert "above 32 devices" in str(searched(machine, claim("c", request(count=0))))


# Constraints.


@pytest.mark.promise("SCH-17.27")
def test_match_attribute_binds_the_requests_it_names() -> None:
    machine = [spec(device("a", numa=0), device("b", numa=1), device("c", numa=1), device("d"))]
    two = (request("x"), request("y"))
    assert [d for _, d in picked(machine, claim("c", *two, constraints=[match(NUMA)]))] == ["b", "c"]
    assert [d for _, d in picked(machine, claim("c", *two, constraints=[match(NUMA, "x")]))] == ["a", "b"]
    either = first_of("y", one=option(1), two=option(2))
    whole = claim("c", request("x"), either, constraints=[match(NUMA, "x", "y")])
    assert [d for _, d in picked(machine, whole)] == ["b", "c"]
    part = claim("c", request("x"), either, constraints=[match(NUMA, "x", "y/two")])
    assert [d for _, d in picked(machine, part)] == ["a", "b"], "the other alternative is not bound"


def bound_machine(*bindings: tuple[str, ...]) -> Supply:
    pools = gather([spec("a", "b", "c", device("v", numa=7), device("w", numa=7))], PROMISED)
    made = [AttributeBinding(NUMA, tuple((DRIVER, name) for name in names)) for names in bindings]
    return Supply([Candidate(item) for item in pools[0].devices], {}, (), Bindings(made))


@pytest.mark.promise("SCH-17.28")
def test_bindings_stand_in_for_attributes_known_only_at_runtime() -> None:
    """They are transitive, and a constraint goes by values or by bindings, never by both."""
    two = claim("c", request(count=2), constraints=[match(NUMA)])
    three = claim("c", request(count=3), constraints=[match(NUMA)])
    chained = bound_machine(("a", "b"), ("b", "c"))
    assert [d for _, d in picked([], three, supply=chained)] == ["a", "b", "c"]
    assert [d for _, d in picked([], two, supply=bound_machine())] == ["v", "w"]
    mixed = bound_machine(("a", "v"))
    assert [d for _, d in picked([], two, supply=mixed)] == ["v", "w"]
    assert isinstance(searched([], three, supply=mixed), str)


@pytest.mark.promise("SCH-17.29")
def test_distinct_attribute_is_rejected() -> None:
    refusal = refused(claim("c", request(), constraints=[{"distinctAttribute": NUMA}]))
    assert refusal.why is Why.DRA_UNSUPPORTED and "distinctAttribute is not supported" in refusal.message


@pytest.mark.promise("SCH-17.30")
def test_admin_access_is_refused_and_tainted_devices_are_not_used() -> None:
    refusal = refused(claim("c", request(adminAccess=True)))
    assert refusal.why is Why.DRA_UNSUPPORTED and "adminAccess is not supported" in refusal.message
    taint = {"taints": [{"key": "bad", "effect": "NoSchedule"}]}
    machine = [spec(device("a", fields=taint), "b")]
    assert picked(machine, claim("c", request())) == [("gpu", "b")]
    assert "tainted with bad:NoSchedule, which is not supported" in str(searched(machine, claim("c", request(count=2))))
    unknown = refused(claim("c", request(allocationMode="Some")))
    assert unknown.why is Why.DRA_UNSUPPORTED and "allocationMode 'Some'" in unknown.message


# Partitions and shares.


@pytest.mark.promise("SCH-17.31")
def test_partitions_draw_on_the_counters_of_their_pool() -> None:
    parts = [device(f"half-{i}", counters={"mem": "20Gi"}) for i in range(3)]
    whole = device("whole", counters={"mem": "40Gi"}, size="big")
    machine = [counter_slice(mem="40Gi"), spec(whole, *parts)]
    assert [d for _, d in picked(machine, claim("c", request("gpu", 2)))] == ["half-0", "half-1"]
    both = claim("c", request("big", 1, f'"size" in device.attributes["{DRIVER}"]'), request("more"))
    assert "shared counters that are used up" in str(searched(machine, both))


def shareable(**memory: Any) -> Any:
    fields = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi", **memory}}}
    return spec(device("shared", fields=fields))


def wants(amount: str) -> dict[str, Any]:
    return {"capacity": {"requests": {"memory": amount}}}


RANGE = {"requestPolicy": {"default": "4Gi", "validRange": {"min": "2Gi", "step": "2Gi", "max": "16Gi"}}}
VALUES = {"requestPolicy": {"default": "8Gi", "validValues": ["8Gi", "16Gi"]}}


@pytest.mark.promise("SCH-17.32")
@pytest.mark.parametrize(
    ("policy", "asked", "consumed"),
    [
        ({}, None, 40),
        ({}, "3Gi", 3),
        (RANGE, None, 4),
        (RANGE, "1Gi", 2),
        (RANGE, "5Gi", 6),
        (VALUES, None, 8),
        (VALUES, "9Gi", 16),
    ],
)
def test_consumed_capacity_is_rounded_up_by_the_policy(policy: Any, asked: str | None, consumed: int) -> None:
    (pool,) = gather([shareable(**policy)])
    wanted = {f"{DRIVER}/memory": Amount(int(asked[:-2]) * 2**30)} if asked else {}
    assert consumed_capacity(pool.devices[0], wanted) == {f"{DRIVER}/memory": consumed * 2**30}


@pytest.mark.promise("SCH-17.33")
def test_shares_respect_policy_and_what_is_left() -> None:
    assert isinstance(searched([shareable(**RANGE)], claim("c", request(**wants("17Gi")))), str)
    assert isinstance(searched([shareable(**VALUES)], claim("c", request(**wants("17Gi")))), str)
    assert isinstance(searched([shareable()], claim("c", request(capacity={"requests": {"speed": "1"}}))), str)
    claims = [claim(f"c{i}", request(**wants("16Gi"))) for i in range(3)]
    assert len(picked([shareable()], *claims[:2])) == 2
    assert "capacity left" in str(searched([shareable()], *claims))
