"""The engine against the plain packer and the validator on hundreds of small, nasty clusters."""

from __future__ import annotations

import pytest

from tests.properties.against_the_oracle import problems, unsteady

CASES = range(1, 301)


def test_every_pod_the_plain_packer_places_is_placed_and_the_validator_accepts_the_plan():
    """Speed must not cost a pod its place, nor a rule its effect."""
    bad = {seed: found for seed in CASES if (found := problems(seed))}
    assert not bad


@pytest.mark.parametrize("seeds", [range(1, 101)], ids=["first-hundred"])
def test_equal_input_gives_an_equal_plan_and_the_order_of_the_input_does_not_matter(seeds: range):
    """A plan that depends on the order of a listing cannot be reproduced."""
    bad = {seed: found for seed in seeds if (found := unsteady(seed))}
    assert not bad
