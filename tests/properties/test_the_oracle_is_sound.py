"""The oracle judges the engine, so it is judged first: its plans are legal and its clusters exercise every rule."""

from collections import Counter
from dataclasses import replace
from typing import Any

from pykarpenter.api import labels
from pykarpenter.core.packing import pack
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.plans import LaunchPlan
from pykarpenter.core.snapshot import ClusterSnapshot
from tests.reference.conversion import as_launch_plan
from tests.reference.generator import generate
from tests.reference.packer import Ties, pack_reference
from tests.reference.validator import validate
from tests.support.builders import (
    expression,
    make_daemon_set,
    make_node,
    make_offering,
    make_pod,
    make_pool,
    make_snapshot,
    make_type,
    spread,
)

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


# The rules of the specification, each by what a generated cluster has when it is in play.
EVERY_RULE = """\
gated-pod preempting-pod daemon-owned-pod opted-out match-fields missing-volume-claim blocking-pdb
bound-do-not-disrupt leaving-node custom-key-requirement numeric-requirement selector-undefined selector-alias
min-values min-values-best-effort required-terms required-operator preferred-node-affinity preferred-pod-affinity
preferred-pod-anti-affinity schedule-anyway preference-policy-ignore pool-taint pool-prefer-no-schedule node-taint
node-prefer-no-schedule toleration numeric-toleration startup-taint startup-taint-on-node ephemeral-taint
init-container sidecar overhead pod-level-resources in-place-resize resize-infeasible daemon-set daemon-live-pod
daemon-runs-already daemon-terms daemon-tolerates daemon-selects daemon-host-port host-port bound-host-port
bound-volume storage-class-wait storage-class-zonal storage-class-immediate local-volume ephemeral-volume
shared-volume bound-shared-volume lost-volume csi-node csi-limit volume-attachment-limits zonal-spread
hostname-spread capacity-type-spread min-domains spread-affinity-ignore spread-taints-honor match-label-keys
nil-selector pod-affinity pod-anti-affinity bound-anti-affinity affinity-label-keys term-namespaces
term-namespace-selector second-namespace bound-terminating default-spread weight limits limit-cpu limit-memory
limit-nodes limit-nvidia.com/gpu promised-capacity gpu-pod reserved unavailable-offering offering-override
price-overlay capacity-overlay overlay-pod truncated-types buffer-pods static-pool pool-not-ready existing-node
unmanaged-node uninitialized-node node-on-its-way rebooting-node dra-pod oversized-pod
"""


def test_every_rule_occurs_in_at_least_three_percent_of_the_clusters():
    """A rule that never occurs is never tested."""
    seen = Counter(feature for seed in range(600) for feature in generate(seed).features)
    rare = {feature: seen[feature] for feature in [*EVERY_RULE.split(), *seen] if seen[feature] < 18}
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


SETTINGS = PackingSettings(effort="off")
HALF = {"memory": 16 * 2**30}


def test_the_validator_charges_a_limit_as_the_offering_makes_the_machine():
    """Half a machine counts half; when the claim could also be bought whole, it counts whole."""
    small = make_offering("zone-a", "spot", 0.5, capacity_override=HALF)
    uneven = make_type("uneven", memory="32Gi", offerings=[make_offering("zone-a"), small])
    pools = [make_pool(limits={"memory": "20Gi"})]
    pod = make_pod(node_selector={labels.CAPACITY_TYPE: "spot"})
    snapshot = make_snapshot([pod], pools=pools, types=[uneven])
    plan = pack(snapshot, SETTINGS)
    assert plan.claims and not validate(snapshot, SETTINGS, plan)
    wide = replace(
        plan.claims[0], requirements=tuple(r for r in plan.claims[0].requirements if r.key != labels.CAPACITY_TYPE)
    )
    problems = validate(snapshot, SETTINGS, replace(plan, claims=(wide,)))
    assert [p for p in problems if p.startswith("limits: default: memory")]


def test_the_validator_prices_a_type_by_the_offerings_that_hold_its_own_daemons():
    """The claim's requests carry the least that DaemonSets ask of any type, not what they ask of each."""
    small = make_offering("zone-a", "spot", 0.5, capacity_override=HALF)
    uneven = make_type("uneven", memory="32Gi", offerings=[make_offering("zone-a", price=3.0), small])
    even = make_type("even", memory="32Gi", price=2.0, arch="arm64")
    daemon = make_daemon_set(memory="8Gi", node_selector={labels.ARCH: "amd64"})
    snapshot = make_snapshot([make_pod(memory="10Gi")], types=[uneven, even], daemon_sets=(daemon,))
    plan = pack(snapshot, SETTINGS)
    assert plan.claims[0].instance_types == ("even", "uneven")
    assert not validate(snapshot, SETTINGS, plan)


def test_the_plain_packer_can_be_told_which_of_equal_domains_to_take():
    """The engine may take any of them, so each has to be asked for."""
    pod = make_pod(labels={"app": "web"}, topology_spread_constraints=[spread(labels.ZONE, {"app": "web"})])
    snapshot = make_snapshot([pod])
    for zone in ("zone-a", "zone-b", "zone-c"):
        plan = pack_reference(snapshot, SETTINGS, ties=Ties(favourites=frozenset({zone})))
        assert plan.claims[0].requirements[labels.ZONE].values == {zone}


def _side_by_side(zones: list[str], pods: list[dict[str, Any]], **fields: Any) -> tuple[ClusterSnapshot, LaunchPlan]:
    """A plan with each pod on a machine of its own, in the zone at the same place of the list."""
    wanted = [make_pod(f"p{i}", labels={"app": "web"}, **spec) for i, spec in enumerate(pods)]
    snapshot = make_snapshot(wanted, **fields)
    alone = pack(make_snapshot(wanted[:1], **fields), SETTINGS).claims[0]
    claims = []
    for pod, zone in zip(wanted, zones, strict=True):
        others = [r for r in alone.requirements if r.key != labels.ZONE]
        requirements = (*others, expression(labels.ZONE, "In", zone))
        claims.append(replace(alone, pods=(pod.key,), requirements=requirements))
    return snapshot, LaunchPlan(claims=tuple(claims))


LEVEL = {"topology_spread_constraints": [spread(labels.ZONE, {"app": "web"})]}


def _topology(snapshot: ClusterSnapshot, plan: LaunchPlan) -> list[str]:
    return [p for p in validate(snapshot, SETTINGS, plan) if p.startswith("topology")]


def test_the_validator_refuses_a_spread_that_no_order_keeps():
    """However the machines are looked at, a second pod in a zone while another zone is empty is one too many."""
    nodes = [make_node("full", zone="zone-b", cpu="100m")]
    assert not _topology(*_side_by_side(["zone-a", "zone-b"], [LEVEL, LEVEL], nodes=nodes))
    assert _topology(*_side_by_side(["zone-a", "zone-a"], [LEVEL, LEVEL], nodes=nodes))
    assert _topology(*_side_by_side(["zone-a", "zone-b", "zone-a", "zone-a"], [LEVEL] * 4))
