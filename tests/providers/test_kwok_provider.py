"""The KWOK provider: a launch is a Node, found again by the claim's UID, and never another's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.quantity import available
from pykarpenter.cloud.catalog import read_catalog
from pykarpenter.cloud.errors import CloudError, CreateError, InsufficientCapacity, NodeClaimNotFound, NodeClassNotReady
from pykarpenter.providers.kwok.plugin import KwokPlugin
from pykarpenter.providers.kwok.provider import KwokProvider
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.api import StoreApi
from pykarpenter.sim.store import Store
from pykarpenter.sim.store.resources import schemaless

TYPES = ["m-4x-amd64-linux", "c-4x-amd64-linux", "s-4x-amd64-linux"]


def claim(name: str = "c1", uid: str = "u1", types: list[str] | None = None, **spec: Any) -> NodeClaim:
    requirements = [{"key": labels.INSTANCE_TYPE, "operator": "In", "values": types or TYPES}]
    body = {
        "metadata": {"name": name, "uid": uid, "labels": {"team": "a", labels.NODEPOOL: "p"}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": requirements + spec.pop("requirements", []),
            "resources": {"requests": {"cpu": "1", "example.com/widget": "2"}},
            **spec,
        },
    }
    return msgspec.convert(body, NodeClaim)


def plain(**how: Any) -> NodeClaim:
    return claim(resources={"requests": {"cpu": "1"}}, **how)


class Bench:
    def __init__(self) -> None:
        clock = running_clock()
        self.store = Store(clock)
        for kind in (kinds.NODE_CLAIM, kinds.KWOK_NODE_CLASS):
            self.store.serve(schemaless(kind))
        self.api = StoreApi(self.store)
        self.provider = KwokProvider(self.api, clock, read_catalog("kwok"))


def bench(tell: Callable[[Bench], Awaitable[None]], with_class: bool = True) -> None:
    async def main() -> None:
        world = Bench()
        if with_class:
            await world.api.create(kinds.KWOK_NODE_CLASS, {"metadata": {"name": "default"}})
        await tell(world)

    run_virtual(main())


@pytest.mark.promise("API-9.1", "API-9.2")
def test_a_launch_is_the_cheapest_node_with_everything_on_it() -> None:
    """Scheduling needs labels, taints and resources from the first moment on."""

    async def tell(world: Bench) -> None:
        launched = await world.provider.create(plain())
        node = await world.api.get(kinds.NODE, launched.status.node_name)
        assert node.name.startswith("kwok-c1-")
        assert node.spec.provider_id == launched.status.provider_id == f"kwok://{node.name}"
        assert [(t.key, t.effect) for t in node.spec.taints] == [(labels.UNREGISTERED_TAINT, "NoExecute")]
        shown = node.metadata.labels
        assert shown[labels.INSTANCE_TYPE] == "c-4x-amd64-linux"
        assert shown[labels.CAPACITY_TYPE] == "spot"
        assert shown[labels.ZONE] == "test-zone-a"
        assert shown["team"] == "a"
        assert shown["kwok-partition"] == "a"
        assert shown["kwok.x-k8s.io/node"] == node.metadata.annotations["kwok.x-k8s.io/node"] == "fake"
        assert shown["eks-node-viewer/instance-price"] == "0.076013"
        assert shown[labels.HOSTNAME] == "c1"
        assert shown["karpenter.kwok.sh/instance-family"] == "c"
        assert node.status.phase == "Pending"
        assert available(node.status.capacity)["cpu"] == 4000
        assert available(node.status.allocatable)["cpu"] == 3900

    bench(tell)


@pytest.mark.promise("API-9.3")
def test_a_repeated_launch_finds_the_same_node() -> None:
    """A crash between launch and status write must not buy a second machine."""

    async def tell(world: Bench) -> None:
        first = await world.provider.create(plain())
        again = await world.provider.create(plain())
        assert first.status.provider_id == again.status.provider_id
        other = await world.provider.create(plain(uid="u2"))
        assert other.status.provider_id != first.status.provider_id
        assert len(await world.provider.list_instances()) == 2

    bench(tell)


@pytest.mark.promise("API-9.2")
def test_launch_errors_are_typed() -> None:
    """Each has its own consequence for the claim."""

    async def tell(world: Bench) -> None:
        with pytest.raises(InsufficientCapacity, match="meets the requirements"):
            await world.provider.create(claim())
        with pytest.raises(InsufficientCapacity):
            await world.provider.create(plain(types=["no-such-type"]))
        bare = msgspec.structs.replace(plain(), spec=msgspec.structs.replace(plain().spec, requirements=[]))
        with pytest.raises(CreateError, match="instance-type"):
            await world.provider.create(bare)
        # The schema's pattern allows any number of hours.
        forever = {"spec": {"nodeRegistrationDelay": "99999999999999999h"}}
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", forever)
        with pytest.raises(CreateError, match=r"'default': spec\.nodeRegistrationDelay: .*longer than"):
            await world.provider.create(plain())
        not_ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", not_ready, subresource="status")
        with pytest.raises(NodeClassNotReady):
            await world.provider.create(plain())
        await world.api.delete(kinds.KWOK_NODE_CLASS, "default")
        with pytest.raises(InsufficientCapacity, match="does not exist"):
            await world.provider.create(plain())
        assert await world.provider.list_instances() == []

    bench(tell)


@pytest.mark.promise("API-9.4")
def test_get_finds_a_deleting_node_and_delete_calls_it_gone() -> None:
    """The Node is the instance; its finalizer waits for exactly that answer."""

    async def tell(world: Bench) -> None:
        launched = await world.provider.create(plain())
        name = launched.status.node_name
        mine = msgspec.structs.replace(plain(), status=launched.status)
        await world.api.patch(kinds.NODE, name, {"metadata": {"finalizers": [labels.TERMINATION_FINALIZER]}})
        await world.provider.delete(mine)
        assert (await world.api.get(kinds.NODE, name)).is_deleting
        assert (await world.provider.get(launched.status.provider_id)).is_deleting
        with pytest.raises(NodeClaimNotFound):
            await world.provider.delete(mine)
        await world.api.patch(kinds.NODE, name, {"metadata": {"finalizers": None}})
        with pytest.raises(NodeClaimNotFound):
            await world.provider.get(launched.status.provider_id)
        with pytest.raises(NodeClaimNotFound):
            await world.provider.delete(mine)
        with pytest.raises(NodeClaimNotFound):
            await world.provider.get("aws:///zone/i-1")

    bench(tell)


def test_another_claims_node_is_not_deleted() -> None:
    """A providerID edited by hand is no right to a machine (S3)."""

    async def tell(world: Bench) -> None:
        launched = await world.provider.create(plain(uid="u2"))
        thief = msgspec.structs.replace(plain(uid="u1"), status=launched.status)
        with pytest.raises(CloudError, match="belongs to"):
            await world.provider.delete(thief)
        assert len(await world.provider.list_instances()) == 1

    bench(tell)


@pytest.mark.promise("API-9.5")
def test_a_reboot_gives_the_node_the_operations_boot_id() -> None:
    """The same operation gives the same ID, so a repeat is the same reboot."""

    async def tell(world: Bench) -> None:
        with pytest.raises(CloudError, match="registered"):
            await world.provider.reboot(plain(), "op-1")
        launched = await world.provider.create(plain())
        mine = msgspec.structs.replace(plain(), status=launched.status)
        await world.provider.reboot(mine, "op-1")
        node = await world.api.get(kinds.NODE, launched.status.node_name)
        assert node.status.node_info.boot_id == "kwok-op-1"

    bench(tell)


@pytest.mark.promise("API-9.2")
def test_registration_can_be_delayed_by_the_class() -> None:
    """Real machines take minutes to join; the instance exists meanwhile."""

    async def tell(world: Bench) -> None:
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "30s"}})
        asked = await world.api.create(kinds.NODE_CLAIM, msgspec.to_builtins(plain()))
        task = asyncio.create_task(world.provider.run_registrations())
        await asyncio.sleep(0)
        launched = await world.provider.create(asked)
        assert launched.metadata.labels[labels.ZONE] == "test-zone-a"
        assert [view.uid for view in await world.provider.list_instances()] == [asked.uid]
        assert (await world.provider.get(launched.status.provider_id)).uid == asked.uid
        await asyncio.sleep(29)
        page = await world.api.list_page(kinds.NODE)
        assert page.items == []
        await asyncio.sleep(2)
        page = await world.api.list_page(kinds.NODE)
        assert [node.spec.provider_id for node in page.items] == [launched.status.provider_id]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    bench(tell)


def test_the_plugin_builds_provider_and_kubelets_by_its_settings() -> None:
    """External kubelets leave the nodes to somebody else."""

    async def main() -> None:
        clock = running_clock()
        api = StoreApi(Store(clock))
        plugin = KwokPlugin()
        built = await plugin.build(api, clock, {s.flag: s.parse(s.default) for s in plugin.settings})
        assert [task.name for task in built.background] == ["kwok.registrations", "kwok.kubelets"]
        assert built.provider.traits.name == "kwok"
        assert len(built.provider.traits.repair_policies) == 4
        external = await plugin.build(api, clock, {"kwok-kubelets": "external"})
        assert [task.name for task in external.background] == ["kwok.registrations"]
        with pytest.raises(ValueError, match="cannot be read"):
            await plugin.build(api, clock, {"instance-types-file-path": "no-such-file.json"})
        with pytest.raises(ValueError, match="builtin or external"):
            plugin.settings[1].parse("remote")

    run_virtual(main())
