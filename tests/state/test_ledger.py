"""Promised capacity: limits hold at every moment, whatever is seen late, lost or repeated (S1)."""

from __future__ import annotations

import pytest

from pykarpenter.api import labels
from pykarpenter.core.reasons import Why

from .world import claim, cluster, delete, node, observe, pod, pool, promise


@pytest.mark.promise("API-5.13")
def test_f10_promises_count_against_limits_before_anything_is_visible() -> None:
    state = cluster(pool(cpu="10"))
    assert state.reserve(promise("c1", cpu=6000)) is None
    refusal = state.reserve(promise("c2", cpu=6000))
    assert refusal is not None and refusal.why is Why.LIMITS
    assert refusal.details == {"resource": "cpu", "committed": 12000, "limit": 10000}
    assert state.snapshot(0.0).promised == {"pool": {"cpu": 6000, "nodes": 1}}


@pytest.mark.promise("API-5.14")
def test_nodes_are_limited_like_any_resource() -> None:
    """Upstream counts nodes only after the batch: limit 2 became six machines."""
    state = cluster(pool(nodes="2"))
    answers = [state.reserve(promise(f"c{i}")) for i in range(6)]
    assert [answer is None for answer in answers] == [True, True, False, False, False, False]


@pytest.mark.promise("API-5.13")
def test_extended_resources_are_limited() -> None:
    state = cluster(pool(**{"nvidia.com/gpu": "8"}))
    assert state.reserve(promise("c1", **{"nvidia.com/gpu": 8})) is None
    assert state.reserve(promise("c2", **{"nvidia.com/gpu": 1})) is not None
    assert state.reserve(promise("c3", cpu=1000)) is None


def test_a_claim_is_charged_once_on_its_way_from_promise_to_machine() -> None:
    state = cluster(pool(cpu="10"))
    promised = '{"cpu": "8", "nodes": "1"}'

    def committed() -> tuple[int, int]:
        return state.usage("pool").get("cpu", 0), state.ledger.promised("pool").get("cpu", 0)

    assert state.reserve(promise("c1", cpu=8000)) is None
    assert committed() == (0, 8000)
    state.insert_claim(claim("c1", promised=promised))
    assert committed() == (8000, 0)
    observe(state, claim("c1", provider_id="kwok://n1", capacity={"cpu": "4"}, promised=promised))
    assert committed() == (4000, 0), "the machine turned out smaller than the most it could be"
    observe(state, node("n1", pool="pool", cpu="4"))
    assert committed() == (4000, 0)


def test_limits_hold_after_a_restart() -> None:
    """A claim that is not launched says itself what it may become; no memory of the process is needed."""
    state = cluster(pool(cpu="10"), claim("c1", promised='{"cpu": "8", "nodes": "1"}'))
    assert state.reserve(promise("c2", cpu=4000)) is not None
    assert state.reserve(promise("c3", cpu=2000)) is None


def test_claim_of_other_making_counts_for_its_requests_at_least() -> None:
    state = cluster(pool(cpu="10"), claim("c1", requests={"cpu": "9"}))
    assert state.reserve(promise("c2", cpu=2000)) is not None
    state = cluster(pool(cpu="10"), claim("c1", requests={"cpu": "9"}, promised="not json"))
    assert state.reserve(promise("c2", cpu=2000)) is not None


def test_retry_of_the_same_claim_is_not_charged_twice() -> None:
    state = cluster(pool(cpu="10"))
    assert state.reserve(promise("c1", cpu=6000)) is None
    assert state.reserve(promise("c1", cpu=6000)) is None
    assert state.ledger.promised("pool") == {"cpu": 6000, "nodes": 1}


def test_abandoned_promise_is_free_again() -> None:
    state = cluster(pool(cpu="10"))
    state.reserve(promise("c1", cpu=10000), [pod("p1")])
    state.abandon("c1")
    assert state.ledger.promised("pool") == {} and state.expected_claim("default/p1") is None
    assert state.reserve(promise("c2", cpu=10000)) is None


def test_pool_above_its_limit_gets_nothing_more() -> None:
    """Limits were lowered: what runs stays, nothing is added, not even of another resource."""
    state = cluster(pool(cpu="2"), claim("c1", provider_id="kwok://n1", capacity={"cpu": "4"}))
    assert state.reserve(promise("c2", memory=1)) is not None


def test_machine_being_removed_frees_its_share() -> None:
    state = cluster(pool(cpu="4"), claim("c1", provider_id="kwok://n1"), node("n1", pool="pool"))
    assert state.reserve(promise("c2", cpu=4000)) is not None
    state.mark_for_deletion("kwok://n1")
    assert state.reserve(promise("c2", cpu=4000)) is None


def test_limit_that_cannot_be_read_closes_the_pool() -> None:
    """S12: an unknown limit is not an absent one."""
    refusal = cluster(pool(cpu="abc")).reserve(promise("c1", cpu=1))
    assert refusal is not None and "'abc'" in refusal.message


def test_unknown_pool_gets_nothing() -> None:
    refusal = cluster().reserve(promise("c1", "ghost"))
    assert refusal is not None and "ghost" in refusal.message


def test_the_larger_of_node_and_claim_capacity_counts() -> None:
    """A simulated node may report only what was requested; the limit must hold for the machine that was bought."""
    state = cluster(
        pool(), claim("c1", provider_id="kwok://n1", capacity={"cpu": "8"}), node("n1", pool="pool", cpu="1")
    )
    assert state.usage("pool") == {"cpu": 8000, "nodes": 1}


def test_f14_claim_deleted_before_its_creation_was_answered_is_not_revived() -> None:
    made = claim("c1")
    state = cluster(pool(cpu="10"))
    state.reserve(promise("c1", cpu=6000), [pod("p1")])
    observe(state, made)
    delete(state, made)
    state.insert_claim(made)
    assert state.views() == () and state.ledger.promised("pool") == {} and state.is_synced()


def test_late_answer_to_a_creation_does_not_undo_what_the_watch_showed() -> None:
    state = cluster(claim("c1", provider_id="kwok://n1"))
    state.insert_claim(claim("c1"))
    assert state.is_synced()


def test_unreadable_quantity_of_a_node_is_no_room() -> None:
    """B28."""
    (view,) = cluster(node("n1", cpu="NaN", memory="1Gi")).views()
    assert view.allocatable == {"cpu": 0, "memory": 2**30}


def test_promised_capacity_is_an_annotation_of_our_own_group() -> None:
    assert labels.PROMISED_CAPACITY.startswith("pykarpenter.sh/")
