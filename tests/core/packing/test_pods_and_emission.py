"""Which pods are tried, what they ask for, what a planned claim says, and the gated kinds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pykarpenter.api import labels
from pykarpenter.api.extras import CapacityBuffer, CapacityBufferSpec, NodeOverlay, NodeOverlaySpec
from pykarpenter.api.labels import LabelRules
from pykarpenter.api.meta import LabelSelector, ObjectMeta, OwnerReference
from pykarpenter.api.nodes import Taint
from pykarpenter.api.pods import (
    Container,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PodResourceClaim,
    PodTemplateSpec,
    ResourceRequirements,
    TopologySpreadConstraint,
)
from pykarpenter.api.workloads import ReplicaSet, ReplicaSpec, Service, ServiceSpec
from pykarpenter.core.buffers import buffer_replicas, virtual_pods
from pykarpenter.core.overlays import apply_overlays
from pykarpenter.core.packing import pack
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.reasons import Why
from pykarpenter.core.snapshot import SelectorObjects
from tests.core.packing.support import allowed, on_nodes, per_claim, plan_of, zones
from tests.support.builders import (
    Affinity,
    bound_pod,
    daemon_owner,
    expression,
    make_daemon_set,
    make_node,
    make_offering,
    make_pod,
    make_pods,
    make_pool,
    make_snapshot,
    make_type,
    required_terms,
    spread,
    tolerate,
)

WEB = {"app": "web"}


@pytest.mark.promise("SCH-2.1")
def test_only_pods_that_need_a_machine_are_tried() -> None:
    """Preempting pods, daemons and mirror pods have a place or get one otherwise."""
    preempting = make_pod("preempting")
    preempting = msgspec.structs.replace(
        preempting, status=msgspec.structs.replace(preempting.status, nominated_node_name="n")
    )
    mirror = make_pod("mirror", owner=OwnerReference(api_version="v1", kind="Node", name="n"))
    plan = plan_of([preempting, make_pod("daemon", owner=daemon_owner()), mirror])
    assert (plan.claims, plan.unschedulable, plan.ignored) == ((), {}, {})


@pytest.mark.promise("SCH-2.2")
def test_pods_that_opt_out_are_left_alone() -> None:
    """A pod that requires no NodePool is none of our business."""
    plan = plan_of([make_pod(affinity=required_terms([expression(labels.NODEPOOL, "DoesNotExist")]))])
    assert plan.ignored["default/pod"].why is Why.OPTED_OUT


def by_fields() -> Affinity:
    term = NodeSelectorTerm(match_fields=[expression("metadata.name", "In", "n")])
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=[term])))


@pytest.mark.promise("SCH-2.3")
@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"affinity": by_fields()}, "matchFields"),
        ({"affinity": required_terms([expression("a", "Near", "x")])}, "operator"),
        ({"affinity": required_terms([expression("a", "Gt", "1", "2")])}, "one non-negative integer"),
        ({"affinity": required_terms([expression("a", "In")])}, "without values"),
        ({"affinity": required_terms([expression(labels.CAPACITY_TYPE, "In", "cheap")])}, "on-demand"),
        ({"node_selector": {labels.HOSTNAME: "n"}}, "restricted"),
        ({"node_selector": {"karpenter.sh/mine": "n"}}, "restricted"),
        ({"node_selector": {"not a key": "n"}}, "not a valid label name"),
        ({"node_selector": {"a": "not a value"}}, "not a valid label value"),
    ],
)
def test_b23_pods_that_cannot_be_understood_are_refused_alone(fields: dict[str, Any], part: str) -> None:
    """The batch goes on without them."""
    plan = plan_of([make_pod("odd", **fields), make_pod("fine")])
    assert part in plan.ignored["default/odd"].message
    assert per_claim(plan) == [1]


@pytest.mark.promise("SCH-17.1")
def test_pods_with_resource_claims_are_refused_while_devices_are_ignored() -> None:
    """The default of Karpenter: no machine is bought for devices it does not understand."""
    plan = plan_of([make_pod(resource_claims=[PodResourceClaim(name="gpu", resource_claim_name="c")])])
    assert plan.unschedulable["default/pod"].why is Why.DRA_UNSUPPORTED


def container(cpu: str, restart_policy: str | None = None, name: str = "c") -> Container:
    resources = ResourceRequirements(requests={"cpu": cpu})
    return Container(name=name, resources=resources, restart_policy=restart_policy)


@pytest.mark.promise("SCH-7.1")
def test_requests_are_the_larger_of_running_and_starting() -> None:
    """Sidecars run on; init steps come one after the other."""
    pod = make_pod(
        containers=[container("1")],
        init_containers=[container("1", "Always", "side"), container("3", None, "init")],
        overhead={"cpu": "100m"},
    )
    assert plan_of([pod], types=[make_type(cpu="8")]).claims[0].requests["cpu"] == 4100


@pytest.mark.promise("SCH-7.2")
def test_a_node_that_is_short_of_anything_takes_nothing() -> None:
    """Overcommitted memory keeps away even pods that ask for none."""
    node = make_node(memory="1Gi", pods=[bound_pod("fat", "node-1", cpu="100m", memory="2Gi")])
    assert on_nodes(plan_of([make_pod(requests={"cpu": "100m"})], nodes=[node])) == {}


@pytest.mark.promise("SCH-7.3")
def test_an_offering_with_its_own_capacity_is_sized_by_it() -> None:
    """Overrides replace what the type says for that offering alone."""
    small = make_offering("zone-a", "spot", 0.1, capacity_override={"cpu": 1000})
    item = make_type(offerings=[small, make_offering("zone-a", "on-demand", 1.0)])
    plan = plan_of(make_pods(2), types=[item])
    assert plan.claims[0].choice.capacity_type == "on-demand"
    assert allowed(plan, 0, labels.CAPACITY_TYPE) == ["on-demand"]


@pytest.mark.promise("SCH-13.2")
def test_at_most_600_types_are_listed_and_the_cheapest_are_kept() -> None:
    """More than that no provider can use."""
    types = [make_type(f"t{i:04d}", price=1 + i / 1000, zones=["zone-a"]) for i in range(610)]
    claim = plan_of([make_pod()], types=types).claims[0]
    assert len(claim.instance_types) == 600
    assert claim.instance_types[0] == "t0000"
    assert "t0609" not in claim.instance_types


@pytest.mark.promise("SCH-13.3")
def test_claims_name_types_and_capacity_types_and_nothing_that_only_deciding_needs() -> None:
    """What is only simulated must not reach the cluster."""
    claim = plan_of([make_pod()]).claims[0]
    keys = {r.key for r in claim.requirements}
    assert not keys & {labels.REGISTERED, labels.INITIALIZED, labels.HOSTNAME}
    assert {labels.INSTANCE_TYPE, labels.CAPACITY_TYPE, labels.NODEPOOL} <= keys


@pytest.mark.promise("SCH-13.4")
def test_custom_keys_become_labels_with_a_permitted_value() -> None:
    """Pods that select on them must find them on the node."""
    pool = make_pool(
        requirements=[
            expression("team", "In", "b", "a"),
            expression("size", "Gt", "5"),
            expression("x", "DoesNotExist"),
        ],
        labels={"own": "yes"},
    )
    found = plan_of([make_pod()], pools=[pool]).claims[0].labels
    assert found["team"] == "a"
    assert int(found["size"]) > 5
    assert found["own"] == "yes"
    assert found[labels.NODEPOOL] == "default"
    assert "x" not in found


@pytest.mark.promise("SCH-13.5")
def test_the_most_a_claim_can_become_is_told_for_the_ledger() -> None:
    """Limits are reserved for the largest type that may be launched."""
    types = [make_type("small", cpu="4"), make_type("large", cpu="64", price=9)]
    assert plan_of([make_pod()], types=types).claims[0].max_capacity["cpu"] == 64000


def overlay(name: str, weight: int = 0, **spec: Any) -> NodeOverlay:
    wanted = spec.pop("requirements", [expression(labels.INSTANCE_TYPE, "Exists")])
    return NodeOverlay(metadata=ObjectMeta(name=name), spec=NodeOverlaySpec(requirements=wanted, weight=weight, **spec))


@pytest.mark.promise("SCH-14.1")
def test_overlays_change_prices_by_weight_and_mark_the_claim() -> None:
    """The heaviest overlay wins for each offering; the claim says that a price is not the provider's."""
    pool, types = make_pool(), (make_type("a", price=1.0), make_type("b", price=2.0))
    only_b = [expression(labels.INSTANCE_TYPE, "In", "b")]
    overlays = [overlay("half", 1, price_adjustment="-50%"), overlay("gift", 9, price="0.01", requirements=only_b)]
    result = apply_overlays(pool, types, overlays, PackingSettings().label_rules)
    assert {o.price for o in result.types[0].offerings} == {0.5, 0.35}
    assert {o.price for o in result.types[1].offerings} == {0.01}
    claim = plan_of([make_pod()], pools=[pool], types={"default": result.types}).claims[0]
    assert claim.choice.instance_type == "b"
    assert claim.annotations[labels.PRICE_OVERLAY_APPLIED] == "true"


