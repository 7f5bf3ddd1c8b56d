"""Simulated kubelets: nodes turn Ready and stay so, pods start, complete and stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from pykarpenter.api import kinds
from pykarpenter.api.devices import ResourceSliceSpec
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodes import Node
from pykarpenter.api.timestamps import parse_timestamp
from pykarpenter.cloud.catalog import parse_entries
from pykarpenter.core.lifecycle import drivers_without_pools
from pykarpenter.kube.contract import DeleteOptions
from pykarpenter.kube.errors import NotFound
from pykarpenter.providers.kwok.kubelet import KubeletOptions, Kubelets
from pykarpenter.providers.kwok.publish import DriverPublisher, resource_slices
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.api import StoreApi
from pykarpenter.sim.store import Store

FAKE = {"kwok.x-k8s.io/node": "fake"}


class Bench:
    def __init__(self, options: KubeletOptions | None) -> None:
        self.clock = running_clock()
        self.api = StoreApi(Store(self.clock))
        self.options = options
        self.published: list[str] = []
        self.start()

    def start(self) -> None:
        self.kubelets = Kubelets(self.api, self.clock, self.options, [self.publish])
        self.task = asyncio.create_task(self.kubelets.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def publish(self, node: Node) -> None:
        self.published.append(node.name)

    async def node(self, name: str = "n1", labels: dict[str, str] | None = None) -> None:
        await self.api.create(kinds.NODE, {"metadata": {"name": name, "labels": FAKE if labels is None else labels}})

    async def pod(
        self, name: str = "p", node: str = "n1", annotations: dict[str, str] | None = None, **spec: Any
    ) -> None:
        body = {
            "metadata": {"name": name, "annotations": annotations or {}, **spec.pop("metadata", {})},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}], **spec},
        }
        await self.api.create(kinds.POD, body, "default")

    async def phase(self, name: str = "p") -> str:
        try:
            return (await self.api.get(kinds.POD, name, "default")).status.phase
        except NotFound:
            return "gone"

    async def ready(self, name: str = "n1") -> str:
        return condition_status((await self.api.get(kinds.NODE, name)).status.conditions, "Ready")


def bench(tell: Callable[[Bench], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        world = Bench(KubeletOptions(**options) if options else None)
        try:
            await tell(world)
        finally:
            await world.stop()

    run_virtual(main())


def test_fake_nodes_turn_ready_and_others_are_left_alone() -> None:
    """A real node's kubelet is its own."""

    async def tell(world: Bench) -> None:
        await world.node()
        await world.node("real", {})
        await asyncio.sleep(2)
        assert await world.ready() == "True"
        assert await world.ready("real") == "Unknown"
        node = await world.api.get(kinds.NODE, "n1")
        assert node.status.phase == "Running"
        assert node.status.node_info.boot_id
        assert world.published == ["n1"]

    bench(tell)


def test_leases_are_renewed_every_ten_seconds() -> None:
    """Kubernetes calls a node unreachable when its lease grows old."""

    async def tell(world: Bench) -> None:
        await world.node()
        for _ in range(6):
            await asyncio.sleep(10)
            lease = await world.api.get(kinds.LEASE, "n1", "kube-node-lease")
            assert lease.spec.renew_time is not None
            assert world.clock.now() - parse_timestamp(lease.spec.renew_time) <= 10
            assert lease.spec.holder_identity == "n1"

    bench(tell)


def test_heartbeats_do_not_answer_themselves() -> None:
    """A status write comes back as a change; it must not cause the next write."""

    async def tell(world: Bench) -> None:
        await world.node()
        await asyncio.sleep(5)
        before = world.api.store.rv
        await asyncio.sleep(3000)
        assert world.api.store.rv - before <= 12

    bench(tell, lease_interval_s=None)


