"""Host ports and volumes: where they force a pod, and how many fit on a machine."""

from __future__ import annotations

from typing import Any

import pytest

from pykarpenter.api import labels
from pykarpenter.api.meta import ObjectMeta
from pykarpenter.api.nodes import CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources
from pykarpenter.api.pods import (
    NodeSelector,
    NodeSelectorTerm,
    PersistentVolumeClaimVolumeSource,
    Volume,
)
from pykarpenter.api.storage import (
    CSIPersistentVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    StorageClass,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
    VolumeNodeAffinity,
    VolumePathSource,
)
from pykarpenter.core.reasons import Why
from pykarpenter.core.snapshot import VolumeObjects
from tests.core.packing.support import on_nodes, per_claim, plan_of
from tests.support.builders import (
    bound_pod,
    expression,
    make_daemon_set,
    make_node,
    make_pod,
    make_pods,
    make_pool,
    make_type,
)

DRIVER = "csi.test"


def claim(name: str, storage_class: str = "late", volume: str = "", **status: Any) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=name, namespace="default", annotations={labels.BIND_COMPLETED: "yes"} if volume else {}
        ),
        spec=PersistentVolumeClaimSpec(storage_class_name=storage_class, volume_name=volume),
        status=PersistentVolumeClaimStatus(**status),
    )


def volume(name: str, *zones: str, **spec: Any) -> PersistentVolume:
    terms = [NodeSelectorTerm(match_expressions=[expression(labels.ZONE, "In", zone)]) for zone in zones]
    fields: dict[str, Any] = {"csi": CSIPersistentVolumeSource(driver=DRIVER), **spec}
    if zones:
        fields["node_affinity"] = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms))
    return PersistentVolume(metadata=ObjectMeta(name=name), spec=PersistentVolumeSpec(**fields))


def late(*zones: str) -> StorageClass:
    terms = [
        TopologySelectorTerm(match_label_expressions=[TopologySelectorLabelRequirement(key=labels.ZONE, values=[z])])
        for z in zones
    ]
    return StorageClass(
        metadata=ObjectMeta(name="late"),
        provisioner=DRIVER,
        volume_binding_mode="WaitForFirstConsumer",
        allowed_topologies=terms,
    )


def objects(*items: Any, csi_nodes: tuple[CSINode, ...] = ()) -> VolumeObjects:
    return VolumeObjects(
        claims={i.key: i for i in items if isinstance(i, PersistentVolumeClaim)},
        volumes={i.name: i for i in items if isinstance(i, PersistentVolume)},
        classes={i.name: i for i in items if isinstance(i, StorageClass)},
        csi_nodes={node.name: node for node in csi_nodes},
    )


def mounting(name: str, *claims: str, **fields: Any) -> Any:
    volumes = [Volume(name=c, persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=c)) for c in claims]
    return make_pod(name, cpu="10m", memory="1Mi", volumes=volumes, **fields)


@pytest.mark.promise("SCH-9.1")
def test_pods_with_the_same_host_port_never_share_a_machine() -> None:
    """Only one can bind the port."""
    assert per_claim(plan_of(make_pods(3, ports=[8080]))) == [1, 1, 1]
    node = make_node(pods=[bound_pod("holder", "node-1", ports=[8080])])
    assert on_nodes(plan_of([make_pod(ports=[8080])], nodes=[node])) == {}
    assert on_nodes(plan_of([make_pod(ports=[8081])], nodes=[node])) == {"node-1": ["default/pod"]}


@pytest.mark.promise("SCH-9.1")
def test_a_daemons_host_port_rules_out_its_machines() -> None:
    """Every new machine has the daemon, so nobody else gets the port."""
    plan = plan_of([make_pod(ports=[9100])], daemon_sets=(make_daemon_set(ports=[9100]),))
    assert plan.unschedulable["default/pod"].pools[0].why is Why.HOST_PORT


@pytest.mark.promise("SCH-9.2")
def test_a_bound_volume_decides_the_zone() -> None:
    """The pod must go where its data is."""
    volumes = objects(claim("data", volume="pv"), volume("pv", "zone-b"))
    assert plan_of([mounting("pod", "data")], volumes=volumes).claims[0].choice.zone == "zone-b"


@pytest.mark.promise("SCH-9.2")
def test_volume_alternatives_are_tried_in_order() -> None:
    """A volume of several zones takes the first that works."""
    volumes = objects(claim("data", volume="pv"), volume("pv", "moon", "zone-c"))
    assert plan_of([mounting("pod", "data")], volumes=volumes).claims[0].choice.zone == "zone-c"
    both = objects(
        claim("a", volume="p1"), volume("p1", "zone-a", "zone-b"), claim("b", volume="p2"), volume("p2", "zone-b")
    )
    assert plan_of([mounting("pod", "a", "b")], volumes=both).claims[0].choice.zone == "zone-b"