@pytest.mark.promise("SCH-14.2")
def test_overlays_of_equal_weight_on_the_same_thing_conflict() -> None:
    """The later one is skipped as a whole."""
    overlays = [overlay("b", price="1"), overlay("a", price="2", capacity={"example.com/fpga": "1"})]
    result = apply_overlays(make_pool(), (make_type(),), overlays, PackingSettings().label_rules)
    assert result.rejected["a"][0] == "Conflict"
    assert "example.com/fpga" not in result.types[0].capacity


@pytest.mark.promise("SCH-14.3")
def test_overlaid_capacity_serves_pods() -> None:
    """A resource that the provider does not know can be declared."""
    overlays = [overlay("fpga", capacity={"example.com/fpga": "2"})]
    result = apply_overlays(make_pool(), (make_type(),), overlays, PackingSettings().label_rules)
    pod = make_pod(requests={"example.com/fpga": "1"})
    claim = plan_of([pod], types={"default": result.types}).claims[0]
    assert claim.annotations[labels.CAPACITY_OVERLAY_APPLIED] == "true"
    assert plan_of([pod]).unschedulable


@pytest.mark.promise("SCH-20.14")
def test_an_overlaid_offering_keeps_its_own_capacity() -> None:
    """A price does not change a machine's size."""
    item = make_type(offerings=[make_offering("zone-a", price=1.0, capacity_override={"cpu": 1000})])
    result = apply_overlays(make_pool(), (item,), [overlay("p", price="0.5")], PackingSettings().label_rules)
    assert result.types[0].offerings[0].capacity_override == {"cpu": 1000}


