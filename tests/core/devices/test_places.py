"""Devices in whole decisions: which machines pods with claims get, and what is held for whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pykarpenter.api import labels
from pykarpenter.api.meta import ObjectMeta
from pykarpenter.api.nodepool import NodeClaim, NodeClaimSpec
from pykarpenter.api.pods import (
    ContainerResourceClaim,
    NodeSelectorRequirement,
    PodResourceClaim,
    PodResourceClaimStatus,
)
from pykarpenter.core.packing import WhatIfBase, what_if
from pykarpenter.core.packing import devices as packing_devices
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.plans import LaunchPlan
from pykarpenter.core.reasons import Why
from tests.core.packing.support import allowed, on_nodes, per_claim
from tests.support.builders import (
    ZONES,
    bound_pod,
    make_node,
    make_offering,
    make_pod,
    make_pods,
    make_snapshot,
    make_type,
    spread,
)

from .support import (
    DRIVER,
    ON,
    claim,
    counter_slice,
    device,
    first_of,
    gpu_type,
    in_zone,
    objects,
    on_node,
    option,
    plan,
    published,
    request,
    result,
    spec,
    template,
    user,
)

HERE = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}


def in_zone_b() -> dict[str, Any]:
    return {"matchExpressions": [{"key": labels.ZONE, "operator": "In", "values": ["zone-b"]}]}


def types_of(found: LaunchPlan) -> list[str]:
    return [name for item in found.claims for name in item.instance_types]


def claimless(name: str, entry: str, template_name: str, *statuses: PodResourceClaimStatus) -> Any:
    pod = make_pod(name, resource_claims=[PodResourceClaim(name=entry, resource_claim_template_name=template_name)])
    status = msgspec.structs.replace(pod.status, resource_claim_statuses=list(statuses))
    return msgspec.structs.replace(pod, status=status)


# Claims.


@pytest.mark.promise("SCH-17.2")
def test_claims_are_found_by_name_or_by_the_pods_status() -> None:
    by_status = claimless("b", "gpu", "t", PodResourceClaimStatus(name="gpu", resource_claim_name="b-gpu-x7"))
    nameless = claimless("c", "gpu", "t", PodResourceClaimStatus(name="gpu"))
    found = plan(
        [user("a", "mine"), by_status, nameless], objects([claim("mine"), claim("b-gpu-x7", request(count=2))])
    )
    placed = {key: item.instance_types for item in found.claims for key in item.pods}
    assert placed["default/a"] == placed["default/b"] == ("gpu",)
    assert "default/c" in placed and not found.unschedulable, "without a name no claim is needed"


@pytest.mark.promise("SCH-17.3")
def test_a_missing_claim_fails_its_pod_this_round_and_no_other() -> None:
    by_status = claimless("b", "gpu", "t", PodResourceClaimStatus(name="gpu", resource_claim_name="b-gpu-x7"))
    found = plan([user("a", "mine"), user("lost", "absent"), by_status], objects([claim("mine")]))
    assert [item.pods for item in found.claims] == [("default/a",)]
    refusal = found.unschedulable["default/lost"]
    assert refusal.why is Why.DEVICES and refusal.text() == "resourceclaim default/absent does not exist yet"
    assert "default/b" in found.unschedulable


def test_a_claim_that_is_not_made_yet_is_read_from_its_template() -> None:
    """`plan` works on files in which no controller has made claims."""
    pods = [claimless(f"p{i}", "gpu", "one") for i in range(3)] + [claimless("lost", "gpu", "absent")]
    found = plan(pods, objects(templates=[template("one")]))
    assert per_claim(found) == [1, 2], "a machine has two devices"
    assert "resourceclaimtemplate default/absent" in found.unschedulable["default/lost"].text()


def test_a_container_may_only_use_claims_of_its_pod() -> None:
    pod = user("a", "mine")
    main = pod.spec.containers[0]
    wanted = msgspec.structs.replace(main.resources, claims=[ContainerResourceClaim(name="other")])
    pod = msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, containers=[msgspec.structs.replace(main, resources=wanted)])
    )
    assert "which spec.resourceClaims lacks" in plan([pod], objects([claim("mine")])).unschedulable["default/a"].text()


# Devices.


@pytest.mark.promise("SCH-17.4")
def test_slices_of_machines_that_are_gone_or_starting_do_not_count_but_templates_of_starting_ones_do() -> None:
    pods = [user(f"p{i}", f"c{i}") for i in range(3)]
    claims = [claim(f"c{i}") for i in range(3)]
    slices = [on_node("node-1", "x", "y", "z"), on_node("gone", "x", "y", "z")]
    starting = make_node(pool="default", labels={labels.INSTANCE_TYPE: "gpu"}, initialized=False)
    found = plan(pods, objects(claims, slices), nodes=[starting])
    assert on_nodes(found) == {"node-1": ["default/p0", "default/p1"]}, "the type brings two, whatever is published"
    assert [item.pods for item in found.claims] == [("default/p2",)]
    running = replace(starting, initialized=True)
    assert on_nodes(plan(pods, objects(claims, slices), nodes=[running])) == {"node-1": [p.key for p in pods]}


def test_devices_given_out_before_a_machine_is_initialized_stay_taken() -> None:
    starting = make_node(pool="default", labels={labels.INSTANCE_TYPE: "gpu"}, initialized=False)
    early = claim("early", results=[result("node-1", "gpu-0")], users=["bound"])
    pods = [user(f"p{i}", f"c{i}") for i in range(2)]
    known = objects([early, claim("c0"), claim("c1")], [on_node("node-1", "gpu-0", "gpu-1")])
    assert on_nodes(plan(pods, known, nodes=[starting])) == {"node-1": ["default/p0"]}


def test_pods_that_wait_for_a_machine_keep_its_devices() -> None:
    """They are not planned again until the machine is ready, so nobody else may be sent to their devices."""
    expected = [user(f"w{i}", f"w{i}", cpu="100m") for i in range(2)]
    fields = {"pool": "default", "labels": {labels.INSTANCE_TYPE: "gpu"}, "initialized": False}
    claims = [claim("w0"), claim("w1"), claim("c")]
    waiting = make_node(pods=expected, **fields)
    assert types_of(plan([user("p", "c")], objects(claims), nodes=[waiting])) == ["gpu"]
    one_less = make_node(pods=expected[:1], **fields)
    assert on_nodes(plan([user("p", "c")], objects(claims), nodes=[one_less])) == {"node-1": ["default/p"]}
    shares = plan([user("p", "w0")], objects(claims), nodes=[waiting, make_node("other", **fields)])
    assert on_nodes(shares) == {"node-1": ["default/p"]}, "whoever shares their claim follows them"


def test_a_claim_that_is_not_launched_brings_what_all_its_types_bring() -> None:
    types = [gpu_type("a", spec("gpu-0")), gpu_type("b", spec("gpu-0"), price=2.0), make_type("plain")]
    for names, found in ((["a", "b"], {"node-1": ["default/p"]}), (["a", "plain"], {})):
        listed = [NodeSelectorRequirement(key=labels.INSTANCE_TYPE, operator="In", values=names)]
        launching = replace(make_node(pool="default", initialized=False), claim=node_claim(listed), node=None)
        assert on_nodes(plan([user("p", "c")], objects([claim("c")]), types, nodes=[launching])) == found


def node_claim(requirements: list[NodeSelectorRequirement]) -> NodeClaim:
    return NodeClaim(metadata=ObjectMeta(name="node-1"), spec=NodeClaimSpec(requirements=requirements))


@pytest.mark.promise("SCH-17.5")
def test_devices_of_the_cluster_are_tried_before_new_ones() -> None:
    known = objects([claim("c")], [in_zone("zone-b", "shared")])
    found = plan([user("p", "c")], known, [gpu_type("gpu", spec("own"))])
    assert allowed(found, 0, labels.ZONE) == ["zone-b"], "the machine goes where the device is"


@pytest.mark.promise("SCH-17.9")
def test_a_slice_is_for_all_nodes_one_node_or_selected_ones() -> None:
    node = make_node()
    one = [claim("c")]
    everywhere = published(spec("a", pool="net", allNodes=True), "net")
    for item in (everywhere, on_node("node-1", "a"), in_zone("zone-a", "a")):
        assert on_nodes(plan([user("p", "c")], objects(one, [item]), nodes=[node])) == {"node-1": ["default/p"]}
    for item in (in_zone("zone-b", "a"), on_node("node-2", "a")):
        assert not on_nodes(plan([user("p", "c")], objects(one, [item]), nodes=[node, make_node("node-2", cpu="0")]))
    single = {"nodeName": "node-1"}
    each = spec(device("a", fields={"nodeName": "other"}), device("b", fields=single), perDeviceNodeSelection=True)
    pods = [user("p0", "c"), user("p1", "d")]
    found = plan(pods, objects([*one, claim("d")], [published(each)]), [make_type("plain")], nodes=[node])
    assert on_nodes(found) == {"node-1": ["default/p0"]}


def test_counters_of_a_pool_may_come_in_a_slice_of_their_own() -> None:
    parts = spec(*(device(f"d{i}", counters={"mem": "1"}) for i in range(3)), pool="p", of=2, nodeName="node-1")
    slices = [published(parts, "parts"), published(counter_slice("p", of=2, mem="2"), "counters")]
    pods = [user(f"p{i}", f"c{i}") for i in range(3)]
    known = objects([claim(f"c{i}") for i in range(3)], slices)
    found = plan(pods, known, [make_type("plain")], nodes=[make_node()])
    assert on_nodes(found) == {"node-1": ["default/p0", "default/p1"]}


# Claims that have their devices.


@pytest.mark.promise("SCH-17.10")
def test_an_allocated_claim_narrows_without_a_search() -> None:
    nodes = [make_node(), make_node("node-2")]
    held = claim("c", results=[result("gone", "x")], selector=HERE, users=["p"])
    assert on_nodes(plan([user("p", "c")], objects([held]), nodes=nodes)) == {"node-1": ["default/p"]}
    zonal = claim("c", results=[result("net", "x")], selector=in_zone_b(), users=["p"])
    found = plan([user("p", "c")], objects([zonal]), nodes=nodes)
    assert not found.existing and allowed(found, 0, labels.ZONE) == ["zone-b"]
    stuck = plan([user("p", "c")], objects([held]))
    assert "cannot be reached from a new machine" in stuck.unschedulable["default/p"].text()


@pytest.mark.promise("SCH-17.11")
def test_a_claim_that_only_leaving_pods_use_is_allocated_anew() -> None:
    pod = user("p", "c", node_name="node-1")
    leaving = make_node(pods=[pod], marked_for_deletion=True)
    held = claim("c", results=[result("node-1", "x")], selector=HERE, users=["p"])
    found = plan([], objects([held], [on_node("node-1", "x")]), nodes=[leaving])
    assert types_of(found) == ["gpu"]
    both = claim("c", results=[result("node-1", "x")], selector=HERE, users=["p", "stays"])
    assert "default/p" in plan([], objects([both]), nodes=[leaving]).unschedulable


@pytest.mark.promise("SCH-17.12")
def test_pods_that_share_a_claim_of_a_new_machine_go_to_that_machine() -> None:
    pods = [user(f"p{i}", "shared", cpu="1") for i in range(3)]
    found = plan(pods, objects([claim("shared")]))
    assert per_claim(found) == [3]
    crowded = plan([user(f"p{i}", "shared", cpu="2") for i in range(3)], objects([claim("shared")]))
    assert per_claim(crowded) == [2]
    assert "default/p2" in crowded.unschedulable, "no other machine has the device"


@pytest.mark.promise("SCH-17.13")
def test_pods_that_share_a_claim_of_the_cluster_go_where_it_can_be_reached() -> None:
    pods = [user(f"p{i}", "shared", cpu="2") for i in range(3)]
    known = objects([claim("shared")], [in_zone("zone-c", "net")])
    found = plan(pods, known, [make_type("plain")])
    assert per_claim(found) == [1, 2]
    assert allowed(found, 0, labels.ZONE) == allowed(found, 1, labels.ZONE) == ["zone-c"]


# Types.


@pytest.mark.promise("SCH-17.16")
def test_types_without_the_devices_are_pruned() -> None:
    one, two = gpu_type("one", spec("a"), price=2.0), gpu_type("two", spec("a", "b"), price=3.0)
    types = [make_type("plain", price=0.1), one, two]
    assert types_of(plan([user("p", "c")], objects([claim("c")]), types)) == ["one", "two"]
    assert types_of(plan([user("p", "c")], objects([claim("c", request(count=2))]), types)) == ["two"]
    none = plan([user("p", "c")], objects([claim("c", request(count=3))]), types).unschedulable["default/p"]
    assert none.why is Why.DEVICES and "request 'gpu': no device of class 'gpu' matches (1 more needed)" in none.text()


def test_pods_with_claims_fill_a_machine_up_to_its_devices() -> None:
    pods = [user(f"p{i}", f"c{i}", cpu="100m") for i in range(5)] + make_pods(3, "plain", cpu="100m")
    found = plan(pods, objects([claim(f"c{i}") for i in range(5)]))
    with_devices = [sum("plain" not in key for key in item.pods) for item in found.claims]
    assert sorted(with_devices) == [1, 2, 2] and not found.unschedulable


@pytest.mark.promise("SCH-17.17")
def test_where_one_type_finds_its_device_the_next_must_find_it_too() -> None:
    """A NodeClaim cannot say "A in zone 1 or B in zone 2"."""
    cheap = make_type("cheap", offerings=[make_offering("zone-a", price=1.0)])
    other = make_type("other", offerings=[make_offering("zone-b", price=2.0)])
    both = make_type("both", price=3.0, dynamic_resources=(spec("own"),))
    slices = [in_zone("zone-a", "a"), in_zone("zone-b", "b")]
    found = plan([user("p", "c")], objects([claim("c")], slices), [other, cheap, both])
    assert types_of(found) == ["cheap", "both"] and allowed(found, 0, labels.ZONE) == ["zone-a"]


@pytest.mark.promise("SCH-17.20")
def test_each_type_may_serve_another_alternative() -> None:
    big = f'device.attributes["{DRIVER}"].size == "big"'
    either = claim("c", first_of("gpu", big=option(1, big), two=option(2)))
    types = [
        gpu_type("large", spec(device("a", size="big"))),
        gpu_type("pair", spec(device("a", size="s"), device("b", size="s"))),
    ]
    assert sorted(types_of(plan([user("p", "c")], objects([either]), types))) == ["large", "pair"]


def test_rules_over_zones_hold_for_pods_with_claims() -> None:
    rule = spread(labels.ZONE, {"app": "x"})
    pods = [user(f"p{i}", f"c{i}", labels={"app": "x"}, topology_spread_constraints=[rule]) for i in range(3)]
    found = plan(pods, objects([claim(f"c{i}") for i in range(3)]))
    assert sorted(z for i in range(3) for z in allowed(found, i, labels.ZONE)) == sorted(ZONES)


# Who holds what.


@pytest.mark.promise("SCH-17.34")
def test_a_device_held_for_one_machine_is_not_given_to_another() -> None:
    """Inside the machine each type may hold it: only one of them is bought."""
    pods = [user(f"p{i}", f"c{i}", cpu="3") for i in range(2)]
    known = objects([claim("c0"), claim("c1")], [in_zone("zone-a", "net")])
    types = [make_type("plain"), make_type("bigger", price=5.0), gpu_type("gpu", spec("own"), price=9.0)]
    first, second = plan(pods, known, types).claims
    assert set(first.instance_types) == {"plain", "bigger", "gpu"}
    assert set(second.instance_types) == {"gpu"}


def shared_counters(total: str) -> list[Any]:
    parts = [device("one", counters={"mem": "1"}, size="one"), device("three", counters={"mem": "3"}, size="three")]
    selector = {"nodeSelectorTerms": [{"matchExpressions": []}]}
    return [
        published(spec(*parts, pool="net", of=2, nodeSelector=selector), "parts"),
        published(counter_slice("net", of=2, mem=total), "counters"),
    ]


@pytest.mark.promise("SCH-17.35")
@pytest.mark.parametrize(("total", "offered"), [("3", {"owner"}), ("4", {"plain", "owner"})])
def test_counters_are_charged_at_the_most_that_any_type_uses(total: str, offered: set[str]) -> None:
    """With three units both pods have a place only where the first is sure not to take them."""
    size = f'device.attributes["{DRIVER}"].size'
    # One type serves the claim with a device of its own, the other takes three units.
    need = claim("c0", first_of("gpu", small=option(1, f'{size} == "own"'), big=option(1, f'{size} == "three"')))
    pods = [user("p0", "c0", cpu="3"), user("p1", "c1", cpu="2")]
    known = objects([need, claim("c1", request("gpu", 1, f'{size} == "one"'))], shared_counters(total))
    types = [make_type("plain"), gpu_type("owner", spec(device("own", size="own")), price=3.0)]
    found = {pod: claim for claim in plan(pods, known, types).claims for pod in claim.pods}
    assert set(found) == {"default/p0", "default/p1"}
    assert set(found["default/p0"].instance_types) == offered


@pytest.mark.promise("SCH-17.36")
def test_types_that_are_ruled_out_later_release_what_they_held() -> None:
    size = f'device.attributes["{DRIVER}"].size'
    need = claim("c0", first_of("gpu", small=option(1, f'{size} == "own"'), big=option(1, f'{size} == "three"')))
    joins = make_pod("joins", cpu="2500m", node_selector={labels.INSTANCE_TYPE: "owner"})
    pods = [user("p0", "c0", cpu="3"), joins, user("p1", "c1", cpu="2")]
    known = objects([need, claim("c1", request("gpu", 1, f'{size} == "one"'))], shared_counters("3"))
    types = [make_type("plain", cpu="8"), gpu_type("owner", spec(device("own", size="own")), cpu="8", price=3.0)]
    found = plan(pods, known, types)
    assert not found.unschedulable, "once the machine is an owner, the counters are free again"


@pytest.mark.promise("SCH-17.37")
def test_devices_of_leaving_pods_are_free_and_shared_ones_give_back_their_share() -> None:
    pod = bound_pod("leaver", "node-1")
    leaving = make_node(pods=[pod], marked_for_deletion=True)
    fields = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "10"}}}
    slices = [published(spec(device("net", fields=fields), pool="net", allNodes=True), "net")]
    share = {"consumedCapacity": {"memory": "4"}}
    gone = claim("old", results=[result("net", "net", **share)], users=["leaver"])
    kept = claim("kept", results=[result("net", "net", **share)], users=["stayer"])
    need = claim("new", request(capacity={"requests": {"memory": "6"}}))
    types = [make_type("plain")]
    known = objects([gone, kept, need], slices)
    assert plan([user("p", "new")], known, types, nodes=[leaving]).claims[0].pods
    more = claim("new", request(capacity={"requests": {"memory": "7"}}))
    assert plan([user("p", "new")], objects([gone, kept, more], slices), types, nodes=[leaving]).unschedulable
    staying = replace(leaving, marked_for_deletion=False)
    assert "default/p" in plan([user("p", "new")], known, types, nodes=[staying]).unschedulable


def test_a_disruption_question_frees_the_devices_of_the_pods_it_moves() -> None:
    pod = user("p", "c", node_name="node-1")
    nodes = [make_node(pods=[pod], pool="default"), make_node("node-2", pool="default")]
    held = claim("c", results=[result("node-1", "x")], selector=HERE, users=["p"])
    slices = [on_node("node-1", "x"), on_node("node-2", "x")]
    base = WhatIfBase(make_snapshot(nodes=nodes, devices=objects([held], slices)), ON)
    assert on_nodes(what_if(base, ["node-1"], [pod])) == {"node-2": ["default/p"]}


# Bad objects.

BAD_CLAIMS = {
    "huge count": claim("bad", request(count=2**70)),
    "huge capacity": claim("bad", request(capacity={"requests": {"memory": 2**70}})),
    "odd capacity": claim("bad", request(capacity={"requests": {"memory": "lots"}})),
    "odd selector": claim("bad", results=[], selector={"matchFields": [{"key": "x", "operator": "In", "values": []}]}),
    "odd operator": claim("bad", results=[], selector={"matchExpressions": [{"key": "x", "operator": "Near"}]}),
    "no requests": claim("bad", {"name": "x"}),
    "long selector": claim("bad", request("gpu", 1, "(" * 3000 + "true" + ")" * 3000)),
    "empty selector": claim("bad", request("gpu", 1, "")),
}


@pytest.mark.promise("SCH-17.15")
def test_claims_that_are_hard_everywhere_are_given_up_and_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing_devices, "MAX_TRIES_IN_ALL", 2_000)
    hard = claim("hard", *(request(f"r{i}", 1) for i in range(7)), request("last", 1, "false"))
    nodes = [make_node(f"n{i:02d}") for i in range(40)]
    slices = [on_node(f"n{i:02d}", *(device(f"d{j:02d}", numa=j) for j in range(16))) for i in range(40)]
    found = plan([user("p", "hard"), user("q", "c")], objects([hard, claim("c")], slices), nodes=nodes)
    assert "given up after" in found.unschedulable["default/p"].text()
    assert on_nodes(found) == {"n00": ["default/q"]}


@pytest.mark.parametrize("name", sorted(BAD_CLAIMS))
def test_a_bad_claim_holds_up_only_its_own_pod(name: str) -> None:
    found = plan([user("p", "bad"), user("q", "good")], objects([BAD_CLAIMS[name], claim("good")]))
    assert list(found.unschedulable) == ["default/p"]
    assert [item.pods for item in found.claims] == [("default/q",)]


BAD_DEVICES: list[dict[str, Any]] = [
    {"attributes": {"n": {"int": 2**70}}},
    {"attributes": {"n": {"version": "one"}}},
    {"attributes": {"n": {}}},
    {"capacity": {"m": {"value": 2**70}}},
    {"capacity": {"m": {"value": "1", "requestPolicy": {"default": "some"}}}},
    {"capacity": {"m": {"value": "1", "requestPolicy": {"validRange": {"step": "x"}}}}},
    {"consumesCounters": [{"counterSet": "absent", "counters": {"m": {"value": "1"}}}]},
]


@pytest.mark.parametrize("fields", BAD_DEVICES)
def test_a_bad_device_spoils_only_its_pool(fields: dict[str, Any]) -> None:
    slices = [on_node("node-1", device("bad", fields=fields), pool="bad"), on_node("node-1", "good", driver="x")]
    wanted = claim("c", request("gpu", 1, "has(device.driver)"))
    found = plan([user("p", "c")], objects([wanted], slices), nodes=[make_node()])
    assert on_nodes(found) == {"node-1": ["default/p"]}


# The answer.


@pytest.mark.promise("SCH-17.38")
def test_a_claim_names_the_drivers_of_its_devices_sorted() -> None:
    both = gpu_type("both", spec("a"), spec("n", driver="a-nic.example.com"))
    nic = claim("n", request("nic", 1, 'device.driver == "a-nic.example.com"'))
    found = plan([user("p", "g", "n"), make_pod("plain", cpu="3900m")], objects([claim("g"), nic]), [both])
    annotations = {item.pods[0]: item.annotations.get(labels.REQUESTED_DRA_DRIVERS) for item in found.claims}
    assert annotations == {"default/p": f"a-nic.example.com,{DRIVER}", "default/plain": None}


@pytest.mark.promise("SCH-17.39")
@pytest.mark.parametrize("effort", ["off", "normal", "thorough"])
def test_cost_search_leaves_machines_with_devices_alone(effort: str) -> None:
    """A cheaper mix must not move a pod away from its devices."""
    pods = [user(f"p{i}", f"c{i}", cpu="500m") for i in range(6)] + make_pods(40, "plain", cpu="900m")
    claims = [claim(f"c{i}") for i in range(6)]
    settings = PackingSettings(ignore_dra_requests=False, effort=effort)
    found = plan(pods, objects(claims), settings=settings)
    assert found == plan(pods, objects(claims), settings=settings)
    assert not found.unschedulable
    for item in found.claims:
        users = [key for key in item.pods if "/p" in key and "plain" not in key]
        assert len(users) <= 2
        assert not users or (item.instance_types == ("gpu",) and item.annotations[labels.REQUESTED_DRA_DRIVERS])
