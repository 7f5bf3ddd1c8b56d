"""Whatever happens to machines, in whatever order: afterwards claims, Nodes and instances are the same machines."""

from __future__ import annotations

import pytest

from tests.machines.storms import run_storm


@pytest.mark.parametrize("seed", range(1, 13))
def test_l2_l3_l4_machines_settle_after_any_storm(seed: int) -> None:
    """No leftover, no orphan, nothing stuck; `python -m tests.soak --storms N` looks at more."""
    problems, told = run_storm(seed)
    assert problems == [], told
