"""F10: bursts far above the limits of their pools; `python -m tests.soak --burst 10000` is the large one."""

from __future__ import annotations

import pytest

from pykarpenter.state.ledger import Ledger
from tests.soak.bursts import run_burst


@pytest.mark.slow
def test_f10_s1_a_burst_near_the_limits_uses_them_up_and_never_passes_them():
    """cpu, nodes and GPUs; some launches are throttled, some answers lost."""
    outcome = run_burst(200, unreliable=2)
    assert outcome.problems == []
    assert all(outcome.running.values())


def test_f10_without_the_ledger_the_watch_notices(monkeypatch):
    """Turning the guard off must be seen, or a green burst proves nothing."""
    monkeypatch.setattr("pykarpenter.core.packing.supply.limits_left", lambda *_: None)
    monkeypatch.setattr(Ledger, "reserve", lambda *_: None)
    assert any(problem.startswith("S1") for problem in run_burst(60).problems)
