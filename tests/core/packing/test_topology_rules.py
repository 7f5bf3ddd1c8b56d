"""Spread, affinity and anti-affinity hold at every placement."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pykarpenter.api import labels
from pykarpenter.api.meta import LabelSelector, ObjectMeta
from pykarpenter.api.nodes import Taint
from pykarpenter.api.workloads import Namespace
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.reasons import Why
from tests.core.packing.support import on_nodes, per_claim, plan_of, zones
from tests.support.builders import (
    Affinity,
    PodAffinity,
    affinity_term,
    apart,
    bound_pod,
    expression,
    make_node,
    make_pod,
    make_pods,
    make_pool,
    make_type,
    near,
    spread,
    weighted,
)

WEB = {"app": "web"}
SMALL = make_type("two", cpu="2")


def zone_counts(plan: Any) -> list[int]:
    return sorted(Counter(zones(plan).values()).values())


@pytest.mark.promise("SCH-11.1")
def test_zonal_spread_levels_the_zones() -> None:
    """Four pods over three zones are 1, 1 and 2."""
    pods = make_pods(4, labels=WEB, topology_spread_constraints=[spread(labels.ZONE, WEB)])
    assert zone_counts(plan_of(pods)) == [1, 1, 2]


@pytest.mark.promise("SCH-11.1")
def test_spread_counts_pods_that_already_run() -> None:
    """Peers on existing nodes count, so the other zones get the new pods."""
    node = make_node(cpu="1", pods=[bound_pod("peer", "node-1", labels=WEB)])
    pods = make_pods(2, labels=WEB, topology_spread_constraints=[spread(labels.ZONE, WEB)])
    assert set(zones(plan_of(pods, nodes=[node])).values()) == {"zone-b", "zone-c"}


def test_spread_uses_existing_room_where_skew_allows() -> None:
    """Free room comes first; only then does leveling cost money."""
    pods = make_pods(1, labels=WEB, topology_spread_constraints=[spread(labels.ZONE, WEB)])
    assert on_nodes(plan_of(pods, nodes=[make_node(zone="zone-c")])) == {"node-1": ["default/pod-0000"]}


@pytest.mark.promise("SCH-11.2")
def test_hostname_spread_caps_each_machine() -> None:
    """maxSkew over hostnames is a cap per machine, as new machines are always empty."""
    pods = make_pods(5, labels=WEB, topology_spread_constraints=[spread(labels.HOSTNAME, WEB, skew=2)])
    assert per_claim(plan_of(pods)) == [1, 2, 2]


def test_spread_that_a_missing_zone_blocks_leaves_pods_pending() -> None:
    """A zone that can hold no pod keeps the others at its level plus the skew."""
    node = make_node(zone="zone-x", cpu="0")
    pods = make_pods(6, labels=WEB, topology_spread_constraints=[spread(labels.ZONE, WEB)])
    plan = plan_of(pods, nodes=[node])
    assert zone_counts(plan) == [1, 1, 1]
    refusal = plan.unschedulable["default/pod-0005"]
    assert refusal.pools[0].why is Why.TOPOLOGY
    assert "maxSkew 1" in refusal.text()


@pytest.mark.promise("SCH-11.3")
def test_min_domains_asks_for_enough_domains() -> None:
    """With fewer domains than asked the lowest counts as zero."""
    constraint = spread(labels.ZONE, WEB, min_domains=4)
    pods = make_pods(6, labels=WEB, topology_spread_constraints=[constraint])
    plan = plan_of(pods)
    assert zone_counts(plan) == [1, 1, 1]
    assert len(plan.unschedulable) == 3


@pytest.mark.promise("SCH-20.2")
def test_spread_groups_with_other_minimums_are_kept_apart() -> None:
    """A neighbour's minDomains must not bind pods that did not ask for it."""
    strict = make_pods(3, "strict", labels=WEB, topology_spread_constraints=[spread(labels.ZONE, WEB, min_domains=4)])
    free = make_pods(9, "free", labels=WEB, topology_spread_constraints=[spread(labels.ZONE, WEB)])
    plan = plan_of([*strict, *free])
    assert not [key for key in plan.unschedulable if "free" in key]


