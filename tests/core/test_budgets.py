"""Budgets say how many nodes may be out at once, and fail closed."""

from datetime import UTC, datetime

import pytest

from pykarpenter.api.meta import Condition, ObjectMeta
from pykarpenter.api.nodepool import Budget, Disruption, NodeClaim, NodeClaimStatus, NodePool, NodePoolSpec
from pykarpenter.api.nodes import Node, NodeStatus
from pykarpenter.core.budgets import (
    DRIFTED,
    EMPTY,
    REASONS,
    UNDERUTILIZED,
    UNHEALTHY,
    UNLIMITED,
    PoolNodes,
    allowed_disruptions,
    count_nodes,
    unreadable_budgets,
)
from pykarpenter.core.disruption.allowance import PoolAllowance
from pykarpenter.core.snapshot import NodeView


def pool(*budgets):
    return NodePool(metadata=ObjectMeta(name="p"), spec=NodePoolSpec(disruption=Disruption(budgets=list(budgets))))


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def view(*, ready=True, pool_name="p", conditions=(), **facts):
    node = Node(status=NodeStatus(conditions=[Condition(type="Ready", status=str(ready))]))
    claim = NodeClaim(status=NodeClaimStatus(conditions=list(conditions)))
    return NodeView(
        name="n", node=node, claim=claim, labels={"karpenter.sh/nodepool": pool_name}, managed=True, **facts
    )


@pytest.mark.promise("API-1.1.4", "DIS-5.4")
@pytest.mark.parametrize(
    ("nodes", "total", "allowed"),
    [("20%", 19, 4), ("5%", 10, 1), ("10%", 3, 1), ("0%", 10, 0), ("100%", 7, 7), ("10%", 0, 0), ("3", 100, 3)],
)
def test_percentages_round_up(nodes, total, allowed):
    """A pool of three must be able to consolidate under the default budget."""
    assert allowed_disruptions(pool(Budget(nodes=nodes)), total, 0.0) == dict.fromkeys(REASONS, allowed)


@pytest.mark.promise("API-1.1.5", "DIS-5.5")
@pytest.mark.parametrize(
    ("now", "blocked"),
    [
        ("2026-01-01 23:59:59", False),
        ("2026-01-02 00:00:00", True),
        ("2026-01-02 00:09:59", True),
        ("2026-01-02 00:10:00", False),
        ("2026-01-02 00:10:01", False),
    ],
)
def test_window_is_open_from_its_begin_until_before_its_end(now, blocked):
    """The end belongs to the next state: a hit strictly after now minus the duration is needed."""
    budget = Budget(nodes="0", schedule="@daily", duration="10m")
    assert allowed_disruptions(pool(budget), 10, at(now))[EMPTY] == (0 if blocked else UNLIMITED)


@pytest.mark.promise("API-1.1.6", "DIS-5.4")
def test_smallest_budget_that_names_the_reason_counts():
    """Budgets for other reasons must not matter."""
    budgets = [
        Budget(nodes="5"),
        Budget(nodes="2", reasons=[DRIFTED]),
        Budget(nodes="0", reasons=[EMPTY], schedule="@yearly", duration="1m"),
    ]
    allowed = allowed_disruptions(pool(*budgets), 100, at("2026-06-01 12:00:00"))
    assert allowed == {UNDERUTILIZED: 5, EMPTY: 5, DRIFTED: 2, UNHEALTHY: 5}


@pytest.mark.promise("API-1.1.6", "DIS-5.8")
def test_empty_list_sets_no_limit_and_an_absent_one_is_ten_percent():
    """An explicit empty list is a decision of the user; leaving it out is not."""
    assert allowed_disruptions(pool(), 100, 0.0)[EMPTY] == UNLIMITED
    assert allowed_disruptions(NodePool(), 100, 0.0)[EMPTY] == 10


@pytest.mark.promise("API-1.1.7", "DIS-5.6")
@pytest.mark.parametrize("schedule", ["@dailyx", "a b c d e"])
def test_b1_unreadable_budget_blocks_every_reason(schedule):
    """Fail closed: a typing error for Drifted must not open the pool for Empty."""
    broken = pool(Budget(nodes="10"), Budget(nodes="0", reasons=[DRIFTED], schedule=schedule, duration="1h"))
    assert allowed_disruptions(broken, 100, 0.0) == dict.fromkeys(REASONS, 0)
    (problem,) = unreadable_budgets(broken)
    assert problem.path == "spec.disruption.budgets[1].schedule"
    assert schedule in str(problem)


@pytest.mark.promise("API-1.1.7")
def test_every_unreadable_part_is_listed():
    """Objects from files have not passed an API server; all their faults are shown at once."""
    broken = pool(Budget(nodes="101%", schedule="@daily"), Budget(nodes="5.5", schedule="@daily", duration="1x"))
    assert [problem.path for problem in unreadable_budgets(broken)] == [
        "spec.disruption.budgets[0].nodes",
        "spec.disruption.budgets[0]",
        "spec.disruption.budgets[1].nodes",
        "spec.disruption.budgets[1].duration",
    ]


def test_schedule_that_never_comes_never_applies():
    """February 30 is no error, but nothing begins then."""
    never = pool(Budget(nodes="0", schedule="0 0 30 2 *", duration="1h"))
    assert allowed_disruptions(never, 10, at("2026-03-01 00:30:00"))[EMPTY] == UNLIMITED


def usable_disruptions(pool, nodes, now):
    """What is left of the budgets for each reason, as disruption counts it."""
    allowed = allowed_disruptions(pool, nodes.total, now)
    return {r: PoolAllowance(pool.name, r, nodes.total, allowed[r], nodes.consumed(r)).usable for r in REASONS}


@pytest.mark.promise("API-1.1.8", "DIS-5.7")
def test_not_ready_nodes_use_every_budget_up_but_the_one_that_repairs_them():
    """Else unhealthy nodes would block their own repair."""
    nodes = count_nodes([view() for _ in range(8)] + [view(ready=False) for _ in range(2)])["p"]
    usable = usable_disruptions(pool(Budget(nodes="100%")), nodes, 0.0)
    assert (usable[UNHEALTHY], usable[DRIFTED]) == (10, 8)


@pytest.mark.promise("API-1.1.8", "DIS-5.7", "DIS-7.4.3")
def test_rebooting_nodes_use_the_budget_up_for_every_reason():
    """One draining for its reboot, one that already reboots and is not initialized."""
    nodes = [view() for _ in range(8)] + [view(rebooting=True), view(rebooting=True, initialized=False, ready=False)]
    usable = usable_disruptions(pool(Budget(nodes="10")), count_nodes(nodes)["p"], 0.0)
    assert usable == dict.fromkeys(REASONS, 8)


@pytest.mark.promise("API-1.1.8")
def test_only_nodes_that_could_be_disrupted_count():
    """Starting, foreign and already terminating machines are no part of the percentage."""
    terminating = Condition(type="InstanceTerminating", status="True")
    nodes = [
        view(),
        view(marked_for_deletion=True, ready=False),
        view(initialized=False),
        view(pool_name=""),
        view(conditions=[terminating]),
        view(pool_name="other"),
    ]
    assert count_nodes(nodes) == {"p": PoolNodes(total=2, leaving=1, not_ready=0), "other": PoolNodes(total=1)}


@pytest.mark.promise("API-1.1.8")
def test_usable_is_never_negative():
    """More nodes may be out than the budget allows, for reasons that budgets do not restrain."""
    assert usable_disruptions(pool(Budget(nodes="1")), PoolNodes(10, 4, 0), 0.0)[EMPTY] == 0