DEFAULTS = PackingSettings(default_spread=(TopologySpreadConstraint(max_skew=1, topology_key=labels.ZONE),))


def owned(count: int, **fields: Any) -> list[Any]:
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="rs", controller=True)
    return make_pods(count, labels=WEB, owner=owner, **fields)


def web_selector() -> SelectorObjects:
    selector = LabelSelector(match_labels=WEB)
    item = ReplicaSet(metadata=ObjectMeta(name="web", namespace="default"), spec=ReplicaSpec(selector=selector))
    return SelectorObjects(replica_sets={"default/web": item})


@pytest.mark.promise("SCH-15.1")
def test_default_spread_follows_the_owners_selector() -> None:
    """Four pods of one ReplicaSet level three zones."""
    plan = plan_of(owned(4), DEFAULTS, selectors=web_selector())
    assert sorted(list(zones(plan).values()).count(z) for z in set(zones(plan).values())) == [1, 1, 2]


@pytest.mark.promise("SCH-15.2")
def test_own_constraints_win_and_ownerless_pods_get_none() -> None:
    """One constraint of its own is enough to opt out."""
    own = [spread(labels.HOSTNAME, WEB, skew=4)]
    plan = plan_of(owned(3, topology_spread_constraints=own), DEFAULTS, selectors=web_selector())
    assert per_claim(plan) == [3]
    assert per_claim(plan_of(make_pods(3, labels=WEB), DEFAULTS, selectors=web_selector())) == [3]