@pytest.mark.promise("SCH-11.4")
def test_match_label_keys_spread_each_revision_by_itself() -> None:
    """Old and new revisions do not disturb each other."""
    constraint = spread(labels.ZONE, WEB, match_label_keys=["rev"])
    old = make_node(pods=[bound_pod(f"old-{i}", "node-1", cpu="10m", labels={**WEB, "rev": "1"}) for i in range(3)])
    pods = make_pods(3, labels={**WEB, "rev": "2"}, topology_spread_constraints=[constraint])
    plan = plan_of(pods, nodes=[old])
    assert not plan.unschedulable
    assert zone_counts(plan) == [1, 1]
    assert len(on_nodes(plan)["node-1"]) == 1


@pytest.mark.promise("SCH-11.5")
def test_node_affinity_policy_decides_which_nodes_count() -> None:
    """Honor counts only nodes that the pod could use, Ignore counts them all."""
    assert zone_choice("Honor") == "zone-a"
    assert zone_choice("Ignore") != "zone-a"


def zone_choice(policy: str) -> str:
    node = make_node(labels={"team": "blue"}, cpu="10m", pods=[bound_pod("p", "node-1", cpu="1m", labels=WEB)])
    pools = [make_pool(requirements=[expression("team", "In", "red")])]
    constraint = spread(labels.ZONE, WEB, node_affinity_policy=policy)
    pod = make_pod(labels=WEB, node_selector={"team": "red"}, topology_spread_constraints=[constraint])
    return plan_of([pod], nodes=[node], pools=pools).claims[0].choice.zone


@pytest.mark.promise("SCH-11.6")
def test_node_taints_policy_honor_leaves_out_pools_one_does_not_tolerate() -> None:
    """A zone only offered by a tainted pool is no domain for those who keep away from it."""
    types = {
        "open": (make_type("a", zones=["zone-a"]),),
        "tainted": (make_type("b", zones=["zone-b"]),),
    }
    pools = [make_pool("open"), make_pool("tainted", taints=[Taint(key="t", effect="NoSchedule")])]

    def placed(policy: str) -> int:
        constraint = spread(labels.ZONE, WEB, node_taints_policy=policy)
        pods = make_pods(3, labels=WEB, topology_spread_constraints=[constraint])
        return 3 - len(plan_of(pods, pools=pools, types=types).unschedulable)

    assert placed("Honor") == 3
    assert placed("Ignore") == 1


@pytest.mark.promise("SCH-11.7")
def test_zonal_affinity_brings_peers_together() -> None:
    """The first pod chooses the zone, the others follow."""
    pods = make_pods(9, labels=WEB, affinity=near(affinity_term(labels.ZONE, WEB)))
    plan = plan_of(pods)
    assert len(set(zones(plan).values())) == 1
    assert not plan.unschedulable


@pytest.mark.promise("SCH-20.3")
def test_affinity_always_settles_on_one_domain() -> None:
    """Two machines of one affinity never end up in different zones."""
    pods = make_pods(9, cpu="3", labels=WEB, affinity=near(affinity_term(labels.ZONE, WEB)))
    plan = plan_of(pods)
    assert len(plan.claims) == 9
    assert all(len(r.values) == 1 for c in plan.claims for r in c.requirements if r.key == labels.ZONE)


@pytest.mark.promise("SCH-11.7")
def test_affinity_follows_pods_that_already_run() -> None:
    """A pod joins its peers where they are."""
    node = make_node(zone="zone-b", cpu="1", pods=[bound_pod("peer", "node-1", labels=WEB)])
    plan = plan_of([make_pod(affinity=near(affinity_term(labels.ZONE, WEB)))], nodes=[node])
    assert plan.claims[0].choice.zone == "zone-b"


