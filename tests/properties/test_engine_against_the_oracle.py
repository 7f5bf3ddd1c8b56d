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


# Clusters out of thousands on which the engine or its judges were wrong once, each with what it is about.
WRONG_ONCE = {
    1083: "the price of a type whose daemons fill its small offering",
    1231: "another pod's anti-affinity and a machine whose Node has not appeared",
    1345: "reservations that leave a claim fewer types than its minimum",
    1431: "a limit and a type of which one offering is too large",
    1692: "a capacity type that only the last offering decides",
    2326: "a limit and a type of which one offering is too large",
    3451: "a spread of pods that met different required terms",
    3815: "a node filter over a label whose value is not chosen yet",
    3996: "a limit and an offering smaller than its type",
    4115: "three equal zones of which only the middle one will do",
    4337: "a spread of pods that gave up their first required term",
    4918: "a spread of pods that gave up their first required term",
}


@pytest.mark.parametrize("seed", WRONG_ONCE, ids=lambda seed: f"{seed}-{WRONG_ONCE[seed].replace(' ', '-')}")
def test_clusters_that_were_wrong_once_stay_right(seed: int):
    """Rare combinations of rules are met by thousands of clusters only."""
    assert not [*problems(seed), *unsteady(seed)]