@pytest.mark.promise("SCH-15.3")
def test_services_select_too() -> None:
    """A bare pod behind a Service is spread with its peers."""
    service = Service(metadata=ObjectMeta(name="s", namespace="default"), spec=ServiceSpec(selector=WEB))
    plan = plan_of(make_pods(3, labels=WEB), DEFAULTS, selectors=SelectorObjects(services=(service,)))
    assert len(set(zones(plan).values())) == 3


@pytest.mark.promise("SCH-16.1")
def test_static_pools_launch_nothing_but_their_nodes_are_used() -> None:
    """Fixed fleets are capacity like any other."""
    pools = [make_pool("fixed", replicas=2)]
    assert plan_of([make_pod()], pools=pools).unschedulable
    node = make_node(pool="fixed")
    assert on_nodes(plan_of([make_pod()], pools=pools, nodes=[node])) == {"node-1": ["default/pod"]}


@pytest.mark.promise("SCH-16.2", "API-1.6.15")
def test_buffers_stand_for_virtual_pods_of_their_template() -> None:
    """The larger of replicas and percentage, capped by limits; nothing of the template's own volumes."""
    template = PodTemplateSpec(metadata=ObjectMeta(labels=WEB), spec=make_pod().spec)
    meta = ObjectMeta(name="spare", namespace="default", uid="u")

    def replicas(current: int | None = None, **spec: Any) -> int:
        return buffer_replicas(CapacityBuffer(metadata=meta, spec=CapacityBufferSpec(**spec)), template, current)

    assert replicas(replicas=3, percentage=50, current=10) == 5
    assert replicas(percentage=1, current=3) == 1
    assert replicas(replicas=9, limits={"cpu": "4"}) == 4
    assert replicas(limits={"cpu": "2"}) == 2
    assert replicas(limits={"cpu": "-2"}) == 0
    # Nobody has memory for two thousand million pods that do not exist.
    assert replicas(limits={"cpu": "1e30"}) == replicas(replicas=2**31 - 1) == 10_000
    pods = virtual_pods(CapacityBuffer(metadata=meta), template, 2)
    assert [(p.name, p.uid, p.metadata.labels) for p in pods] == [
        ("capacity-buffer-spare-1", "u-1", WEB),
        ("capacity-buffer-spare-2", "u-2", WEB),
    ]
    assert {key.rpartition("/")[2]: value for key, value in pods[0].metadata.annotations.items()} == {
        "capacity-buffer-fake-pod": "true",
        "capacity-buffer-name": "spare",
        "capacity-buffer-namespace": "default",
    }
    assert pods[0].spec.priority == -(2**31)
    assert [(c.type, c.status, c.reason) for c in pods[0].status.conditions] == [
        ("PodScheduled", "False", "Unschedulable")
    ]
    assert per_claim(plan_of([], buffer_pods=pods)) == [2]


@pytest.mark.promise("SCH-18.4")
def test_every_class_is_tried_and_a_deadline_names_the_rest() -> None:
    """Hopeless pods in front do not starve those behind; time running out is said."""
    hopeless = make_pods(50, "gpu", requests={"cpu": "9", "nvidia.com/gpu": "1"})
    plan = plan_of([*hopeless, make_pod("light", cpu="100m")])
    assert [claim.pods for claim in plan.claims] == [("default/light",)]
    calls = iter([False, True, True])
    partial = pack(make_snapshot([make_pod("a", cpu="2"), make_pod("b")]), PackingSettings(), lambda: next(calls, True))
    assert [claim.pods for claim in partial.claims] == [("default/a",)]
    assert partial.unschedulable["default/b"].why is Why.DEADLINE


