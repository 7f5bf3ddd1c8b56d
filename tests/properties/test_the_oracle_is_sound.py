"""The oracle judges the engine, so it is judged first: its plans are legal and its clusters exercise every rule."""

from collections import Counter
from dataclasses import replace

from tests.reference.conversion import as_launch_plan
from tests.reference.generator import generate
from tests.reference.packer import pack_reference
from tests.reference.validator import validate

CASES = range(1, 151)


def test_the_validator_accepts_what_the_plain_packer_plans():
    """Two readings of the specification agree; a handful of order-dependent spreads may differ (under 2 %)."""
    refused = []
    for seed in CASES:
        case = generate(seed)
        plan = as_launch_plan(case.snapshot, pack_reference(case.snapshot, case.settings))
        if validate(case.snapshot, case.settings, plan):
            refused.append(seed)
    assert len(refused) <= len(CASES) * 0.02, refused


def test_every_rule_occurs_in_at_least_three_percent_of_the_clusters():
    """A rule that never occurs is never tested."""
    seen = Counter(feature for seed in range(600) for feature in generate(seed).features)
    rare = {feature: count for feature, count in seen.items() if count < 18}
    assert not rare


def test_the_plain_packer_gives_the_same_plan_twice():
    """An oracle that changes its mind proves nothing."""
    for seed in range(20):
        first, second = (pack_reference(c.snapshot, c.settings) for c in (generate(seed), generate(seed)))
        assert first == second


def test_the_validator_names_a_pod_that_is_placed_twice():
    """Counting a pod twice would hide another that was forgotten."""
    case = generate(7)
    plan = as_launch_plan(case.snapshot, pack_reference(case.snapshot, case.settings))
    doubled = replace(plan, claims=(*plan.claims, plan.claims[0]))
    assert any(p.startswith("once") for p in validate(case.snapshot, case.settings, doubled))


def test_the_validator_refuses_machines_that_are_crammed_full():
    """A validator that accepts everything would let everything through; preferences alone may allow a merge."""
    tried, refused = 0, Counter()
    for seed in CASES:
        case = generate(seed)
        plan = as_launch_plan(case.snapshot, pack_reference(case.snapshot, case.settings))
        if len(plan.claims) < 4:
            continue
        tried += 1
        crammed = replace(plan.claims[0], pods=tuple(p for c in plan.claims for p in c.pods))
        problems = validate(case.snapshot, case.settings, replace(plan, claims=(crammed,)))
        refused.update({p.partition(":")[0] for p in problems} or {"accepted"})
    assert tried > 20
    assert refused["accepted"] < tried * 0.2
    assert {"offering", "requirements", "topology", "ports"} <= set(refused)
