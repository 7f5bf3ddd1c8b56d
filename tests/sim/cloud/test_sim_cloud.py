"""The embedded cluster's cloud: machines apart from Nodes, and every way in which it can misbehave."""

from __future__ import annotations

import msgspec
import pytest

from pykarpenter.api import kinds
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.cloud.catalog import RESERVATION_ID
from pykarpenter.cloud.errors import CloudError, InsufficientCapacity, NodeClaimNotFound
from pykarpenter.sim.cloud.cloud import foreign_instance
from pykarpenter.sim.cloud.instances import TAG_CLUSTER
from pykarpenter.sim.cloud.market import Reservation
from pykarpenter.sim.cloud.misbehaviour import Denied, ReplyLost, Throttled
from tests.sim.worlds import in_cluster, settle

CLASS = {"apiVersion": "pykarpenter.sh/v1alpha1", "kind": "SimNodeClass", "metadata": {"name": "default"}, "spec": {}}


def claim(name: str = "pool-1", uid: str = "", types=("m6.large", "m6.xlarge"), **requirements: list[str]) -> NodeClaim:
    expressions = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": list(types)}]
    expressions += [{"key": key, "operator": "In", "values": values} for key, values in requirements.items()]
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": uid or f"uid-{name}", "labels": {"karpenter.sh/nodepool": "pool"}},
            "spec": {
                "nodeClassRef": {"group": "pykarpenter.sh", "kind": "SimNodeClass", "name": "default"},
                "requirements": expressions,
                "resources": {"requests": {"cpu": "1"}},
            },
        },
        NodeClaim,
    )


def story(tell):
    async def main(cluster):
        await cluster.install([CLASS])
        return await tell(cluster)

    return in_cluster(main)


def launched(item: NodeClaim, view: NodeClaim) -> NodeClaim:
    return msgspec.structs.replace(item, status=view.status)


def test_launch_takes_the_cheapest_offering_and_its_node_comes_later():
    async def tell(cluster):
        view = await cluster.provider.create(claim())
        before = (await cluster.api.list_page(kinds.NODE)).items
        await settle(60)
        return view, before, (await cluster.api.list_page(kinds.NODE)).items

    view, before, after = story(tell)
    assert view.metadata.labels["karpenter.sh/capacity-type"] == "spot"
    assert before == []
    assert [n.spec.provider_id for n in after] == [view.status.provider_id]
    assert (
        after[0].metadata.labels["topology.kubernetes.io/zone"] == view.metadata.labels["topology.kubernetes.io/zone"]
    )


def test_s2_f3_a_lost_launch_reply_does_not_buy_twice():
    async def tell(cluster):
        cluster.cloud.faults.lose_launch_replies = 1
        with pytest.raises(ReplyLost):
            await cluster.provider.create(claim())
        view = await cluster.provider.create(claim())
        return view, cluster.cloud.live(), cluster.cloud.faults.fired

    view, live, fired = story(tell)
    assert [i.provider_id for i in live] == [view.status.provider_id]
    assert fired["lose_launch_replies"] == 1


def test_f8_shortage_falls_over_to_the_next_offering_and_names_all_when_none_is_left():
    async def tell(cluster):
        market = cluster.cloud.market
        cheapest = await cluster.provider.create(claim("first"))
        market.run_short(market.keys(family="m6.large", capacity_type="spot"))
        other = await cluster.provider.create(claim("second"))
        market.run_short(market.keys(family="m6."))
        with pytest.raises(InsufficientCapacity) as refusal:
            await cluster.provider.create(claim("third"))
        return cheapest, other, refusal.value

    cheapest, other, refusal = story(tell)
    assert cheapest.metadata.labels["node.kubernetes.io/instance-type"] == "m6.large"
    assert other.metadata.labels != cheapest.metadata.labels
    assert len(refusal.offerings) > 5


def test_s11_deletion_is_confirmed_only_when_the_machine_is_gone():
    async def tell(cluster):
        mine = launched(claim(), await cluster.provider.create(claim()))
        await cluster.provider.delete(mine)
        still = await cluster.provider.get(mine.status.provider_id)
        await settle(60)
        with pytest.raises(NodeClaimNotFound):
            await cluster.provider.delete(mine)
        with pytest.raises(NodeClaimNotFound):
            await cluster.provider.get(mine.status.provider_id)
        return still

    assert story(tell).metadata.name == "pool-1"


def test_f4_an_ignored_delete_leaves_the_machine_until_asked_again():
    async def tell(cluster):
        mine = launched(claim(), await cluster.provider.create(claim()))
        cluster.cloud.faults.ignore_deletes = 1
        await cluster.provider.delete(mine)
        await settle(60)
        first = len(cluster.cloud.live())
        await cluster.provider.delete(mine)
        await settle(60)
        return first, len(cluster.cloud.live())

    assert story(tell) == (1, 0)