@pytest.mark.promise("SCH-8.1")
def test_daemons_only_take_room_on_types_they_run_on() -> None:
    """A daemon for arm machines costs nothing elsewhere; one that does not tolerate the pool neither."""
    arm = make_daemon_set(cpu="2", node_selector={labels.ARCH: "arm64"})
    assert per_claim(plan_of(make_pods(4), daemon_sets=(arm,))) == [4]
    tainted = [make_pool(taints=[Taint(key="t", effect="NoSchedule")])]
    everywhere = make_daemon_set(cpu="2")
    pods = make_pods(4, tolerations=[tolerate("t")])
    assert per_claim(plan_of(pods, pools=tainted, daemon_sets=(everywhere,))) == [4]


def test_b22_the_nearest_type_and_its_shortfall_are_named() -> None:
    """The user learns how far off the request is."""
    tainted = [make_pool(f"z{number}", taints=[Taint(key="t", effect="NoSchedule")]) for number in range(9)]
    pools = [*tainted, make_pool("open")]
    refusal = plan_of([make_pod(cpu="6")], pools=pools).unschedulable["default/pod"]
    # The pool that came closest leads, since events are cut.
    assert refusal.pools[0].pool == "open"
    assert refusal.pools[0].nearest == "small lacks 2 cpu"
    assert dict(refusal.pools[0].removed)["resources"] == 1


def test_pools_that_the_pod_rules_out_itself_do_not_hide_the_one_it_wants() -> None:
    """Events are cut at 1024 characters; twenty pools of other teams would fill them."""
    pools = [make_pool(f"team-{number:02}") for number in range(20)]
    pools.append(make_pool("z-mine", taints=[Taint(key="t", effect="NoSchedule")]))
    refusal = plan_of([make_pod(node_selector={labels.NODEPOOL: "z-mine"})], pools=pools).unschedulable["default/pod"]
    assert refusal.text() == (
        'nodepool "z-mine": did not tolerate taint t:NoSchedule; 20 other nodepools are not what the pod asks for'
    )
    assert [pool.why for pool in refusal.pools] == [Why.TAINT, *[Why.OTHER_POOL] * 20]


def test_a_pool_that_does_not_exist_is_told_with_those_that_do() -> None:
    """Most likely it is a typing error."""
    pools = [make_pool(f"team-{number}") for number in range(7)]
    refusal = plan_of([make_pod(node_selector={labels.NODEPOOL: "gone"})], pools=pools).unschedulable["default/pod"]
    assert refusal.text() == (
        "it needs karpenter.sh/nodepool In [gone], but the nodepools are "
        "team-6, team-5, team-4, team-3, team-2 and 2 more"
    )


def test_reasons_count_what_each_step_removed() -> None:
    """Requirements first, then offerings, then resources."""
    types = [make_type("arm", arch="arm64"), make_type("a", cpu="2"), make_type("b", cpu="3")]
    pod = make_pod(cpu="4", node_selector={labels.ARCH: "amd64"})
    removed = dict(plan_of([pod], types=types).unschedulable["default/pod"].pools[0].removed)
    assert (removed["requirements"], removed["resources"]) == (1, 2)


def test_label_rules_of_a_provider_make_keys_known() -> None:
    """What the provider declares well-known needs no declaration in pools."""
    rules = LabelRules(well_known=labels.WELL_KNOWN | {"cloud/gen"})
    item = make_type(extra_labels={"cloud/gen": ["7"]})
    pod = make_pod(node_selector={"cloud/gen": "7"})
    assert len(plan_of([pod], PackingSettings(label_rules=rules), types=[item]).claims) == 1
