"""The planner against Karpenter's own search on a few recorded fleets; all thirty are in `make bench`."""

import pytest
from benchmarks.fleets import compare

from pykarpenter.core.fleet.search import Trials


@pytest.mark.parametrize("name", ["drip-105", "mixed-103"])
def test_cheaper_and_calmer_than_karpenters_search(name):
    """Users move from Karpenter for lower bills and fewer evictions, never for a trade between them."""
    found = compare(name, Trials(per_price=15, rounds=1))
    assert found.their_price == pytest.approx(found.recorded, rel=0.02)
    assert found.bound <= found.our_price
    assert found.price_at_their_evictions < found.their_price
    assert found.evictions_at_their_price <= found.their_evictions
    assert found.our_gap < found.their_gap
