"""Questions about machines that might go, asked many times over one snapshot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykarpenter.api import labels
from pykarpenter.api.labels import LabelRules
from pykarpenter.core.packing import WhatIfBase, WhatIfOptions, pack, what_if
from pykarpenter.core.packing.engine import ReservationOptions
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.reasons import Why
from tests.support.builders import (
    affinity_term,
    apart,
    bound_pod,
    make_node,
    make_offering,
    make_pod,
    make_pool,
    make_snapshot,
    make_type,
    spread,
)

SETTINGS = PackingSettings()
WEB = {"app": "web"}


def full_node(name: str, free: str = "0", **fields: object) -> object:
    pods = [bound_pod(f"{name}-p{i}", name, cpu="1", labels=WEB) for i in range(3)]
    return make_node(name, cpu="4", pods=pods, **fields)  # type: ignore[arg-type]


def test_displaced_pods_use_room_elsewhere_before_new_machines() -> None:
    """One core is free on each of two nodes; the third pod needs a machine."""
    nodes = [full_node("a"), full_node("b"), full_node("c")]
    base = WhatIfBase(make_snapshot(nodes=nodes), SETTINGS)
    plan = what_if(base, {"a"}, base.snapshot.nodes[0].pods)
    assert {e.node: len(e.pods) for e in plan.existing} == {"b": 1, "c": 1}
    assert [len(claim.pods) for claim in plan.claims] == [1]


def test_questions_do_not_disturb_each_other() -> None:
    """The same question gives the same answer, whatever was asked in between."""
    nodes = [full_node("a"), full_node("b"), full_node("c")]
    base = WhatIfBase(make_snapshot(nodes=nodes, pools=[make_pool(limits={"cpu": "16"})]), SETTINGS)
    first = what_if(base, {"a"}, base.snapshot.nodes[0].pods)
    what_if(base, {"b"}, base.snapshot.nodes[1].pods)
    assert what_if(base, {"a"}, base.snapshot.nodes[0].pods) == first


def test_a_question_equals_a_decision_on_the_smaller_cluster() -> None:
    """Masking is only a faster way to take machines away."""
    nodes = [full_node("a", zone="zone-a"), full_node("b", zone="zone-b"), full_node("c", zone="zone-c")]
    movers = tuple(
        make_pod(f"m{i}", labels=WEB, topology_spread_constraints=[spread(labels.ZONE, WEB, skew=2)]) for i in range(4)
    )
    snapshot = make_snapshot(nodes=nodes)
    plan = what_if(WhatIfBase(snapshot, SETTINGS), {"a"}, movers)
    smaller = replace(snapshot, nodes=snapshot.nodes[1:], pods=movers)
    expected = pack(smaller, PackingSettings(effort="off"))
    assert (plan.claims, plan.existing) == (expected.claims, expected.existing)


def test_removed_machines_give_their_limits_back() -> None:
    """A replacement may use what the old machine leaves."""
    node = make_node("a", pool="default", pods=[bound_pod("p", "a")])
    base = WhatIfBase(make_snapshot(nodes=[node], pools=[make_pool(limits={"nodes": "1"})]), SETTINGS)
    assert len(what_if(base, {"a"}, node.pods).claims) == 1
    assert what_if(base, set(), [make_pod(cpu="4")]).unschedulable


def test_pods_of_removed_machines_no_longer_count() -> None:
    """A pod that keeps others away is gone with its machine."""
    hermit = bound_pod("hermit", "a", affinity=apart(affinity_term(labels.ZONE, WEB)))
    nodes = [make_node("a", pods=[hermit]), make_node("b")]
    base = WhatIfBase(make_snapshot(nodes=nodes), SETTINGS)
    assert what_if(base, set(), [make_pod(labels=WEB)]).claims
    assert what_if(base, {"a"}, [make_pod(labels=WEB)]).existing[0].node == "b"


def test_machines_in_their_quiet_period_are_closed_to_displaced_pods_only() -> None:
    """Pods that need a place anyway may still use them."""
    options = WhatIfOptions(closed=frozenset({"b"}))
    base = WhatIfBase(make_snapshot([make_pod("pending")], nodes=[full_node("a"), make_node("b", cpu="8")]), SETTINGS)
    plan = what_if(base, {"a"}, base.snapshot.nodes[0].pods, options)
    assert [(e.node, e.pods) for e in plan.existing] == [("b", ("default/pending",))]
    assert sum(len(claim.pods) for claim in plan.claims) == 3


def test_displaced_pods_must_not_wait_for_machines_that_are_starting() -> None:
    """A machine that is not initialized may never be."""
    base = WhatIfBase(make_snapshot(nodes=[full_node("a"), make_node("b", cpu="8", initialized=False)]), SETTINGS)
    plan = what_if(base, {"a"}, base.snapshot.nodes[0].pods)
    assert {refusal.why for refusal in plan.unschedulable.values()} == {Why.NODE_NOT_INITIALIZED}
    assert not plan.existing
    allowed = what_if(base, {"a"}, base.snapshot.nodes[0].pods, WhatIfOptions(refuse_uninitialized=False))
    assert allowed.existing[0].node == "b"


@pytest.mark.promise("SCH-12.8")
def test_full_reservations_fall_back_to_lower_pools_and_credit_makes_room() -> None:
    """Disruption may use another pool; a credited unit counts once."""
    full = make_offering("zone-a", "reserved", 0.01, reservation="r-1", reservation_capacity=0)
    types = {"first": (make_type("held", offerings=[full]),), "second": (make_type("plain"),)}
    pools = [make_pool("first", weight=9), make_pool("second")]
    settings = PackingSettings(label_rules=LabelRules(well_known=labels.WELL_KNOWN | {"test/reservation-id"}))
    base = WhatIfBase(make_snapshot(pools=pools, types=types), settings)
    assert what_if(base, set(), [make_pod()]).claims[0].node_pool == "second"
    credit = WhatIfOptions(ReservationOptions("strict", {"r-1": 1}))
    only = WhatIfBase(make_snapshot(pools=pools[:1], types=types), settings)
    plan = what_if(only, set(), [make_pod("x", cpu="3"), make_pod("y", cpu="3")], credit)
    assert len(plan.claims) == 1
    assert len({**plan.deferred, **plan.unschedulable}) == 1
