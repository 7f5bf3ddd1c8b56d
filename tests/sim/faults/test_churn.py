"""F38: what a process holds does not grow with the days it runs."""

from __future__ import annotations

from tests.soak.churn import Churn, run_churn


def test_f38_growth_is_noticed_and_a_swing_is_not() -> None:
    """The judge itself must be able to fail."""
    steady = [70_000 + 300 * (day % 3) for day in range(30)]
    leaking = [70_000 + 400 * day for day in range(30)]
    filling = [min(90_000, 60_000 + 3_000 * day) for day in range(30)]
    assert Churn(objects=steady).problems() == []
    assert Churn(objects=filling).problems() == []
    assert any("F38" in problem for problem in Churn(objects=leaking).problems())
    assert Churn(objects=steady, failures=["KeyError: x"]).problems() != []


def test_f38_a_short_churn_comes_and_goes_without_dying() -> None:
    """A twelfth of a day, twice: machines are bought and given back, and what is held stays about the same."""
    churn = run_churn(2, day_s=7_200.0)
    assert churn.failures == []
    assert churn.launches > 2
    assert len(churn.objects) == len(churn.resident) == 2
    assert churn.objects[1] < churn.objects[0] * 1.1
