"""Our own client on the served store: both sides of the contract against each other, over real HTTPS."""

import asyncio

import pytest

from pykarpenter.api.kinds import NODE, POD
from pykarpenter.kube.client import HttpApi
from pykarpenter.kube.config import from_kubeconfig
from pykarpenter.kube.contract import Preconditions, list_all
from pykarpenter.kube.errors import Conflict, Expired, NotFound, TooManyRequests
from pykarpenter.runtime.clock import SystemClock

from ..store.world import pod_spec
from .conftest import Served


async def test_the_client_speaks_with_the_served_store(served: Served) -> None:
    """Create, list, patch with a lock, bind, evict, delete, watch."""
    clock = SystemClock()
    async with HttpApi(from_kubeconfig([served.kubeconfig], clock), clock=clock) as api:
        node = await api.create(NODE, {"metadata": {"name": "n"}})
        await api.patch(NODE, "n", {"metadata": {"labels": {"a": "b"}}})
        stale = {"metadata": {"resourceVersion": node.metadata.resource_version, "labels": {"a": "c"}}}
        with pytest.raises(Conflict):
            await api.patch(NODE, "n", stale)
        await api.create(POD, {"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": pod_spec()}, "default")
        await api.bind("p", "default", "n")
        assert [pod.spec.node_name for pod in await list_all(api, POD)] == ["n"]
        with pytest.raises(Conflict):
            await api.evict("p", "default", Preconditions(uid="other"))
        served.world.patch("pods", "p", {"status": {"phase": "Running"}}, subresource="status")
        selector = {"matchLabels": {"app": "web"}}
        served.world.create("poddisruptionbudgets", "b", spec={"selector": selector, "minAvailable": 1})
        with pytest.raises(TooManyRequests):
            await api.evict("p", "default")
        await api.delete(NODE, "n")
        with pytest.raises(NotFound):
            await api.get(NODE, "n")


async def test_the_client_watches_and_learns_of_compaction(served: Served) -> None:
    """A streaming list, then changes; 410 as Expired."""
    clock = SystemClock()
    served.world.create("nodes", "a")
    async with HttpApi(from_kubeconfig([served.kubeconfig], clock), clock=clock) as api:
        seen: list[tuple[str, str]] = []

        async def follow() -> None:
            async for event in api.watch(NODE, send_initial_events=True):
                seen.append((event.type, event.object.name if event.object else ""))
                if event.initial_events_end:
                    served.world.create("nodes", "b")
                if seen[-1] == ("ADDED", "b"):
                    return

        await asyncio.wait_for(follow(), 10)
        assert seen == [("ADDED", "a"), ("BOOKMARK", ""), ("ADDED", "b")]
        served.store.compact()
        with pytest.raises(Expired):
            async for _ in api.watch(NODE, resource_version="1"):
                pass