@pytest.mark.promise("SCH-10.3")
def test_affinity_to_a_later_pod_is_resolved_in_the_same_batch() -> None:
    """A small pod's peer may come after it in the queue."""
    follower = make_pod("big", cpu="3", affinity=near(affinity_term(labels.ZONE, WEB)))
    leader = make_pod("small", cpu="1", labels=WEB, node_selector={labels.ZONE: "zone-b"})
    plan = plan_of([follower, leader])
    assert zones(plan)["default/big"] == "zone-b"


def test_b25_affinity_that_nothing_satisfies_names_the_term_and_the_domains_counted() -> None:
    """The user must see which term has no peer, and where was looked."""
    plan = plan_of([make_pod(affinity=near(affinity_term(labels.ZONE, {"app": "ghost"})))])
    text = plan.unschedulable["default/pod"].text()
    assert "app=ghost" in text and "pods per domain: zone-a=0, zone-b=0, zone-c=0" in text


def test_b25_anti_affinity_with_every_domain_taken_counts_them() -> None:
    """One pod too many: each zone already has one."""
    pods = make_pods(4, labels=WEB, affinity=apart(affinity_term(labels.ZONE, WEB)))
    zonal = [
        make_node(f"n-{z}", zone=f"zone-{z}", cpu="1", pods=[bound_pod(f"p-{z}", f"n-{z}", labels=WEB)]) for z in "abc"
    ]
    (text, *_) = {refusal.text() for refusal in plan_of(pods, nodes=zonal).unschedulable.values()}
    assert "anti-affinity over topology.kubernetes.io/zone" in text and "pods per domain: zone-a=1" in text


def test_hostname_affinity_keeps_peers_on_one_machine() -> None:
    """All on one host, or not at all."""
    pods = make_pods(6, labels=WEB, affinity=near(affinity_term(labels.HOSTNAME, WEB)))
    plan = plan_of(pods, types=[make_type(cpu="4")])
    assert per_claim(plan) == [4]
    assert len(plan.unschedulable) == 2


@pytest.mark.promise("SCH-11.8")
def test_hostname_anti_affinity_gives_each_pod_its_machine() -> None:
    """Exclusive pods never share."""
    pods = make_pods(3, labels=WEB, affinity=apart(affinity_term(labels.HOSTNAME, WEB)))
    assert per_claim(plan_of(pods)) == [1, 1, 1]


@pytest.mark.promise("SCH-11.8")
def test_zonal_anti_affinity_uses_each_zone_once() -> None:
    """Three zones hold three such pods."""
    pods = make_pods(4, labels=WEB, affinity=apart(affinity_term(labels.ZONE, WEB)))
    plan = plan_of(pods)
    assert zone_counts(plan) == [1, 1, 1]
    assert len(plan.unschedulable) == 1


@pytest.mark.promise("SCH-11.9")
def test_pods_stay_away_from_those_that_do_not_want_them() -> None:
    """Anti-affinity binds the other side too: pods already bound and pods of the batch."""
    hermit = bound_pod(
        "hermit", "node-1", labels={"app": "hermit"}, affinity=apart(affinity_term(labels.HOSTNAME, WEB))
    )
    plan = plan_of([make_pod(labels=WEB)], nodes=[make_node(pods=[hermit])])
    assert on_nodes(plan) == {}
    shy = make_pod("shy", cpu="2", affinity=apart(affinity_term(labels.HOSTNAME, WEB)))
    plan = plan_of([shy, make_pod("web", labels=WEB)])
    assert per_claim(plan) == [1, 1]


@pytest.mark.promise("SCH-11.9")
def test_zonal_inverse_anti_affinity_blocks_the_zone() -> None:
    """Others must take another zone."""
    hermit = bound_pod("hermit", "node-1", affinity=apart(affinity_term(labels.ZONE, WEB)))
    plan = plan_of(make_pods(2, labels=WEB), nodes=[make_node(pods=[hermit])])
    assert "zone-a" not in zones(plan).values()
    assert not plan.unschedulable