def test_s3_f31_machines_of_others_are_neither_listed_nor_deleted():
    async def tell(cluster):
        view = await cluster.provider.create(claim())
        item = cluster.cloud.market.catalog.types[0]
        foreign = foreign_instance(item, item.offerings[0], {TAG_CLUSTER: "embedded"}, cluster.clock.now())
        cluster.cloud.add_foreign(foreign)
        target = msgspec.structs.replace(
            claim("x"), status=msgspec.structs.replace(view.status, provider_id=foreign.provider_id)
        )
        with pytest.raises(CloudError):
            await cluster.provider.delete(target)
        return [c.metadata.name for c in await cluster.provider.list_instances()], foreign.is_live

    assert story(tell) == (["pool-1"], True)


def test_f5_f6_f7_f17_throttles_lists_and_denials_fire_when_armed():
    async def tell(cluster):
        provider, faults = cluster.provider, cluster.cloud.faults
        claims = [launched(claim(f"c{i}"), await provider.create(claim(f"c{i}"))) for i in range(4)]
        await provider.delete(claims[0])
        await settle(60)
        faults.throttle = 1
        with pytest.raises(Throttled):
            await provider.list_instances()
        faults.short_lists = 1
        short = len(await provider.list_instances())
        faults.stale_lists = 1
        stale = len(await provider.list_instances())
        faults.denied["terminate"] = None
        with pytest.raises(Denied, match="not authorized to perform terminate"):
            await provider.delete(claims[1])
        return short, stale, len(await provider.list_instances())

    assert story(tell) == (1, 4, 3)


def test_f29_interrupted_spot_machine_goes_after_its_notice():
    async def tell(cluster):
        view = await cluster.provider.create(claim())
        await settle(60)
        cluster.cloud.interrupt(cluster.cloud.live()[0].id)
        announced = await cluster.provider.interruptions()
        await settle(60)
        during = len(cluster.cloud.live())
        await settle(90)
        return (
            view.status.provider_id,
            announced,
            during,
            len(cluster.cloud.live()),
            await cluster.provider.interruptions(),
        )

    provider_id, announced, during, after, left = story(tell)
    assert [i.provider_id for i in announced] == [provider_id]
    assert (during, after, left) == (1, 0, [])


def test_reservation_is_used_first_and_never_beyond_its_size():
    async def tell(cluster):
        cluster.cloud.market.reserve(Reservation("res-1", "m6.large", "demo-1a", 1))
        views = [await cluster.provider.create(claim(f"c{i}", types=["m6.large"])) for i in range(2)]
        offerings = {t.name: t for t in await cluster.provider.instance_types(NodePool())}["m6.large"].offerings
        return views, [o for o in offerings if o.reservation_id]

    views, reserved = story(tell)
    assert [v.metadata.labels["karpenter.sh/capacity-type"] for v in views] == ["reserved", "spot"]
    assert views[0].metadata.labels[RESERVATION_ID] == "res-1"
    assert [(o.reservation_capacity, o.launchable) for o in reserved] == [(0, False)]


def test_f9_a_machine_that_fails_to_boot_has_no_node():
    async def tell(cluster):
        cluster.cloud.faults.boot_failures = 1
        await cluster.provider.create(claim())
        await settle(600)
        return len(cluster.cloud.live()), (await cluster.api.list_page(kinds.NODE)).items

    assert story(tell) == (1, [])


def test_devices_can_appear_after_the_node():
    async def tell(cluster):
        cluster.cloud.faults.late_devices_s = 120.0
        await cluster.provider.create(claim(types=["g4.xlarge"]))
        await settle(60)
        early = (await cluster.api.list_page(kinds.NODE)).items[0].status.allocatable
        await settle(120)
        return early, (await cluster.api.list_page(kinds.NODE)).items[0].status.allocatable

    early, late = story(tell)
    assert "nvidia.com/gpu" not in early
    assert late["nvidia.com/gpu"] == "1"


def test_changed_image_is_drift():
    async def tell(cluster):
        mine = launched(claim(), await cluster.provider.create(claim()))
        before = await cluster.provider.is_drifted(mine)
        await cluster.api.patch(kinds.SIM_NODE_CLASS, "default", {"spec": {"image": "sim-2"}})
        return before, await cluster.provider.is_drifted(mine)

    assert story(tell) == ("", "ImageDrift")


def test_s15_same_seed_same_prices_and_same_machines():
    async def tell(cluster):
        cluster.cloud.market.price_period_s = 600.0
        await settle(1200)
        views = [await cluster.provider.create(claim(f"c{i}")) for i in range(3)]
        return [(v.status.provider_id, v.metadata.labels["node.kubernetes.io/instance-type"]) for v in views]

    assert story(tell) == story(tell)