@pytest.mark.promise("SCH-9.2")
def test_unbound_volumes_follow_the_storage_classs_topologies() -> None:
    """The volume will be made where the class allows it."""
    volumes = objects(claim("data"), late("zone-c"))
    assert plan_of([mounting("pod", "data")], volumes=volumes).claims[0].choice.zone == "zone-c"


@pytest.mark.promise("SCH-9.2")
def test_local_volumes_do_not_pin_a_host_that_is_gone() -> None:
    """A hostname-only term of a local volume is no constraint."""
    here = NodeSelector(
        node_selector_terms=[NodeSelectorTerm(match_expressions=[expression(labels.HOSTNAME, "In", "gone")])]
    )
    local = volume("pv", local=VolumePathSource(path="/d"), node_affinity=VolumeNodeAffinity(required=here), csi=None)
    assert len(plan_of([mounting("pod", "data")], volumes=objects(claim("data", volume="pv"), local)).claims) == 1


def test_b26_unusable_claims_are_named() -> None:
    """The event tells which claim and why; other pods go on."""
    lost = claim("lost", phase="Lost")
    orphan = claim("orphan", storage_class="nowhere")
    plan = plan_of(
        [mounting("a", "absent"), mounting("b", "lost"), mounting("c", "orphan"), make_pod("fine")],
        volumes=objects(lost, orphan),
    )
    assert {key: refusal.why for key, refusal in plan.ignored.items()} == {
        "default/a": Why.VOLUME_UNUSABLE,
        "default/b": Why.VOLUME_UNUSABLE,
        "default/c": Why.VOLUME_UNUSABLE,
    }
    assert '"absent" not found' in plan.ignored["default/a"].message
    assert per_claim(plan) == [1]


def limited(count: int) -> list[Any]:
    return [make_type("disky", cpu="64", memory="256Gi", volume_attachment_limits={DRIVER: count})]


@pytest.mark.promise("SCH-9.4")
def test_new_machines_hold_as_many_volumes_as_their_type_allows() -> None:
    """Ten attachments per machine: 100 pods with a volume each need ten."""
    names = [f"d{i}" for i in range(100)]
    volumes = objects(late(), *(claim(name) for name in names))
    plan = plan_of([mounting(f"p{i}", name) for i, name in enumerate(names)], types=limited(10), volumes=volumes)
    assert per_claim(plan) == [10] * 10


@pytest.mark.promise("SCH-9.4")
def test_a_shared_volume_counts_once() -> None:
    """A hundred pods on one claim need one attachment."""
    plan = plan_of(
        [mounting(f"p{i}", "shared") for i in range(100)], types=limited(1), volumes=objects(late(), claim("shared"))
    )
    assert per_claim(plan) == [100]


@pytest.mark.promise("SCH-9.4")
def test_more_volumes_than_any_type_can_attach() -> None:
    """The reason names driver, count and the largest limit."""
    names = [f"d{i}" for i in range(11)]
    plan = plan_of([mounting("pod", *names)], types=limited(10), volumes=objects(late(), *map(claim, names)))
    assert "would exceed volume limit for all instance type options" in plan.unschedulable["default/pod"].text()
    assert "largest limit 10" in plan.unschedulable["default/pod"].text()


@pytest.mark.promise("SCH-9.3")
def test_existing_nodes_keep_their_published_limits() -> None:
    """What the CSI driver publishes wins; without a count there is no limit; unpublished takes the type's."""
    volumes = [late(), claim("new"), claim("old")]
    node = make_node(
        pods=[mounting("old", "old", node_name="node-1")], labels={labels.INSTANCE_TYPE: "disky"}, pool="default"
    )

    def lands(count: int | None, published: bool = True) -> bool:
        drivers = [CSINodeDriver(name=DRIVER, allocatable=VolumeNodeResources(count=count))] if published else []
        csi = CSINode(metadata=ObjectMeta(name="node-1"), spec=CSINodeSpec(drivers=drivers))
        plan = plan_of(
            [mounting("pod", "new")], nodes=[node], types=limited(1), volumes=objects(*volumes, csi_nodes=(csi,))
        )
        return "node-1" in on_nodes(plan)

    assert not lands(1)
    assert lands(2)
    assert lands(None)
    assert not lands(None, published=False)


@pytest.mark.promise("SCH-9.2")
def test_the_order_of_machines_and_pools_goes_before_the_order_of_volume_alternatives() -> None:
    """A volume of two zones does not send its pod past a machine, nor past the pool of more weight."""
    volumes = objects(claim("data", volume="pv"), volume("pv", "zone-a", "zone-c"))
    nodes = [make_node("node-1", zone="zone-c"), make_node("node-2", zone="zone-a")]
    assert on_nodes(plan_of([mounting("pod", "data")], volumes=volumes, nodes=nodes)) == {"node-1": ["default/pod"]}
    heavy = make_pool("heavy", weight=50, requirements=[expression(labels.ZONE, "In", "zone-c")])
    plan = plan_of([mounting("pod", "data")], volumes=volumes, pools=[make_pool("light"), heavy])
    assert [(c.node_pool, c.choice.zone) for c in plan.claims] == [("heavy", "zone-c")]
