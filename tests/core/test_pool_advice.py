"""Advice about pools that are legal and can hardly be meant."""

import msgspec
import pytest

from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.timestamps import parse_timestamp
from pykarpenter.core.pool_advice import budget_advice, lifetime_advice, limit_advice

NOW = parse_timestamp("2028-01-01T00:00:00Z")


def pool(**spec):
    return msgspec.convert({"spec": spec}, NodePool)


def budgets(*items):
    found = budget_advice(pool(disruption={"budgets": list(items)}), NOW)
    return [(problem.path.removeprefix("spec.disruption."), problem.severity) for problem in found]


def window(schedule, duration, nodes="0", **more):
    return {"nodes": nodes, "schedule": schedule, "duration": duration, **more}


@pytest.mark.parametrize(
    "items",
    [
        [{"nodes": "10%"}],
        [],
        [{"nodes": "0", "reasons": ["Drifted"], "schedule": "0 9 * * mon-fri", "duration": "8h"}],
        [window("0 9 * * mon-fri", "8h"), {"nodes": "10%"}],
        [window("0 9 * * mon-fri", "24h")],
        [window("@daily", "23h59m")],
        [window("* * * 1-11 *", "10m")],
        [window("0 0 1 * *", "672h")],
        [window("@daily", "24h", nodes="5%")],
    ],
)
def test_budgets_that_open_some_time_are_fine(items):
    """A gap of a minute, a weekend or a December is enough."""
    assert budgets(*items) == []


@pytest.mark.parametrize(
    "items",
    [
        [window("@daily", "24h")],
        [window("* * * * *", "1m")],
        [window("0 * * * *", "1h30m")],
        [window("0 0 1 * *", "744h")],
        [window("0 0 * * mon-fri", "24h"), window("0 0 * * sat,sun", "24h")],
    ],
)
def test_windows_without_a_gap_are_an_error(items):
    """Whoever writes a schedule means it to end."""
    assert budgets(*items) == [("budgets[0].duration", "error")]


def test_budget_of_zero_nodes_for_ever_is_a_warning():
    """It is the documented way to freeze a pool, and the usual reason why nothing drifts."""
    assert budgets({"nodes": "0"}) == [("budgets[0].nodes", "warning")]
    assert budgets({"nodes": "5"}, {"nodes": "0%", "reasons": ["Empty"]}) == [("budgets[1].nodes", "warning")]


def test_day_that_never_comes_is_an_error():
    """The budget looks as if it did something."""
    assert budgets(window("0 0 31 4,6,9,11 *", "1h")) == [("budgets[0].schedule", "error")]


def test_unreadable_schedule_is_an_error():
    """At run time it would block every disruption."""
    assert budgets(window("@dailyx", "1h")) == [("budgets[0].schedule", "error")]


@pytest.mark.parametrize(
    ("expiry", "grace", "wrong"),
    [("1h", "2h", True), ("2h", "1h", False), ("2h", "2h", False), ("Never", "2h", False), ("1h", None, False)],
)
def test_expiry_shorter_than_the_grace_period_is_an_error(expiry, grace, wrong):
    """The node would be drained for longer than it lived."""
    spec = {"expireAfter": expiry} | ({"terminationGracePeriod": grace} if grace else {})
    assert bool(list(lifetime_advice(pool(template={"spec": spec})))) is wrong


def test_limits_of_zero_warn_and_replicas_above_the_limit_fail():
    """Zero closes a pool on purpose; replicas above the limit never come up."""
    assert [(p.path, p.severity) for p in limit_advice(pool(limits={"cpu": 0}))] == [("spec.limits.cpu", "warning")]
    assert [p.path for p in limit_advice(pool(limits={"nodes": 2}, replicas=3))] == ["spec.replicas"]
    assert list(limit_advice(pool(limits={"nodes": 3, "cpu": "1k"}, replicas=3))) == []