@pytest.mark.promise("SCH-11.10")
def test_terms_can_name_other_namespaces() -> None:
    """Listed namespaces and those a selector finds are both searched."""
    node = make_node(zone="zone-c", cpu="1", pods=[bound_pod("peer", "node-1", namespace="other", labels=WEB)])
    listed = affinity_term(labels.ZONE, WEB, namespaces=["other"])
    assert plan_of([make_pod(affinity=near(listed))], nodes=[node]).claims[0].choice.zone == "zone-c"
    chosen = affinity_term(labels.ZONE, WEB, namespace_selector=LabelSelector(match_labels={"env": "prod"}))
    namespaces = {"other": Namespace(metadata=ObjectMeta(name="other", labels={"env": "prod"}))}
    plan = plan_of([make_pod(affinity=near(chosen))], nodes=[node], namespaces=namespaces)
    assert plan.claims[0].choice.zone == "zone-c"
    assert plan_of([make_pod(affinity=near(affinity_term(labels.ZONE, WEB)))], nodes=[node]).unschedulable


def test_terminating_pods_do_not_count() -> None:
    """They are on their way out."""
    leaving = bound_pod("old", "node-1", labels=WEB)
    meta = ObjectMeta(name="old", namespace="default", labels=WEB, deletion_timestamp="2026-01-01T00:00:00Z")
    node = make_node(cpu="1", pods=[type(leaving)(metadata=meta, spec=leaving.spec, status=leaving.status)])
    plan = plan_of([make_pod(affinity=near(affinity_term(labels.ZONE, WEB)))], nodes=[node])
    assert plan.unschedulable


def test_capacity_type_spread_works_on_any_key() -> None:
    """Any label of the machines can be spread over."""
    pods = make_pods(2, labels=WEB, topology_spread_constraints=[spread(labels.CAPACITY_TYPE, WEB)])
    plan = plan_of(pods)
    assert {claim.choice.capacity_type for claim in plan.claims} == {"spot", "on-demand"}


def test_b24_spread_over_an_unknown_key_is_refused_alone() -> None:
    """One odd pod does not hold up the others."""
    odd = make_pod("odd", labels=WEB, topology_spread_constraints=[spread("rack", WEB)])
    plan = plan_of([odd, make_pod("fine")])
    assert set(plan.unschedulable) == {"default/odd"}
    assert "rack" in plan.unschedulable["default/odd"].text()
    bad = make_pod("bad", labels=WEB, topology_spread_constraints=[spread(labels.ZONE, WEB, skew=0)])
    plan = plan_of([bad, make_pod("fine")])
    assert "maxSkew" in plan.ignored["default/bad"].message


@pytest.mark.parametrize("is_bound", [True, False])
def test_b24_anti_affinity_over_an_unknown_key_holds_up_nobody_else(is_bound: bool) -> None:
    """One pod that wants to be alone in its rack must not close the namespace where nobody has racks (L6)."""
    lonely = {"affinity": apart(affinity_term("rack", {})), "labels": WEB}
    nodes = [make_node(cpu="1", pods=[bound_pod("lonely", "node-1", **lonely)])] if is_bound else []
    pods = [make_pod("fine", cpu="2"), *([] if is_bound else [make_pod("lonely", **lonely)])]
    plan = plan_of(pods, nodes=nodes)
    assert [claim.pods for claim in plan.claims] == [("default/fine",)]


def test_two_rules_at_once_hold_together() -> None:
    """Spread over zones with one pod per host."""
    pods = make_pods(
        6,
        labels=WEB,
        topology_spread_constraints=[spread(labels.ZONE, WEB)],
        affinity=apart(affinity_term(labels.HOSTNAME, WEB)),
    )
    plan = plan_of(pods)
    assert zone_counts(plan) == [2, 2, 2]
    assert per_claim(plan) == [1] * 6


@pytest.mark.promise("SCH-5.5")
def test_preferences_are_ignored_when_the_policy_says_so() -> None:
    """Ignore packs tightly, Respect treats preferences as rules until they fail."""
    term = affinity_term(labels.HOSTNAME, WEB)
    wish = Affinity(pod_anti_affinity=PodAffinity(preferred=[weighted(term)]))
    pods = make_pods(3, labels=WEB, affinity=wish)
    assert per_claim(plan_of(pods)) == [1, 1, 1]
    assert per_claim(plan_of(pods, PackingSettings(preference_policy="Ignore"))) == [3]