def test_injected_faults_survive_heartbeats() -> None:
    """Repair is tested by conditions that nobody else writes."""

    async def tell(world: Bench) -> None:
        await world.node()
        await asyncio.sleep(2)
        node = await world.api.get(kinds.NODE, "n1")
        kept = [{"type": c.type, "status": c.status} for c in node.status.conditions]
        fault = {
            "type": "KWOKUnhealthy",
            "status": "True",
            "reason": "Test",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await world.api.patch(kinds.NODE, "n1", {"status": {"conditions": [*kept, fault]}}, subresource="status")
        await asyncio.sleep(1000)
        node = await world.api.get(kinds.NODE, "n1")
        found = next(c for c in node.status.conditions if c.type == "KWOKUnhealthy")
        assert (found.status, found.last_transition_time) == ("True", "2026-01-01T00:00:00Z")

    bench(tell)


def test_a_node_marked_unhealthy_keeps_the_readiness_it_was_given() -> None:
    """KWOK's stage label hands the Ready condition to the test."""

    async def tell(world: Bench) -> None:
        await world.node()
        await asyncio.sleep(2)
        not_ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        await world.api.patch(kinds.NODE, "n1", not_ready, subresource="status")
        await asyncio.sleep(2)
        assert await world.ready() == "True"
        await world.api.patch(kinds.NODE, "n1", {"metadata": {"labels": {"kwok.x-k8s.io/stage": "unhealthy"}}})
        await world.api.patch(kinds.NODE, "n1", not_ready, subresource="status")
        await asyncio.sleep(1000)
        assert await world.ready() == "False"

    bench(tell)


def test_bound_pods_run_and_keep_the_schedulers_conditions() -> None:
    """A pod is Ready a moment after it was bound."""

    async def tell(world: Bench) -> None:
        await world.node()
        await world.pod()
        await world.pod("elsewhere", "other")
        await asyncio.sleep(3)
        pod = await world.api.get(kinds.POD, "p", "default")
        assert pod.status.phase == "Running"
        assert condition_status(pod.status.conditions, "Ready") == "True"
        assert pod.status.start_time is not None
        assert await world.phase("elsewhere") == "Pending"

    bench(tell)


@pytest.mark.parametrize(
    ("annotations", "grace", "lasts"),
    [({}, 30, 2), ({"pykarpenter.sh/stops-after": "20s"}, 30, 20), ({"pykarpenter.sh/stops-after": "2h"}, 30, 30)],
)
def test_deleted_pods_stop_in_their_time_and_never_past_their_grace(
    annotations: dict[str, str], grace: int, lasts: float
) -> None:
    """A drain waits for programs that take time to stop."""

    async def tell(world: Bench) -> None:
        await world.node()
        await world.pod(annotations=annotations, terminationGracePeriodSeconds=grace)
        await asyncio.sleep(5)
        await world.api.delete(kinds.POD, "p", "default")
        await asyncio.sleep(max(0.0, lasts - 3))
        if lasts > 3:
            assert await world.phase() == "Running"
        await asyncio.sleep(6)
        assert await world.phase() == "gone"

    bench(tell)


def test_jobs_complete_by_annotation_or_when_asked() -> None:
    """Batch work ends by itself."""

    async def tell(world: Bench) -> None:
        await world.node()
        await world.pod("timed", annotations={"pykarpenter.sh/completes-after": "60s"})
        await world.pod("asked")
        await asyncio.sleep(50)
        assert await world.phase("timed") == await world.phase("asked") == "Running"
        await asyncio.sleep(15)
        assert await world.phase("timed") == "Succeeded"
        assert await world.phase("asked") == "Running"
        await world.kubelets.complete("default", "asked")
        assert await world.phase("asked") == "Succeeded"

    bench(tell)


def test_a_tracked_pod_ends_before_it_is_deleted() -> None:
    """Job tracking takes its finalizer off only a pod whose end it has seen."""

    async def tell(world: Bench) -> None:
        await world.node()
        await world.pod(metadata={"finalizers": ["batch.kubernetes.io/job-tracking"]})
        await asyncio.sleep(5)
        await world.api.delete(kinds.POD, "p", "default")
        await asyncio.sleep(10)
        assert await world.phase() == "Failed"
        await world.api.patch(kinds.POD, "p", {"metadata": {"finalizers": None}}, "default")
        await asyncio.sleep(1)
        assert await world.phase() == "gone"

    bench(tell)


def test_a_dead_node_neither_starts_nor_stops_pods() -> None:
    """A lost machine answers nothing; only the control plane can write its pods off."""

    async def tell(world: Bench) -> None:
        await world.node(labels={**FAKE, "kwok.x-k8s.io/stage": "unhealthy"})
        dead = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        await world.api.patch(kinds.NODE, "n1", dead, subresource="status")
        await world.pod()
        await asyncio.sleep(60)
        assert await world.phase() == "Pending"
        await world.api.patch(kinds.POD, "p", {"status": {"phase": "Running"}}, "default", subresource="status")
        await world.api.delete(kinds.POD, "p", "default", DeleteOptions(grace_period_s=5))
        await asyncio.sleep(60)
        assert await world.phase() == "Running"

    bench(tell)


def test_a_new_process_adopts_what_it_finds() -> None:
    """Kubelets keep nothing in memory that the cluster does not know."""

    async def tell(world: Bench) -> None:
        await world.node()
        await world.pod()
        await asyncio.sleep(3)
        await world.stop()
        await world.pod("second")
        await world.api.delete(kinds.POD, "p", "default")
        await asyncio.sleep(60)
        assert await world.phase("second") == "Pending"
        world.start()
        await asyncio.sleep(5)
        assert await world.phase("second") == "Running"
        assert await world.phase("p") == "gone"
        assert await world.ready() == "True"

    bench(tell)


def test_drivers_publish_what_the_catalogue_says_of_the_machine() -> None:
    """Volume limits and devices come from the node, not from the plan."""
    entry = {
        "name": "gpu-1",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "4", "memory": "8Gi"},
        "volumeAttachmentLimits": {"csi.example.com": 25},
        "dynamicResources": [{"driver": "gpu.example.com", "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}]}],
        "offerings": [
            {
                "Price": 1.0,
                "Requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]},
                ],
            }
        ],
    }

    async def tell(world: Bench) -> None:
        publisher = DriverPublisher(world.api, parse_entries([entry], "test"))
        await world.node(labels={**FAKE, "node.kubernetes.io/instance-type": "gpu-1"})
        node = await world.api.get(kinds.NODE, "n1")
        for _ in range(2):
            await publisher(node)
        csi = await world.api.get(kinds.CSI_NODE, "n1")
        assert [(d.name, d.allocatable and d.allocatable.count) for d in csi.spec.drivers] == [("csi.example.com", 25)]
        (slice_,) = (await world.api.list_page(kinds.RESOURCE_SLICE)).items
        assert slice_.spec.driver == "gpu.example.com"
        assert (slice_.spec.node_name, slice_.spec.pool.name, slice_.spec.pool.resource_slice_count) == ("n1", "n1", 1)
        assert [device.name for device in slice_.spec.devices] == ["gpu-0", "gpu-1"]
        assert drivers_without_pools(["gpu.example.com", "net.example.com"], [slice_], "n1") == ["net.example.com"]
        shared = msgspec.structs.replace(
            slice_, spec=msgspec.structs.replace(slice_.spec, driver="net.example.com", node_name=None, all_nodes=True)
        )
        assert drivers_without_pools(["net.example.com"], [shared], "n1") == [], "a pool of the cluster will do"
        await world.api.delete(kinds.NODE, "n1")
        await asyncio.sleep(1)
        assert (await world.api.list_page(kinds.CSI_NODE)).items == []
        assert (await world.api.list_page(kinds.RESOURCE_SLICE)).items == []

    bench(tell)


def test_templates_of_a_driver_with_the_same_pool_name_make_one_pool_of_the_node() -> None:
    """Counters come in a slice of their own; where a template would have its devices does not matter."""
    specs = [
        {"driver": "d", "pool": {"name": "a"}, "sharedCounters": [{"name": "s", "counters": {"m": {"value": "1"}}}]},
        {"driver": "d", "pool": {"name": "a"}, "allNodes": True, "devices": [{"name": "x"}]},
        {"driver": "d", "pool": {"name": "b"}, "devices": [{"name": "x"}]},
    ]
    templates = tuple(msgspec.convert(specs, list[ResourceSliceSpec]))
    node = msgspec.convert({"metadata": {"name": "n1", "uid": "u"}}, Node)
    bodies = [body["spec"] for body in resource_slices(node, templates)]
    pools = [(body["pool"]["name"], body["pool"]["resourceSliceCount"]) for body in bodies]
    assert pools == [("n1/a", 2), ("n1/a", 2), ("n1/b", 1)]
    assert all(body["nodeName"] == "n1" and "allNodes" not in body for body in bodies)