@pytest.mark.promise("SCH-5.2")
def test_schedule_anyway_gives_way() -> None:
    """A soft spread is honoured while possible and dropped when not."""
    constraint = spread(labels.ZONE, WEB, when_unsatisfiable="ScheduleAnyway")
    pods = make_pods(6, labels=WEB, topology_spread_constraints=[constraint])
    assert zone_counts(plan_of(pods)) == [2, 2, 2]
    stuck = make_node(zone="zone-x", cpu="0")
    assert not plan_of(pods, nodes=[stuck]).unschedulable


@pytest.mark.promise("SCH-20.5")
def test_prefer_no_schedule_is_only_a_preference() -> None:
    """The last thing a pod gives up is staying off such machines, whoever owns them."""
    soft = Taint(key="soft", effect="PreferNoSchedule")
    assert len(plan_of([make_pod()], pools=[make_pool(taints=[soft])]).claims) == 1
    plan = plan_of([make_pod()], pools=[], nodes=[make_node(taints=[soft])])
    assert on_nodes(plan) == {"node-1": ["default/pod"]}
    other = plan_of([make_pod()], pools=[make_pool("a"), make_pool("soft", taints=[soft], weight=5)])
    assert other.claims[0].node_pool == "a"


@pytest.mark.promise("SCH-11.1")
def test_a_zone_that_only_a_leaving_node_has_holds_no_spread_down() -> None:
    """No pod can go there, so its emptiness says nothing about the others."""
    leaving = make_node(zone="zone-gone", marked_for_deletion=True)
    pods = make_pods(6, labels=WEB, topology_spread_constraints=[spread(labels.ZONE, WEB)])
    plan = plan_of(pods, nodes=[leaving])
    assert zone_counts(plan) == [2, 2, 2]
    assert not plan.unschedulable


@pytest.mark.promise("SCH-10.1")
def test_pods_left_out_by_the_order_of_others_are_tried_first_once_more() -> None:
    """One pod keeps away from all others of its kind in the zone: coming last it would find no zone free."""
    lonely = make_pod("zz", cpu="100m", labels={"app": "lonely"}, affinity=apart(affinity_term(labels.ZONE, WEB)))
    pods = make_pods(3, labels=WEB, cpu="1500m", topology_spread_constraints=[spread(labels.ZONE, WEB, skew=3)])
    plan = plan_of([*pods, lonely], types=[SMALL])
    assert not plan.unschedulable


@pytest.mark.promise("SCH-11.2")
def test_affinity_follows_a_pod_to_a_machine_whose_node_has_not_appeared() -> None:
    """Its zone is known by nobody else until the first pod is placed there."""
    coming = make_node(zone="zone-far", pool="default", node=None, initialized=False)
    leader = make_pod("aa", labels=WEB, node_selector={labels.ZONE: "zone-far"})
    # The larger pod is asked about first, in vain.
    follower = make_pod("bb", cpu="2", affinity=near(affinity_term(labels.ZONE, WEB)))
    assert on_nodes(plan_of([leader, follower], nodes=[coming])) == {"node-1": ["default/aa", "default/bb"]}


@pytest.mark.promise("SCH-11.9")
def test_another_pods_anti_affinity_leaves_a_machine_open_whose_node_has_not_appeared() -> None:
    """Its zone is known by nobody else, and that is as good as empty: nothing there wants to be alone."""
    coming = make_node(zone="zone-far", pool="default", node=None, initialized=False)
    hermit = bound_pod("hermit", "node-2", affinity=apart(affinity_term(labels.ZONE, WEB)))
    nodes = [coming, make_node("node-2", pods=[hermit])]
    closed = make_pool("closed", taints=[Taint(key="dedicated", value="x", effect="NoSchedule")])
    plan = plan_of([make_pod(labels=WEB)], pools=[closed], nodes=nodes)
    assert on_nodes(plan) == {"node-1": ["default/pod"]}
